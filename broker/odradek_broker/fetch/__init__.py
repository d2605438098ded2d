"""The state of fetches beyond one request: fetch sessions (KIP-227), and the purgatory in which
fetches wait."""
