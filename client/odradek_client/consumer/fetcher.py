"""Fetcher: the next Fetch requests and their sessions, the buffer of their answers, and the records
of a poll (K-01 to K-20).

There is one fetch in flight per node (K-05), and none for a partition with buffered data (K-06). So
the buffer has at most one answer per partition, in the order of arrival; a poll takes records from
its front, and later polls return the rest before newer data (K-07, K-08).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.completed_fetch import CompletedFetch, DecodeSettings, Rows
from odradek_client.consumer.errors import (
    RETRY,
    RETRY_WITH_NEW_METADATA,
    PositionOutOfRange,
    RecordError,
    partition_error,
)
from odradek_client.consumer.subscription_state import SubscriptionState, TopicPartitionState
from odradek_client.errors import error_for
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_protocol.constants import (
    INITIAL_SESSION_EPOCH,
    NO_FETCH_SESSION,
    NO_LEADER_EPOCH,
    SESSION_EPOCH_MAX,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.fetch import (
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Records = dict[TopicPartition, list[ConsumerRecord]]


class PartitionRequest(NamedTuple):
    """A partition in the form of a Fetch request. `last_fetched_epoch`: the epoch of the record
    before `offset`, with which the broker can detect divergence; -1: no check."""

    offset: int
    max_bytes: int
    leader_epoch: int = NO_LEADER_EPOCH
    topic_id: bytes = ZERO_UUID
    last_fetched_epoch: int = NO_LEADER_EPOCH


@dataclass(slots=True)
class FetchSessionRequest:
    """The part of a Fetch request that depends on the session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSessionHandler:
    """The fetch session with a node, and the partitions that the broker has in it (KIP-227, K-20).

    A request has only the partitions that were changed or removed since the last request. A broker
    that answers session id 0 has made no session, so every request to it has all partitions.
    """

    def __init__(self) -> None:
        self._id = NO_FETCH_SESSION
        self._epoch = INITIAL_SESSION_EPOCH
        self._known: dict[TopicPartition, PartitionRequest] = {}

    def request(self, wanted: dict[TopicPartition, PartitionRequest]) -> FetchSessionRequest:
        """The next request for the partitions `wanted`, in the order of `wanted`."""
        if any(
            each in self._known and self._known[each].topic_id != now.topic_id
            for each, now in wanted.items()
        ):
            # The topic was deleted and created again. A broker that identifies partitions by name
            # would drop a partition that the same request fetches and forgets.
            self.restart()
        if self._epoch == INITIAL_SESSION_EPOCH:
            self._known = dict(wanted)
            # Epoch 0 requests a new session, and closes the session whose id is in the request
            # (F-20).
            return FetchSessionRequest(
                self._id, INITIAL_SESSION_EPOCH, topics_of(wanted.items()), []
            )
        known = self._known
        gone = {each: known[each] for each in known if each not in wanted}
        changed = [(each, now) for each, now in wanted.items() if known.get(each) != now]
        self._known = dict(wanted)
        return FetchSessionRequest(self._id, self._epoch, topics_of(changed), _forgotten(gone))

    def answered(self, session_id: int) -> None:
        """Note an answer without a top-level error: its session id, and the next epoch."""
        if session_id == NO_FETCH_SESSION:
            self._id, self._epoch = NO_FETCH_SESSION, INITIAL_SESSION_EPOCH
        elif self._epoch == INITIAL_SESSION_EPOCH or session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == SESSION_EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """Begin a new session with the next request, because the broker no longer has this
        session."""
        self._id, self._epoch = NO_FETCH_SESSION, INITIAL_SESSION_EPOCH

    def restart(self) -> None:
        """Close the session and begin a new one with the next request, because the broker's
        partitions in the session may differ from this client's."""
        self._epoch = INITIAL_SESSION_EPOCH


def topics_of(wanted: Iterable[tuple[TopicPartition, PartitionRequest]]) -> list[FetchTopic]:
    """Group adjacent partitions of the same topic. The order of partitions is kept, because brokers
    serve them in this order (F-05)."""
    topics: list[FetchTopic] = []
    for (name, number), want in wanted:
        if not topics or topics[-1].topic != name:
            topics.append(FetchTopic(topic=name, topic_id=want.topic_id))
        topics[-1].partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.last_fetched_epoch,
                partition_max_bytes=want.max_bytes,
            )
        )
    return topics


def _forgotten(gone: dict[TopicPartition, PartitionRequest]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for (name, number), want in gone.items():
        topic = topics.setdefault(
            (name, want.topic_id), ForgottenTopic(topic=name, topic_id=want.topic_id)
        )
        topic.partitions.append(number)
    return list(topics.values())


def has_all_topic_ids(wanted: dict[TopicPartition, PartitionRequest]) -> bool:
    """True if every topic has an id, so that Fetch 13 can name it."""
    return all(want.topic_id != ZERO_UUID for want in wanted.values())


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Kafka's fetch settings (K-18). `reset_timestamp`: the timestamp of ListOffsets for
    auto.offset.reset, None for "none"."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 52_428_800
    max_partition_bytes: int = 1_048_576
    retry_backoff_ms: int = 100
    reset_timestamp: int | None = -1
    decode: DecodeSettings = field(default_factory=DecodeSettings)

    @classmethod
    def from_config(cls, config: ConsumerConfig, reset_timestamp: int | None) -> FetchSettings:
        return cls(
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            max_partition_bytes=config.max_partition_fetch_bytes,
            retry_backoff_ms=config.retry_backoff_ms,
            reset_timestamp=reset_timestamp,
            decode=DecodeSettings(
                check_crcs=config.check_crcs,
                read_committed=config.isolation_level == "read_committed",
                key=config.key_deserializer,
                value=config.value_deserializer,
            ),
        )


@dataclass(slots=True)
class FetchPlan:
    """A Fetch request to send to a node. `max_version`: the highest version to use; None: the
    newest."""

    node_id: int
    request: FetchRequest
    max_version: int | None
    asked: dict[TopicPartition, PartitionRequest]
    topic_names: dict[bytes, str]


@dataclass(slots=True)
class FetchedRecords:
    """The records of one pass over the buffer. `advanced`: true if positions moved, perhaps only
    past control records and aborted data (K-13)."""

    records: Records
    count: int
    advanced: bool


class Fetcher:
    """The buffer between the nodes' answers and the application's polls.

    The caller sends the requests of `next_fetches`, passes the answer to `on_response` or the error
    to `on_failure`, and takes records with `collect`. The caller also fetches metadata when
    `metadata_wanted` is set, and clears that flag.
    """

    def __init__(self, subscription: SubscriptionState, settings: FetchSettings) -> None:
        self._subscription = subscription
        self._settings = settings
        self._buffer: dict[TopicPartition, CompletedFetch] = {}
        self._errors: dict[TopicPartition, Exception] = {}
        self._in_flight: set[int] = set()
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._head: CompletedFetch | None = None
        self._head_state: TopicPartitionState | None = None
        #: The positions before the last `collect`, of the partitions that it has looked at.
        self.positions_before: Mapping[TopicPartition, int | None] = {}
        self.metadata_wanted = False
        #: The time at which the first postponed partition may be fetched again; None if none was
        #: postponed.
        self.retry_at_ms: int | None = None

    # --- sending ---

    def next_fetches(self, cluster: ClusterView, now_ms: int) -> list[FetchPlan]:
        """Plan a Fetch for each node that leads a fetchable partition and has no fetch in flight.
        The planned fetches count as in flight."""
        if self.retry_at_ms is not None and self.retry_at_ms <= now_ms:
            self.retry_at_ms = None
        by_node: dict[int, dict[TopicPartition, PartitionRequest]] = {}
        settings, in_flight, buffer = self._settings, self._in_flight, self._buffer
        for partition, state in self._subscription.items():
            position = state.position
            if (
                position is None
                or state.must_wait
                or partition in buffer
                or partition in self._errors
            ):
                continue
            if state.retry_at_ms > now_ms:
                self._wait_until(state.retry_at_ms)
                continue
            node_id = cluster.leader_of(*partition)
            if node_id is None:
                self.metadata_wanted = True
            elif node_id not in in_flight:
                by_node.setdefault(node_id, {})[partition] = PartitionRequest(
                    position,
                    settings.max_partition_bytes,
                    cluster.leader_epoch_of(*partition),
                    cluster.topic_id(partition.topic),
                )
        return [self._plan(node_id, wanted) for node_id, wanted in by_node.items()]

    def _plan(self, node_id: int, wanted: dict[TopicPartition, PartitionRequest]) -> FetchPlan:
        self._in_flight.add(node_id)
        session = self._sessions.setdefault(node_id, FetchSessionHandler()).request(wanted)
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=int(settings.decode.read_committed),
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
        )
        by_id = has_all_topic_ids(wanted)
        names = {want.topic_id: partition.topic for partition, want in wanted.items()}
        return FetchPlan(
            node_id, request, None if by_id else TOPIC_IDS_SINCE - 1, wanted, names if by_id else {}
        )

    # --- answers ---

    def on_failure(self, plan: FetchPlan, now_ms: int) -> None:
        """Called when a fetch got no usable answer. Its partitions are fetched again after a pause,
        with new metadata."""
        self._in_flight.discard(plan.node_id)
        self._sessions[plan.node_id].restart()
        self.metadata_wanted = True
        for partition in plan.asked:
            self._back_off(self._subscription.get(partition), now_ms)

    def on_response(self, plan: FetchPlan, response: FetchResponse, now_ms: int) -> None:
        """Buffer an answer. If the position of a partition has changed since the request, the data
        of the partition is stale and is dropped (K-12). Raises an error of the whole answer that
        may not pass."""
        self._in_flight.discard(plan.node_id)
        session = self._sessions[plan.node_id]
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            if code in SESSION_LOST:
                session.lost()
            else:
                self.on_failure(plan, now_ms)
                if not code.retriable and response.error_code != ErrorCode.UNKNOWN_SERVER_ERROR:
                    raise error_for(response.error_code, about=f"a fetch from node {plan.node_id}")
            return
        session.answered(response.session_id)
        for topic in response.responses:
            name = topic.topic or plan.topic_names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                want = plan.asked.get(partition)
                if want is None:
                    session.restart()
                    continue
                state = self._subscription.get(partition)
                if state is not None and state.position == want.offset:
                    self._on_partition(partition, state, want, data, now_ms)

    def _on_partition(
        self,
        partition: TopicPartition,
        state: TopicPartitionState,
        want: PartitionRequest,
        data: PartitionData,
        now_ms: int,
    ) -> None:
        code = ErrorCode.of(data.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(partition, state, want.offset, code, now_ms)
            return
        # The leader of this epoch accepted the position.
        state.checked_epoch = max(state.checked_epoch, want.leader_epoch)
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        if data.records:
            self._buffer[partition] = CompletedFetch(
                partition,
                want.offset,
                data.records,
                data.aborted_transactions,
                self._settings.decode,
            )
            self._subscription.move_to_end(partition)

    def _on_error(
        self,
        partition: TopicPartition,
        state: TopicPartitionState,
        offset: int,
        code: ErrorCode,
        now_ms: int,
    ) -> None:
        if code in RETRY_WITH_NEW_METADATA:
            self.metadata_wanted = True
            self._back_off(state, now_ms)
        elif code in RETRY:
            self._back_off(state, now_ms)
        elif code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._errors[partition] = partition_error(code, partition)
        elif self._settings.reset_timestamp is None:
            self._errors[partition] = PositionOutOfRange(partition, offset)
        else:
            self._subscription.reset(partition, self._settings.reset_timestamp)

    def _back_off(self, state: TopicPartitionState | None, now_ms: int) -> None:
        if state is not None:
            state.retry_at_ms = now_ms + self._settings.retry_backoff_ms
            self._wait_until(state.retry_at_ms)

    def _wait_until(self, at_ms: int) -> None:
        if self.retry_at_ms is None or at_ms < self.retry_at_ms:
            self.retry_at_ms = at_ms

    # --- records ---

    @property
    def buffered(self) -> Iterable[TopicPartition]:
        """The partitions with buffered data, in the order of the buffer."""
        return self._buffer.keys()

    def collect(
        self, limit: int, only: Collection[TopicPartition] = (), rows: Rows | None = None
    ) -> FetchedRecords:
        """Take up to `limit` records from the front of the buffer. If `only` is given, take only
        records of these partitions.

        With `rows` the records are added to `rows` instead of being returned.

        Positions advance past the returned records, and past records that are never returned
        (K-11).
        Errors of partitions are raised only if there is no record to return (K-14).
        """
        records: Records = {}
        count = 0
        advanced = False
        used_up: list[TopicPartition] = []
        before: dict[TopicPartition, int | None] = {}
        self.positions_before = before
        self._head = None
        try:
            for partition, fetched in self._buffer.items():
                if only and partition not in only:
                    continue
                state = self._subscription.get(partition)
                if state is None or state.position != fetched.next_offset:
                    used_up.append(partition)
                    continue
                if state.must_wait:
                    continue
                before[partition] = state.position
                taken, got, failure = self._take(fetched, limit - count, rows)
                if state.position != fetched.next_offset:
                    advanced = True
                    state.position = fetched.next_offset
                if got:
                    state.leader_epoch = fetched.leader_epoch
                    count += got
                if taken:
                    records[partition] = taken
                if failure is not None:
                    if count:
                        break
                    if failure.refetch:
                        used_up.append(partition)
                    raise failure
                if fetched.exhausted:
                    used_up.append(partition)
                if count == limit:
                    if not fetched.exhausted:
                        self._head, self._head_state = fetched, state
                    break
        except RecordError:
            raise
        except BaseException:
            # A deserializer has stopped more than its record, or the process is interrupted. The
            # application gets none of these records, so they are fetched again.
            self.take_back(before)
            raise
        finally:
            for partition in used_up:
                self._buffer.pop(partition, None)
        if not count:
            self._raise_errors(only)
        return FetchedRecords(records, count, advanced)

    def take_back(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Continue at these earlier positions, because the application did not get the records from
        there on."""
        for partition, position in positions.items():
            state = self._subscription.get(partition)
            if state is not None and state.position is not None:
                state.position = position
            self._buffer.pop(partition, None)

    @staticmethod
    def _take(
        fetched: CompletedFetch, limit: int, rows: Rows | None
    ) -> tuple[list[ConsumerRecord], int, RecordError | None]:
        """The records, their number (including records added to `rows`), and the error if there is
        no record."""
        try:
            if rows is not None:
                return [], fetched.take_rows(rows, limit), None
            taken = fetched.take(limit)
            return taken, len(taken), None
        except RecordError as failure:
            return [], 0, failure

    def _raise_errors(self, only: Collection[TopicPartition]) -> None:
        """Raise the first error of a partition that is still assigned. A PositionOutOfRange for an
        earlier position is dropped."""
        for partition in list(self._errors):
            if only and partition not in only:
                continue
            error = self._errors.pop(partition)
            state = self._subscription.get(partition)
            stale = (
                isinstance(error, PositionOutOfRange) and state and state.position != error.offset
            )
            if state is not None and not stale:
                raise error

    def take_one(self) -> ConsumerRecord | None:
        """Take the next record of the partition from which `collect(1)` last took a record, if it
        is in the same decoded batch.

        If the result is None, the caller has to call `collect`. The method is for loops over single
        records, because a call of `collect` costs more than the decoding of a record.
        """
        head, state = self._head, self._head_state
        if head is None or state is None:
            return None
        if state.position != head.next_offset or state.must_wait:
            return None
        # The last record of a batch is left to `collect`, which also advances the buffer.
        if head.cursor + 1 >= len(head.records):
            return None
        record = head.take_one()
        state.position = head.next_offset
        return record

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the buffered data of these partitions."""
        for partition in partitions:
            self._buffer.pop(partition, None)
            self._errors.pop(partition, None)
