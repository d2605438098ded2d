"""Delegation tokens: Apache Kafka's recorded answers, and ours beside them."""
