"""Invalid records of `__consumer_offsets`, `__transaction_state` and `__share_group_state`,
replayed by their coordinators.

The first byte chooses the coordinator: 2 is the share coordinator, any other even number the group
coordinator, an odd number the transaction coordinator. Records follow: a byte of flags (bit 0: the
value is null, bit 1: part of a transaction), then key and value, each prefixed by its length in one
byte. A coordinator loads the records or refuses them (O-18). If it loads them, its timers must not
fail afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.adversity.fuzz.target import Broken, Target

from logs import NOW_MS
from node_world import NodeWorld
from odradek_broker.coordinator.runtime import (
    Instant,
    OffsetRuntime,
    Runtime,
    RuntimeState,
)
from odradek_broker.coordinator.sliced_runtime import SlicedRuntime, SlicedTransactionalRuntime
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.partition import StoredRecord
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.primitives import WireError
from odradek_protocol.stored import (
    consumer_group,
    group_metadata,
    offset_commit,
    share_group,
    share_state,
    streams_group,
    transaction_log,
)
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription
from odradek_protocol.stored.typed_records import encode_key, encode_value
from wire_values import fixed, full

_SHARE_STATES = 2
_HOURS = (0, 1, 24, 24 * 30)
_HOUR_MS = 3_600_000
_STEPS_MAX = 200
_TIMERS_MAX = 5_000


def _world() -> NodeWorld:
    world = NodeWorld(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    world.create("t", 2)
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        world.node.ensure_internal_topic(name)
    world.flush()
    return world


_WORLD = _world()


class _Partition:
    """A partition of an internal topic with the given records; appends succeed, and are only
    counted."""

    def __init__(self, records: list[StoredRecord]) -> None:
        self._records = records
        self.appended = 0

    @property
    def next_offset(self) -> int:
        return len(self._records) + self.appended

    def read_stored(self) -> Iterator[StoredRecord]:
        return iter(self._records)

    def read_all(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        for record in self._records:
            if not record.is_control:
                yield record.offset, record.key, record.value

    def append_internal(self, records: list[Any], now_ms: int) -> Deferred[ErrorCode]:
        self.appended += len(records)
        return Deferred.of(ErrorCode.NONE)

    def append_transactional(self, *_: Any) -> Deferred[ErrorCode]:
        return Deferred.of(ErrorCode.NONE)


def _records(data: bytes) -> Iterator[StoredRecord]:
    position = 0
    for offset in range(_STEPS_MAX):
        if position >= len(data):
            return
        flags = data[position]
        key, position = _take(data, position + 1)
        value, position = _take(data, position)
        yield StoredRecord(
            offset, key, None if flags & 1 else value, 7 if flags & 2 else NO_PRODUCER_ID
        )


def _take(data: bytes, position: int) -> tuple[bytes, int]:
    size = data[position] if position < len(data) else 0
    return data[position + 1 : position + 1 + size], position + 1 + size


def _check_service(runtime: Runtime[Any], clock: list[Instant]) -> None:
    """Check that the timers of the next 30 days can run, and come to an end."""
    for hours in _HOURS:
        clock[0] = Instant(hours * _HOUR_MS, NOW_MS + hours * _HOUR_MS)
        for _ in range(_TIMERS_MAX):
            due_ms = runtime.next_deadline_ms()
            if due_ms is None or due_ms > clock[0].monotonic_ms:
                break
            runtime.run_due(clock[0])
            _WORLD.soon.run()
        else:
            raise Broken("deadlines follow one another without end")


def _check(data: bytes) -> None:
    if not data:
        return
    partition = _Partition(list(_records(data[1:])))
    clock = [Instant(0, NOW_MS)]
    node = _WORLD.node
    runtime: Runtime[Any]
    if data[0] == _SHARE_STATES:
        share_states = node.share_state.shards._new_core(0)
        runtime = OffsetRuntime(share_states, partition, lambda: clock[0])
    elif data[0] & 1:
        transactions = node.transactions._new_shard(0)
        runtime = SlicedRuntime(node.slices, transactions, partition, lambda: clock[0])
    else:
        groups = node.groups.shards._new_core(0)
        runtime = SlicedTransactionalRuntime(node.slices, groups, partition, lambda: clock[0])
    try:
        while not runtime.load(1000):
            pass
        _WORLD.soon.run()
    except WireError:
        return
    _check_service(runtime, clock)
    if runtime.state is not RuntimeState.ACTIVE:
        raise Broken(f"a coordinator is {runtime.state}")
    runtime.close()


def _stored(key: bytes, value: bytes, flags: int = 0) -> bytes:
    return bytes([flags, len(key)]) + key + bytes([len(value)]) + value


def _of_kind(key: Message, value: type[Message], group: str) -> Iterator[bytes]:
    for name in ("group_id", "member_id"):
        if hasattr(key, name):
            setattr(key, name, group)
    for each in fixed(value, 0):
        encoded = encode_value(each)
        # The input has one byte for the length.
        if len(encoded) < 256:
            yield _stored(encode_key(key), encoded)


def _seeds() -> Iterator[bytes]:
    group = full(group_metadata.GroupMetadataValue, 3)
    group.protocol_type, group.protocol = "consumer", "range"
    for member in group.members:
        member.subscription = encode_subscription(ConsumerSubscription(topics=["t"]))
    whole = _stored(group_metadata.encode_key("g"), group_metadata.encode_value(group))
    offset = full(offset_commit.OffsetCommitValue, 3)
    key = offset_commit.encode_key("g", "t", 0)
    whole += _stored(key, offset_commit.encode_value(offset))
    whole += _stored(key, offset_commit.encode_value(offset), 2)
    yield b"\0" + whole
    everything = b""
    for kind in consumer_group.GroupRecordType:
        for record in _of_kind(consumer_group.KEYS[kind](), consumer_group.VALUES[kind], "c"):
            yield b"\0" + record
            everything += record
    for share in share_group.ShareRecordType:
        for record in _of_kind(share_group.KEYS[share](), share_group.VALUES[share], "s"):
            yield b"\0" + record
            everything += record
    for streams in streams_group.StreamsRecordType:
        for record in _of_kind(streams_group.KEYS[streams](), streams_group.VALUES[streams], "k"):
            yield b"\0" + record
            everything += record
    yield b"\0" + everything
    yield b"\0" + whole + everything
    yield from _share_state_seeds()
    name = transaction_log.encode_key("x")
    for status in range(9):
        value = full(transaction_log.TransactionLogValue, 1)
        value.transaction_status = status
        yield b"\1" + _stored(name, transaction_log.encode_value(value))
    yield b"\1" + _stored(name, b"", 1)


def _share_state_seeds() -> Iterator[bytes]:
    snapshot = share_state.ShareSnapshotKey(group_id="g", topic_id=bytes(16), partition=1)
    update = share_state.ShareUpdateKey(group_id="g", topic_id=bytes(16), partition=1)
    whole = b"".join(
        _stored(encode_key(key), encode_value(each))
        for key, value in (
            (snapshot, share_state.ShareSnapshotValue),
            (update, share_state.ShareUpdateValue),
        )
        for each in fixed(value, 0)
    )
    first = bytes([_SHARE_STATES])
    yield first + whole
    yield first + whole + _stored(encode_key(snapshot), b"", 1) + whole


TARGET = Target(_check, _seeds)
