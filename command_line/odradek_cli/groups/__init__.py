"""Commands about groups: consumer groups and share groups."""
