"""Readers of a broker's data directory, for `odradek log`. They write nothing.

PYTEST_DONT_REWRITE
"""
