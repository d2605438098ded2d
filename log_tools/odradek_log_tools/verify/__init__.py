"""The check of a data directory for damage, with the repairs and losses of the next start."""
