"""The common base of consumer, share and streams groups, which Kafka calls modern groups."""
