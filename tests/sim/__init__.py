"""Broker and clients under workloads, faults drawn from seeds, and checkers of what they promise.

`run` plays one seed of a workload on `odradek.simulation`'s machine, `mutants` puts known bugs in
that the checkers must see, `regressions` keeps failing seeds. `python -m tests.sim --help` has the
command.
"""
