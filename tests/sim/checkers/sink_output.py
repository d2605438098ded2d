"""Every row of every batch that Spark has committed is in the sink's topic once; no other row
is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tests.sim.checkers.attempts import Logs, values_of


def check_sink_output(
    batches: Mapping[int, Sequence[bytes]], told_lost: Collection[bytes], output: Logs
) -> Iterator[str]:
    """Yield violations.

    `batches`: the rows of each committed batch. `told_lost`: rows that may be missing because an
    error has named them as lost. `output`: the rows that a reader of committed records gets.
    """
    found = values_of(output)
    for batch, rows in batches.items():
        for row in rows:
            places = found.pop(row, [])
            if len(places) > 1:
                yield f"{row!r} of batch {batch} is there more than once: {places}"
            elif not places and row not in told_lost:
                yield f"{row!r} of batch {batch} is nowhere, and nobody was told"
    for row, places in found.items():
        yield f"{row!r} at {places[0]} is of no batch that was committed"
