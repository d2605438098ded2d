"""The Kafka client: producer, consumer and admin over one asyncio network layer.

Users import from `odradek`; the modules here are its parts.

PYTEST_DONT_REWRITE
"""
