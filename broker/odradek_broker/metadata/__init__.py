"""Cluster metadata: topics, partitions and settings, their log, and decisions on changes."""
