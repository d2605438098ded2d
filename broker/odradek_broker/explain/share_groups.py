"""The present states of share partitions, and of single records in them (`odradek explain`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.explain.history import LIST_MAX, SubjectState, left_out
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.share.events import NothingReason
from odradek_broker.share.fetching import why_nothing
from odradek_broker.share.in_flight import InFlightRun, RecordState, ShareLimits
from odradek_broker.share.led_partition import LedPartition
from odradek_broker.share.share_partition import InvalidState, SharePartition
from odradek_broker.share.statistics import PartitionStatistics
from odradek_broker.share_state import ShareKey, ShareState
from odradek_broker.slices import with_pauses
from odradek_broker.storage.log import PartitionLog

_K = EventKind
_WHY_NOTHING = {
    NothingReason.LOCKS_USED_UP: (
        "fetches bring no new records, because {in_flight} are in flight and"
        " share.partition.max.record.locks allows {locks_max}"
    ),
    NothingReason.LOCKED: "fetches bring nothing, because members have all that is not finished",
    NothingReason.DELAYED: (
        "fetches bring nothing, because the rest waits for the end of a pause"
        " (share.redelivery.delay.ms)"
    ),
}


def state_of_share_partition(
    led: LedPartition, settings: ShareLimits, counted: PartitionStatistics | None
) -> SubjectState:
    """The state of a share partition that is in memory, with the reason why fetches return no
    records, if they return none."""
    state = led.state
    assert state is not None, "only loaded share partitions are described"
    counts = state.count_by_state()
    empty = counted.empty_fetches if counted is not None else {}
    reasons = [f"{number} {reason.value}" for reason, number in empty.items()]
    return SubjectState.of(
        _K.NOW_SHARE_PARTITION,
        partitions=[(led.topic, led.key.partition)],
        offset=state.start_offset,
        end=led.partition.log.high_watermark,
        acquired=counts[RecordState.ACQUIRED],
        available=counts[RecordState.AVAILABLE],
        finished=counts[RecordState.ACKNOWLEDGED] + counts[RecordState.ARCHIVED],
        empty=f"fetches without records: {', '.join(reasons)}" if reasons else None,
        reason=_why_nothing(led, settings),
    )


def _why_nothing(led: LedPartition, settings: ShareLimits) -> str | None:
    reason = why_nothing(led, settings)
    if reason is None or led.state is None:
        return None
    return _WHY_NOTHING[reason].format(
        in_flight=led.state.records_in_flight, locks_max=settings.max_record_locks
    )


def states_of_share_partitions(
    led: Sequence[LedPartition],
    settings: ShareLimits,
    counted: Callable[[ShareKey], PartitionStatistics | None],
) -> list[SubjectState]:
    """The states of those share partitions of a group that are in memory. If there are many, only
    the first ones are shown, and the number of the others."""
    first = sorted(led, key=lambda each: (each.topic, each.key.partition))[:LIST_MAX]
    return [
        *(state_of_share_partition(each, settings, counted(each.key)) for each in first),
        *left_out(len(led), "share partitions"),
    ]


async def state_of_share_record(
    offset: int,
    log: PartitionLog,
    led: LedPartition | None,
    stored: ShareState | None,
    settings: ShareLimits,
    now_ms: int,
) -> SubjectState:
    """The present state of one record. `led`: the share partition in memory; None if no member has
    a session, and then `stored` is used. `now_ms`: the leader's monotonic time."""
    state = await _restored(stored) if led is None else led.state
    run = None if state is None else state.run_at(offset)
    count: int | None = None
    member: str | None = None
    reason: str | None = None
    if offset >= log.high_watermark:
        note = f"there is no such record yet: the next offset is {log.high_watermark}"
    elif state is None:
        note = "no member has fetched from this partition yet"
    elif offset < state.start_offset:
        note = f"the group is done with it: its start offset is {state.start_offset}"
    elif run is not None:
        note, member = _of_run(run, now_ms)
        count = run.count or None
    elif state.gaps is not None and offset <= state.gaps.end:
        note = "it is available to the next fetch: no delivery of it has ended"
    else:
        note = "it was not delivered yet"
        reason = None if led is None else _why_nothing(led, settings)
    if offset < log.log_start_offset:
        reason = f"it is not in the log any more, which begins at {log.log_start_offset}"
    elif led is None and state is not None:
        reason = "no member has a session now"
    return SubjectState.of(
        _K.NOW_SHARE_RECORD, count=count, note=note, member=member, reason=reason
    )


async def _restored(stored: ShareState | None) -> SharePartition | None:
    """A share partition made from a stored state; None if the stored state is missing, invalid
    or without a start offset."""
    if stored is None or stored.start_offset < 0:
        return None
    try:
        return await with_pauses(SharePartition.restored(stored.start_offset, 0, stored.batches))
    except InvalidState:
        return None


def _of_run(run: InFlightRun, now_ms: int) -> tuple[str, str | None]:
    """The state of a run of records in words, and the member that has the records."""
    if run.change is not None:
        member_id = run.change.member_id
        if not member_id:
            return "it was given up, and its dead letter is being written", None
        return f"an acknowledgement of {member_id} is being stored", member_id
    if run.state is RecordState.ACQUIRED:
        left = duration_text(max(0, (run.deadline_ms or 0) - now_ms))
        return f"{run.member_id} has it, and its lock lasts {left} more", run.member_id
    if run.state is RecordState.ACKNOWLEDGED:
        return "it was accepted", None
    if run.state is RecordState.ARCHIVED:
        return "it is archived, and is not delivered any more", None
    if run.due_ms is not None:
        left = duration_text(max(0, run.due_ms - now_ms))
        return f"it is available in {left}, after a pause", None
    return "it is available to the next fetch", None
