"""The answers of older releases of Apache Kafka, as the reference for our emulations of them.

    python -m tests.oracle.emulation record [PROFILE]    start that release, play, keep its answers

The scenarios are about what older releases do otherwise: versions, features, and requests that they
do not know. `test_emulation.py` plays them against our broker.
"""
