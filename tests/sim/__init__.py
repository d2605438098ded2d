"""Broker and clients under workloads, with faults from seeds, and checkers of their promises.

`run` plays one seed of a workload on the simulated machine, `mutants` inserts known bugs
that the checkers must detect, `regressions` keeps failing seeds. `python -m tests.sim --help`
describes the command.
"""
