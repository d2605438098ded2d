"""The records that read_committed readers get during a run are those committed at its end.

Such a reader gets no record that is aborted later, and skips none that is committed later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.sim.checkers.attempts import Logs


def check_committed_reads(
    seen: Mapping[str, Mapping[str, Sequence[tuple[int, bytes]]]], committed: Logs
) -> Iterator[str]:
    """Yield violations.

    `seen`: the records that each reader got from the log's beginning on, by partition. `committed`:
    all committed records.
    """
    for reader, logs in seen.items():
        for partition, records in logs.items():
            for (offset, value), final in zip(records, committed[partition], strict=False):
                if (offset, value) == final:
                    continue
                if offset <= final[0]:
                    yield (
                        f"{reader} saw {value!r} at {partition} offset {offset}, which is not"
                        " committed"
                    )
                else:
                    yield (
                        f"{reader} passed over {final[1]!r} at {partition} offset {final[0]}, which"
                        f" is committed, and saw offset {offset}"
                    )
                break
            else:
                if len(records) > len(committed[partition]):
                    extra = records[len(committed[partition])]
                    yield (
                        f"{reader} saw {extra[1]!r} at {partition} offset {extra[0]}, which is not"
                        " committed"
                    )
