"""Runs rows of the matrix against both brokers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from tests.interop.matrix.results import Result, Results
from tests.interop.matrix.row import KAFKA, OURS, Check, Missing, Place, Row

from killable import Killable, killable

#: Settings of both brokers: an authorizer, so that ACLs can be administered; and two settings of
#: Kafka's shipped properties that differ from our defaults.
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": "1073741824",
}
_serial = count()


@contextmanager
def brokers(folder: Path) -> Iterator[Mapping[str, Killable]]:
    """Run an Apache Kafka and our broker. Yields them by kind; raises KafkaUnavailable."""
    with ExitStack() as stack:
        running = {}
        for kind in (KAFKA, OURS):
            (folder / kind).mkdir()
            running[kind] = stack.enter_context(killable(kind, folder / kind, SETTINGS))
        yield running


def _checks(
    row: Row, tool: Path, kind: str, both: Mapping[str, Killable], folder: Path
) -> list[Check]:
    name = f"{row.key}-{os.getpid():x}-{next(_serial)}"
    (folder / name).mkdir()
    running = both[kind]
    place = Place(kind, running.address, name, folder / name, running.restart, both[KAFKA].address)
    checks = list(row.run(tool, place))
    for check in checks:
        if check.problem:
            print(f"{row.key} ({kind}): {check.name}: {check.problem}", file=sys.stderr)
    return checks


def run(row: Row, both: Mapping[str, Killable], folder: Path) -> Results:
    """Get the tool of a row, and run the row. Returns the results."""
    try:
        tool = row.get()
    except Missing as missing:
        return Results(row.version, skipped=str(missing))
    # Kafka's run determines which checks must be made.
    kafka = _checks(row, tool, KAFKA, both, folder)
    ours = _checks(row, tool, OURS, both, folder)
    return Results(row.version, _result(ours, kafka), _result(kafka, kafka))


def _result(checks: Sequence[Check], expected: Sequence[Check]) -> Result:
    """The result of a run. An expected check that was not made counts as failed."""
    made = {check.name for check in checks}
    absent = [Check(each.name, "not made") for each in expected if each.name not in made]
    return Result.from_checks([*checks, *absent])
