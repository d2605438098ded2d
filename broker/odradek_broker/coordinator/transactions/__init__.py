"""The transaction coordinator, its markers, and the verification of partitions."""
