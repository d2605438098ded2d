"""The broker: connections, handlers of requests, logs on disk, coordinators and metadata.

A request goes from `server/` through `handlers/` to `replica_manager.py`, `coordinator/`,
`metadata/` or `share/`; docs/understand/design.md walks through it. Programs start a broker with
`odradek serve`, or with `Broker` of `odradek`.

PYTEST_DONT_REWRITE
"""
