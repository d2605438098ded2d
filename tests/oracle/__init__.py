"""Apache Kafka's own answers, recorded, as the reference for ours.

A scenario (`scenarios/*.py`) is a script of raw requests; it is played once for every version of
its API. `python -m tests.oracle record` plays all scenarios against an Apache Kafka that it starts,
and stores the decoded answers in `answers/`. `test_oracle.py` plays them against our broker and
compares. A deliberate difference is a row in `differences.py`, with its reason. To decide what a
doubtful rule should say, ask Kafka with a new scenario:

  1. write it in `scenarios/<api or mechanism>.py` (`script.py` defines the steps);
  2. `python -m tests.oracle record 'name*'` (Java and Maven needed);
  3. `python -m tests.oracle compare 'name*'` shows where our broker's answers differ (no Java).

`python -m tests.oracle --help` lists the commands.
"""
