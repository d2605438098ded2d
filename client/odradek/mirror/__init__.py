"""The mirror: topics, settings and positions of one Kafka cluster copied into another."""
