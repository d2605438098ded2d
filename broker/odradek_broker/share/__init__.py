"""Share partitions: the delivery of single records to the members of share groups (KIP-932)."""
