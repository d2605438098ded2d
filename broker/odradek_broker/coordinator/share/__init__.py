"""The share coordinator: the stored state of share partitions (KIP-932)."""
