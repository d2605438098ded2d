"""Virtual clusters for tests, made by a process that forks brokers, each an isolated cluster of one
node.

    host process ── fork ── broker 1   own topics, groups, ACLs, quotas, faults, port and directory
                 ── fork ── broker 2
                 ── fork ── broker 3   started ahead, handed out at the next order

The host process has imported the broker and started it once, so a fork listens after some
milliseconds, and a spare, which was started ahead, at once. The host takes orders over HTTP
(`http.py`) and forks (`host.py`), and each fork serves until it is killed (`forked.py`). Brokers
end with the host, and the host ends with the program that started it.
"""
