"""Streams groups (KIP-1071): membership, topologies, and the assignment of their tasks."""
