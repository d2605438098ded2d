"""Mirror topics, to which another cluster's records are appended at the same offsets."""
