"""The references that are made from tables of settings."""
