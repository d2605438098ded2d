"""The group coordinator: membership, committed offsets."""
