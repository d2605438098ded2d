"""A mirror's copy has each committed record of its source once and in order.

Each offset of the source is translated to the offset of its record in the copy, or of the next
record if the offset has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def check_mirrored(
    name: str,
    source: Sequence[tuple[int, bytes]],
    copy: Sequence[tuple[int, bytes]],
    translated: Mapping[int, int],
) -> Iterator[str]:
    """Compare two logs, (offset, value) of committed records, and check the translated offsets."""
    values, copied = [value for _, value in source], [value for _, value in copy]
    if values != copied:
        lost = [value for value in values if value not in copied]
        twice = sorted({value for value in copied if copied.count(value) > 1})
        yield (
            f"mirrored: {name} has {len(values)} records, and its copy {len(copied)}; "
            f"lost: {lost[:5]}, twice: {twice[:5]}"
        )
        return
    targets = {before[0]: after[0] for before, after in zip(source, copy, strict=True)}
    following = copy[-1][0] + 1 if copy else 0
    if not translated:
        yield f"mirrored: {name} has no map"
    for offset in range(max(translated, default=-1), -1, -1):
        following = targets.get(offset, following)
        if translated[offset] != following:
            yield (
                f"mirrored: offset {offset} of {name} is translated to {translated[offset]}, and its "
                f"record is at {following}"
            )
            return
