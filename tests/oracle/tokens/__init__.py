"""Delegation tokens: Apache Kafka's recorded answers, and the comparison of ours with them."""
