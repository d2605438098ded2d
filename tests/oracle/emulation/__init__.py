"""The answers of older releases of Apache Kafka, as the reference for our emulations of them.

    python -m tests.oracle.emulation record [PROFILE]    start that release, play, keep its answers

The scenarios are about the differences of older releases: versions, features, and requests that
they do not know. `test_emulation.py` plays them against our broker.
"""
