"""Settings of the broker, of topics and of groups: rows, types, and which value holds."""
