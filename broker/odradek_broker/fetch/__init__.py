"""Fetches that outlast one request: sessions (KIP-227), and the purgatory of those that wait."""
