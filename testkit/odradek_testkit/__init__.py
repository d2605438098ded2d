"""The test kit: brokers and clusters for tests, fixtures, assertions, faults, containers without
Docker, and the simulated machine.

PYTEST_DONT_REWRITE
"""
