"""Settings of the broker, of topics and of groups: rows, types, and the values in effect."""
