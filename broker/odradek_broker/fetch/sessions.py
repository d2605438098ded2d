"""Fetch sessions (KIP-227): a client names its partitions once, then only changes.

Every Fetch, with or without a session, gets a plan: its partitions in reading order, and the shape of
its answer (rules F-15, F-20..F-26). Sessions are soft state: a restart forgets them, and clients begin
new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from odradek_broker.platform.seams import Clock, Randomness
from odradek_protocol.constants import INITIAL_SESSION_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.fetch import (
    SESSIONS_SINCE,
    TOPIC_IDS_SINCE,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_EPOCH_MAX = 2**31 - 1
#: A session this long unused may be evicted for any other (F-26).
_IDLE_MS = 120_000
#: Partitions of all sessions together; a client without a session names its partitions each time.
PARTITIONS_MAX = 1_000_000

Key = tuple[str | bytes, int]


@dataclass(slots=True)
class RequestedPartition:
    """One partition of a fetch. `error`: why it cannot be read; NONE if it can."""

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE
    #: As last sent to the client: an incremental answer has only changes (F-24).
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1

    def update(self, asked: FetchPartition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def changed_by(self, answer: PartitionData) -> bool:
        """Whether an incremental answer has this partition (F-24)."""
        return bool(
            answer.records
            or answer.error_code
            or answer.diverging_epoch.epoch >= 0
            or answer.high_watermark != self.sent_high_watermark
            or answer.log_start_offset != self.sent_log_start_offset
        )

    def note_sent(self, answer: PartitionData) -> None:
        """The client is given this answer, or knows what is in it."""
        # After an error nothing counts as sent, so that recovery is reported.
        self.sent_high_watermark = -1 if answer.error_code else answer.high_watermark
        self.sent_log_start_offset = answer.log_start_offset


Answers = list[tuple[RequestedPartition, PartitionData]]


@dataclass(slots=True)
class _Session:
    id: int
    uses_topic_ids: bool
    used_ms: int
    created_ms: int
    epoch: int = 1
    partitions: dict[Key, RequestedPartition] = field(default_factory=dict)


@dataclass(slots=True)
class FetchPlan:
    """The partitions of one request in reading order, and the session that shapes its answer."""

    partitions: list[RequestedPartition]
    session: _Session | None = None
    incremental: bool = False

    def preview(self, answers: Answers) -> FetchResponse:
        """The response that `respond` would give, which nobody is given yet."""
        if self.session is None:
            return FetchResponse(responses=_by_topic(answers))
        sent = [
            (requested, answer)
            for requested, answer in answers
            if not self.incremental or requested.changed_by(answer)
        ]
        return FetchResponse(session_id=self.session.id, responses=_by_topic(sent))

    def respond(self, answers: Answers) -> FetchResponse:
        """The response; of an incremental fetch it has only the changed partitions."""
        response = self.preview(answers)
        session = self.session
        if session is not None:
            for requested, answer in answers:
                requested.note_sent(answer)
                if answer.records:
                    _move_to_end(session, requested)
        return response


def _move_to_end(session: _Session, requested: RequestedPartition) -> None:
    """Let the partitions that had no records be read first next time (F-25)."""
    key = _key(session.uses_topic_ids, requested.topic, requested.topic_id, requested.partition)
    if key in session.partitions:
        session.partitions[key] = session.partitions.pop(key)


def _key(uses_topic_ids: bool, topic: str, topic_id: bytes, partition: int) -> Key:
    return (topic_id if uses_topic_ids else topic), partition


def _by_topic(answers: Answers) -> list[FetchableTopicResponse]:
    """Entries by topic, one for neighbours of the same topic; the order of partitions is kept."""
    topics: list[FetchableTopicResponse] = []
    for requested, answer in answers:
        last = topics[-1] if topics else None
        if last is None or last.topic != requested.topic or last.topic_id != requested.topic_id:
            last = FetchableTopicResponse(topic=requested.topic, topic_id=requested.topic_id)
            topics.append(last)
        last.partitions.append(answer)
    return topics


class FetchSessions:
    """All sessions of this broker, at most `slots_max`, with `partitions_max` partitions together.

    `topic_name` gives the name behind a topic id, or None.
    """

    def __init__(
        self,
        clock: Clock,
        randomness: Randomness,
        slots_max: int,
        topic_name: Callable[[bytes], str | None],
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._clock = clock
        self._randomness = randomness
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._topic_name = topic_name
        self._sessions: dict[int, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int) -> FetchPlan | ErrorCode:
        """The plan of a request, or the session error that answers it (F-20, F-21)."""
        epoch = request.session_epoch
        if version < SESSIONS_SINCE or epoch <= INITIAL_SESSION_EPOCH:
            if request.session_id and version >= SESSIONS_SINCE:
                self._sessions.pop(request.session_id, None)
            plan = FetchPlan(list(self._asked(request, version, {}).values()))
            if version >= SESSIONS_SINCE and epoch == INITIAL_SESSION_EPOCH:
                plan.session = self._create(plan.partitions, version >= TOPIC_IDS_SINCE)
            return plan
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return self._incremental(session, request, version)

    def withhold(self, plan: FetchPlan) -> FetchResponse:
        """The response of a fetch that is given nothing, because of a quota: its session stays as it
        was, and a new one does not begin (Q-08)."""
        if plan.session is None:
            return FetchResponse()
        if plan.incremental:
            return FetchResponse(session_id=plan.session.id)
        self._sessions.pop(plan.session.id, None)
        return FetchResponse()

    def _incremental(
        self, session: _Session, request: FetchRequest, version: int
    ) -> FetchPlan | ErrorCode:
        session.used_ms = self._clock.monotonic_ms()
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                key = _key(session.uses_topic_ids, forgotten.topic, forgotten.topic_id, partition)
                session.partitions.pop(key, None)
        self._asked(request, version, session.partitions)
        if request.topics and self._partitions() > self._partitions_max:
            # The client begins anew, and is then refused a session.
            del self._sessions[session.id]
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.uses_topic_ids:
            for requested in session.partitions.values():
                self._resolve(requested)
        if not session.partitions:
            del self._sessions[session.id]
            return FetchPlan([])
        return FetchPlan(list(session.partitions.values()), session, incremental=True)

    def _asked(
        self, request: FetchRequest, version: int, into: dict[Key, RequestedPartition]
    ) -> dict[Key, RequestedPartition]:
        """Add or update the partitions that the request lists; the last of equals wins (F-15)."""
        uses_ids = version >= TOPIC_IDS_SINCE
        for topic in request.topics:
            for asked in topic.partitions:
                key = _key(uses_ids, topic.topic, topic.topic_id, asked.partition)
                requested = into.get(key)
                if requested is None:
                    requested = into[key] = RequestedPartition(
                        topic.topic, topic.topic_id, asked.partition
                    )
                    if uses_ids:
                        self._resolve(requested)
                requested.update(asked)
        return into

    def _resolve(self, requested: RequestedPartition) -> None:
        """Look the name of a topic id up: topics come and go during a session (F-14)."""
        name = None if requested.topic_id == ZERO_UUID else self._topic_name(requested.topic_id)
        requested.topic = name or ""
        requested.error = ErrorCode.NONE if name else ErrorCode.UNKNOWN_TOPIC_ID

    def _create(self, requested: list[RequestedPartition], uses_topic_ids: bool) -> _Session | None:
        """A new session; None for one without partitions, or beyond the limits (F-26)."""
        if not requested or not self._make_room(len(requested)):
            return None
        now_ms = self._clock.monotonic_ms()
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._randomness.below(_EPOCH_MAX) + 1
        session = _Session(session_id, uses_topic_ids, now_ms, now_ms)
        for one in requested:
            key = _key(uses_topic_ids, one.topic, one.topic_id, one.partition)
            session.partitions[key] = one
        self._sessions[session_id] = session
        return session

    def _partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _make_room(self, partitions: int) -> bool:
        while self._partitions() + partitions > self._partitions_max:
            if not self._evict_idle():
                return False
        if len(self._sessions) < self._slots_max or self._evict_idle():
            return True
        if not self._sessions:
            return False
        smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
        young = self._clock.monotonic_ms() - smallest.created_ms < _IDLE_MS
        if young or len(smallest.partitions) >= partitions:
            return False
        del self._sessions[smallest.id]
        return True

    def _evict_idle(self) -> bool:
        """Remove a session that was not used for long; False if there is none."""
        oldest = min(self._sessions.values(), key=lambda session: session.used_ms, default=None)
        if oldest is None or self._clock.monotonic_ms() - oldest.used_ms < _IDLE_MS:
            return False
        del self._sessions[oldest.id]
        return True
