"""SASL in Kafka's protocol: the common part of clients and brokers. Pure functions of bytes."""
