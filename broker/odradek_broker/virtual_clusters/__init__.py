"""Virtual clusters for tests: a process that forks brokers, each an isolated cluster of one node.

    host process ── fork ── broker 1   own topics, groups, ACLs, quotas, faults, port and directory
                 ── fork ── broker 2
                 ── fork ── broker 3   started ahead, handed out at the next order

The host has imported the broker and started it once, so a fork listens after some milliseconds, and
one that was started ahead at once. It takes orders over HTTP (`http.py`), forks (`host.py`), and
each fork serves until it is killed (`forked.py`). Brokers end with the host, and the host with the
program that started it.
"""
