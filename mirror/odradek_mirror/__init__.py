"""The mirror, which copies topics, settings and committed offsets of one Kafka cluster to
another.

PYTEST_DONT_REWRITE
"""
