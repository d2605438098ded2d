"""The anomalies that Jepsen looks for in Kafka, in a recorded history of sends and polls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.sim.checkers.dependency_cycles import check_cycles
from tests.sim.checkers.history import Operation, Outcome, Place, Poll


def check_anomalies(
    history: Sequence[Operation], log_starts: Mapping[Place, int] | None = None
) -> Iterator[str]:
    """Yield each anomaly.

    `log_starts`: the highest log start that each partition ever had; records below it may be
    missing.
    """
    starts = log_starts or {}
    records = _Records(history)
    yield from records.conflicts
    yield from _check_lost(history, records, starts)
    yield from _check_aborted_reads(history)
    yield from _check_precommitted_reads(history)
    yield from _check_positions(history, records, starts)
    yield from _check_send_order(history)
    yield from check_cycles(history)


class _Records:
    """The places of all values in the history.

    `conflicts`: two values at one offset, or one value at two offsets.
    """

    def __init__(self, history: Sequence[Operation]) -> None:
        self.at: dict[Place, dict[int, bytes]] = {}
        self.read: dict[Place, dict[int, bytes]] = {}
        self.conflicts: list[str] = []
        self._places: dict[bytes, tuple[Place, int]] = {}
        for operation in history:
            for step in operation.steps:
                if isinstance(step, Poll):
                    for place, offset, value in step.records:
                        self._add(place, offset, value)
                        self.read.setdefault(place, {})[offset] = value
                elif step.offset is not None and operation.outcome is Outcome.DONE:
                    self._add(step.place, step.offset, step.value)

    def _add(self, place: Place, offset: int, value: bytes) -> None:
        held = self.at.setdefault(place, {}).setdefault(offset, value)
        if held != value:
            self.conflicts.append(f"two values: {held!r} and {value!r} at {place} offset {offset}")
        where = self._places.setdefault(value, (place, offset))
        if where != (place, offset):
            self.conflicts.append(f"duplicate: {value!r} at {where} and at {(place, offset)}")

    def between(self, place: Place, after: int, before: int) -> Iterator[tuple[int, bytes]]:
        """Return (offset, value) of the records between two offsets that at least one client has
        read."""
        found = self.read.get(place, {})
        return ((offset, found[offset]) for offset in range(after + 1, before) if offset in found)


def _check_lost(
    history: Sequence[Operation], records: _Records, starts: Mapping[Place, int]
) -> Iterator[str]:
    """Yield acknowledged records that no client has read.

    Such a record is called lost if a client has read a later record of the partition, else unseen.
    """
    for operation in history:
        if operation.outcome is not Outcome.DONE:
            continue
        for send in operation.sends:
            if send.offset is None or send.offset < starts.get(send.place, 0):
                continue
            read = records.read.get(send.place, {})
            if send.offset not in read:
                kind = "lost write" if max(read, default=-1) > send.offset else "unseen"
                yield f"{kind}: {send.value!r} at {send.place} offset {send.offset}"


def _check_aborted_reads(history: Sequence[Operation]) -> Iterator[str]:
    """Yield records that were read although their transaction was aborted, or their send failed."""
    failed: dict[bytes, Operation] = {}
    for operation in history:
        if operation.never_commits:
            failed.update((send.value, operation) for send in operation.sends)
    for operation in history:
        for poll in operation.polls:
            for place, offset, value in poll.records:
                if value in failed and failed[value] is not operation:
                    yield (
                        f"aborted read: {operation.client} {value!r} of {failed[value].client}"
                        f" at {place} {offset}"
                    )


def _check_precommitted_reads(history: Sequence[Operation]) -> Iterator[str]:
    """Yield records that were read by their own transaction, or before a commit was requested."""
    writers = {
        send.value: operation
        for operation in history
        if operation.transactional
        for send in operation.sends
    }
    for operation in history:
        for poll in operation.polls:
            for place, offset, value in poll.records:
                writer = writers.get(value)
                if writer is not None and _is_early(poll, operation, writer):
                    yield f"precommitted read: {operation.client} {value!r} at {place} {offset}"


def _is_early(poll: Poll, reader: Operation, writer: Operation) -> bool:
    if reader is writer:
        return True
    if writer.commit_began is None or poll.ended is None:
        return False
    return poll.ended < writer.commit_began


def _check_positions(
    history: Sequence[Operation], records: _Records, starts: Mapping[Place, int]
) -> Iterator[str]:
    """Yield offsets that a client skipped, and polls that returned a lower offset than before.

    A skip or a lower offset is called internal if it is within one operation of a client, and
    external if it is between two operations.
    """
    positions: dict[str, dict[Place, int]] = {}
    for operation in history:
        held = positions.setdefault(operation.client, {})
        if operation.sought:
            held.clear()
        inside: set[Place] = set()
        for poll in operation.polls:
            for place, offset, _ in poll.records:
                last = held.get(place)
                kind = "internal" if place in inside else "external"
                if last is not None and offset <= last:
                    yield (
                        f"{kind} poll inversion: {operation.client} read {place} offset {offset}"
                        f" after {last}"
                    )
                elif last is not None:
                    for skipped, value in records.between(place, last, offset):
                        if skipped >= starts.get(place, 0):
                            yield (
                                f"{kind} poll skip: {operation.client} read {place} offset {offset}"
                                f" after {last}, and others read {value!r} at {skipped}"
                            )
                held[place] = offset
                inside.add(place)


def _check_send_order(history: Sequence[Operation]) -> Iterator[str]:
    """Yield records whose offsets are not in the order in which their client sent them."""
    lasts: dict[tuple[str, Place], int] = {}
    for operation in history:
        inside: set[Place] = set()
        for send in operation.sends:
            if send.offset is None:
                continue
            last = lasts.get((operation.client, send.place), -1)
            if send.offset <= last:
                kind = "internal" if send.place in inside else "external"
                yield (
                    f"{kind} send inversion: {operation.client} {send.value!r} at {send.place}"
                    f" offset {send.offset} after {last}"
                )
            lasts[operation.client, send.place] = send.offset
            inside.add(send.place)
