"""The present states of share partitions, and of single records in them (`odradek explain`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.explain.history import LIST_MAX, CurrentState
from odradek_broker.explain.sentences import EventKind, Value, duration_text
from odradek_broker.share.events import NothingReason
from odradek_broker.share.fetching import why_nothing
from odradek_broker.share.in_flight import RecordState, Run, ShareSettings
from odradek_broker.share.led_partition import LedPartition
from odradek_broker.share.share_partition import InvalidState, SharePartition
from odradek_broker.share.statistics import PartitionStatistics
from odradek_broker.share_state import ShareKey, ShareState
from odradek_broker.storage.log import PartitionLog

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
    led: LedPartition, settings: ShareSettings, counted: PartitionStatistics | None
) -> CurrentState:
    """The state of a share partition that is in memory, with the reason why fetches return no
    records, if they return none."""
    state = led.state
    assert state is not None, "only loaded share partitions are described"
    counts = state.count_by_state()
    empty = counted.empty_fetches if counted is not None else {}
    reasons = [f"{number} {reason.value}" for reason, number in empty.items()]
    fields: dict[str, Value | None] = {
        "offset": state.start_offset,
        "end": led.partition.log.high_watermark,
        "acquired": counts[RecordState.ACQUIRED],
        "available": counts[RecordState.AVAILABLE],
        "finished": counts[RecordState.ACKNOWLEDGED] + counts[RecordState.ARCHIVED],
        "empty": f"fetches without records: {', '.join(reasons)}" if reasons else None,
        "reason": _why_nothing(led, settings),
    }
    return CurrentState.of(EventKind.NOW_SHARE_PARTITION, fields, [(led.topic, led.key.partition)])


def _why_nothing(led: LedPartition, settings: ShareSettings) -> str | None:
    reason = why_nothing(led, settings)
    if reason is None or led.state is None:
        return None
    return _WHY_NOTHING[reason].format(
        in_flight=led.state.records_in_flight, locks_max=settings.max_record_locks
    )


def states_of_share_partitions(
    led: Sequence[LedPartition],
    settings: ShareSettings,
    counted: Callable[[ShareKey], PartitionStatistics | None],
) -> list[CurrentState]:
    """The states of those share partitions of a group that are in memory. If there are many, only
    the first ones are shown, and the number of the others."""
    found = [
        state_of_share_partition(each, settings, counted(each.key))
        for each in sorted(led, key=lambda each: (each.topic, each.key.partition))[:LIST_MAX]
    ]
    if len(led) > LIST_MAX:
        reason = f"and {len(led) - LIST_MAX} share partitions"
        found.append(CurrentState.of(EventKind.NOW_NOTHING, {"reason": reason}))
    return found


def state_of_share_record(
    offset: int,
    log: PartitionLog,
    led: LedPartition | None,
    stored: ShareState | None,
    settings: ShareSettings,
    now_ms: int,
) -> CurrentState:
    """The present state of one record. `led`: the share partition in memory; None if no member has
    a session, and then `stored` is used. `now_ms`: the leader's monotonic time."""
    state = _restored(stored) if led is None else led.state
    fields: dict[str, Value | None]
    run = None if state is None else state.run_at(offset)
    if offset >= log.high_watermark:
        fields = _note(f"there is no such record yet: the next offset is {log.high_watermark}")
    elif state is None:
        fields = _note("no member has fetched from this partition yet")
    elif offset < state.start_offset:
        fields = _note(f"the group is done with it: its start offset is {state.start_offset}")
    elif run is None and state.gaps is not None and offset <= state.gaps.end:
        fields = _note("it is available to the next fetch: no delivery of it has ended")
    elif run is None:
        fields = _note("it was not delivered yet")
        fields["reason"] = None if led is None else _why_nothing(led, settings)
    else:
        fields = _of_run(run, now_ms)
    if offset < log.log_start_offset:
        fields["reason"] = f"it is not in the log any more, which begins at {log.log_start_offset}"
    elif led is None and state is not None:
        fields["reason"] = "no member has a session now"
    return CurrentState.of(EventKind.NOW_SHARE_RECORD, fields)


def _restored(stored: ShareState | None) -> SharePartition | None:
    """A share partition made from a stored state; None if the stored state is missing, invalid
    or without a start offset."""
    if stored is None or stored.start_offset < 0:
        return None
    try:
        return SharePartition.restored(stored.start_offset, 0, stored.batches)
    except InvalidState:
        return None


def _note(text: str) -> dict[str, Value | None]:
    return {"note": text}


def _of_run(run: Run, now_ms: int) -> dict[str, Value | None]:
    """The fields that explain the state of a run of records."""
    fields: dict[str, Value | None] = {"count": run.count or None}
    if run.change is not None and not run.change.member_id:
        fields["note"] = "it was given up, and its dead letter is being written"
    elif run.change is not None:
        fields["note"] = f"an acknowledgement of {run.change.member_id} is being stored"
        fields["member"] = run.change.member_id
    elif run.state is RecordState.ACQUIRED:
        left_ms = max(0, (run.deadline_ms or 0) - now_ms)
        fields["note"] = f"{run.member_id} has it, and its lock lasts {duration_text(left_ms)} more"
        fields["member"] = run.member_id
    elif run.state is RecordState.ACKNOWLEDGED:
        fields["note"] = "it was accepted"
    elif run.state is RecordState.ARCHIVED:
        fields["note"] = "it is archived, and is not delivered any more"
    elif run.due_ms is not None:
        left_ms = max(0, run.due_ms - now_ms)
        fields["note"] = f"it is available in {duration_text(left_ms)}, after a pause"
    else:
        fields["note"] = "it is available to the next fetch"
    return fields
