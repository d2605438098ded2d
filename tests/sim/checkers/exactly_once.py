"""Every record of the source is in the copy once, and the group's offsets match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.sim.checkers.attempts import Logs


def check_copied(
    source: Logs, copied: Sequence[bytes], committed_offsets: Mapping[str, int]
) -> Iterator[str]:
    """Yield violations at the end of a run.

    `copied`: for each committed record of the sink, the value of the source's record.
    `committed_offsets`: the offsets of the copying group, by partition of the source.
    """
    counts: dict[bytes, int] = {}
    for value in copied:
        counts[value] = counts.get(value, 0) + 1
    for partition, records in source.items():
        for offset, value in records:
            count = counts.pop(value, 0)
            if count != 1:
                yield f"{value!r} of {partition} offset {offset} was copied {count} times"
        end = records[-1][0] + 1 if records else 0
        if committed_offsets.get(partition, 0) != end:
            yield (
                f"the group's offset of {partition} is {committed_offsets.get(partition, 0)}, and"
                f" copied is everything below {end}"
            )
    for value in counts:
        yield f"{value!r} was copied, and is nowhere in the source"
