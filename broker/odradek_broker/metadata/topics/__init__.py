"""Decisions on topics, as Kafka's controller makes them: state is read, records are returned."""
