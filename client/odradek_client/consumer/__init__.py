"""The consumer: positions, fetching, group membership."""
