"""The test kit: brokers and clusters for tests, fixtures, assertions, faults, containers without
Docker, and the simulated machine.
"""
