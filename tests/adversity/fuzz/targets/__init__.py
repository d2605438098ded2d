"""Targets: each module defines one as `TARGET`."""
