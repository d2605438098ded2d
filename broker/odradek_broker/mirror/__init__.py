"""Mirror topics: topics that another cluster's records are appended to, at the same offsets."""
