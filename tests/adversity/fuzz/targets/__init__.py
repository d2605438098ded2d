"""Targets, one file each, with `TARGET` in it."""
