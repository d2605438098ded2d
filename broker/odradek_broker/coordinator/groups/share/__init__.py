"""Share groups (KIP-932): membership, and the share partitions that have a state."""
