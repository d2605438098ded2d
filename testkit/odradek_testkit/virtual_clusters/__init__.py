"""Virtual clusters for tests. One process forks brokers, each of which is an isolated cluster of
one node.

    host process ── fork ── broker 1   own topics, groups, ACLs, quotas, faults, port and directory
                 ── fork ── broker 2
                 ── fork ── broker 3   started ahead, handed out at the next order

The host process has imported the broker and started it once, so that a fork listens after a few
milliseconds. Spare brokers are started before they are ordered, so that an order gets one
immediately. The host takes orders over HTTP (`http.py`) and forks (`host.py`), and each fork serves
until it is killed (`forked.py`). Brokers end when the host ends, and the host ends when the program
that started the host ends.
"""
