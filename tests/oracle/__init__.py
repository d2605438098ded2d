"""Apache Kafka's own answers, recorded, as the reference for ours.

A scenario (`scenarios/*.py`) is a script of raw requests; it is played once for every version of
its API. `python -m tests.oracle record` plays all of them against an Apache Kafka that it starts,
and stores the decoded answers in `answers/`; `test_oracle.py` plays them against our broker and
compares. A deliberate difference is a row in `differences.py`, with its reason. A new scenario
decides a rule in doubt:

1. write it down in `scenarios/<api or mechanism>.py` (`script.py` has the words);
2. `python -m tests.oracle record 'name*'` (Java and Maven needed);
3. `python -m tests.oracle compare 'name*'` says where our broker answers otherwise (no Java).

`python -m tests.oracle --help` lists the commands.
"""
