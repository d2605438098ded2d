"""Answers that wait for cluster metadata to be durable (D4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.metadata.log import MetadataLog
from odradek_broker.platform.seams import Scheduler
from odradek_broker.slices import paced
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import MetadataRecord

Response = TypeVar("Response")
#: The minimum wait, because some clients send a timeout of 0 although they wait for the answer.
_SHORTEST_WAIT_MS = 5_000
DEFAULT_WAIT_MS = 60_000


class MetadataNode(Protocol):
    """The parts of the node that changes of metadata use."""

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def metadata_log(self) -> MetadataLog: ...


def when_durable(
    node: MetadataNode,
    records: Sequence[MetadataRecord],
    respond: Callable[[], Response],
    timed_out: Callable[[], Response],
) -> Response | Deferred[Response]:
    """Append the records, and answer `respond()` when they are durable, or `timed_out()`; see
    `committed`."""
    durable = committed(node, records)
    if durable.done:
        return respond() if durable.result() else timed_out()
    return durable.map(lambda in_time: respond() if in_time else timed_out())


async def too_late(timeout_ms: int, names: Iterable[Hashable]) -> bool:
    """True for a request that is answered REQUEST_TIMED_OUT for all its names, before anything else
    is checked: its timeout is negative. As in Kafka, a request is not among these if each of its
    names is refused because it is repeated."""
    if timeout_ms >= 0:
        return False
    times: Counter[Hashable] = Counter()
    async for name in paced(names):
        times[name] += 1
    return 1 in times.values()


async def all_committed(recorded: Iterable[Deferred[bool]]) -> bool:
    """True if all results of `committed` are true."""
    return all([await each async for each in paced(recorded)])


class _Result(Protocol):
    error: ErrorCode


async def refuse_if_late(results: Iterable[_Result], recorded: Iterable[Deferred[bool]]) -> None:
    """Wait for the results of `committed`. If one of them is false, nobody knows which changes are
    durable, and all results without an error get REQUEST_TIMED_OUT."""
    if not await all_committed(recorded):
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT


def committed(
    node: MetadataNode, records: Sequence[MetadataRecord] = (), timeout_ms: int = DEFAULT_WAIT_MS
) -> Deferred[bool]:
    """Append the records. The result is true when everything that was replayed so far is on disk.

    It is false if the disk takes longer than `timeout_ms`, and longer than _SHORTEST_WAIT_MS; the
    records then stay in the log. It is also false if the records cannot be appended; clients retry
    after both. With a negative timeout, it is false immediately, and no record is appended.
    """
    if timeout_ms < 0:
        return Deferred.of(False)
    try:
        recorded = node.metadata_log.commit(records) if records else node.metadata_log.durable()
    except StorageError:
        # The cause is logged elsewhere, by `DiskWatch` or with the problems of the metadata log,
        # and only once, however often clients retry.
        return Deferred.of(False)
    if recorded.done:
        return Deferred.of(True)
    answer: Deferred[bool] = Deferred()

    def late() -> None:
        if not answer.done:
            answer.resolve(False)

    timer = node.scheduler.call_later(max(timeout_ms, _SHORTEST_WAIT_MS), late)

    def durable(_: None) -> None:
        if not answer.done:
            timer.cancel()
            answer.resolve(True)

    recorded.then(durable)
    return answer
