"""The parts that broker and clients share: messages of all APIs, records, and the bases of
settings, TLS and SASL.

`schemas/` has a module for each API, `records/` the batches in logs and on the wire, `stored/` the
records of internal topics, `keys.py` the table of APIs and versions.

PYTEST_DONT_REWRITE
"""
