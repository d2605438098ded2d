"""Fetch sessions (KIP-227): a client names its partitions once, then only changes.

Every Fetch, with or without a session, gets a plan: its partitions in reading order, and the shape
of its answer (rules F-15, F-20..F-26). Sessions are soft state: a restart forgets them, and clients
begin new ones.

A session is up to date at a partition when the client has read all records of the partition and
knows the partition's present offsets. Incremental fetches then skip the partition until the client
changes its request for the partition, the partition's offsets change
(`Partition.up_to_date_sessions`), or a topic changes. So the cost of a fetch depends only on the
changed partitions of its session.

    Session.partitions:  t-0  t-1  t-2  t-3 ... t-999    named once, by a full fetch

    up to date:          t-0  t-3 ... t-999          skipped; `Partition.up_to_date_sessions` calls
                          |  ^
         the partition    |  |  nothing new, and the client knows
         moves: `moved`   v  |  the offsets: `mark_up_to_date`
    Session.changed:     t-1  t-2                    read by the next incremental fetch: partitions
                          |                          without records last time come first (F-25)
                          +--> answer: the changed partitions alone (F-24)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition
from odradek_broker.platform.seams import Clock, Randomness
from odradek_broker.slices import Slices, in_pieces, in_sorted_order, let_go, pause
from odradek_protocol.constants import (
    FINAL_SESSION_EPOCH,
    INITIAL_SESSION_EPOCH,
    SESSION_EPOCH_MAX,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.fetch_frames import OneFetch
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.fetch import (
    DIVERGENCE_SINCE,
    SESSIONS_SINCE,
    TOPIC_IDS_SINCE,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek_protocol.settings import INT32_MAX

_SESSION_ID_MAX = INT32_MAX
#: The session epochs of fetches that use no open session. Any other epoch, negative ones too, must
#: be that of an open session.
_WITHOUT_SESSION = (INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH)
#: A session that was unused for this long may be evicted for any new session (F-26).
_IDLE_MS = 120_000
#: The limit of the partitions of all sessions together. At the limit, a client gets no session and
#: has to name its partitions in every fetch.
PARTITIONS_MAX = 1_000_000
PARTITIONS_AT_ONCE = 256

Key = tuple[str | bytes, int]


@dataclass(slots=True, eq=False)
class RequestedPartition:
    """A partition of a fetch.

    `error`: the reason why the partition cannot be read, or NONE. `turn`: the position in the
    reading order of the session. `up_to_date_at`: the partition of this broker; None while
    the session is not up to date at this partition.
    """

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE
    #: The offsets last sent to the client: an incremental answer has only changes (F-24).
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    turn: int = 0
    session: FetchSession | None = None
    up_to_date_at: Partition | None = None

    def moved(self) -> None:
        """See `UpToDateSession`."""
        session, partition = self.session, self.up_to_date_at
        self.up_to_date_at = None
        if session is not None and partition is not None:
            session.changed[self] = None
            if session.waiting is not None:
                session.waiting.include(self, partition)

    def update(self, asked: FetchPartition | OneFetch) -> None:
        """Take the offsets and epochs of the client's request."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def changed_by(self, answer: PartitionData) -> bool:
        """True if an incremental answer must include this partition (F-24)."""
        return bool(
            answer.records
            or answer.error_code
            or answer.diverging_epoch.epoch >= 0
            or answer.high_watermark != self.sent_high_watermark
            or answer.log_start_offset != self.sent_log_start_offset
        )


Answer = tuple[RequestedPartition, PartitionData]
Answers = list[Answer]


class WaitingFetch(Protocol):
    """The parked fetch of a session."""

    def include(self, requested: RequestedPartition, partition: Partition) -> None:
        """Add this partition to the fetch, because the partition has changed."""
        ...

    def answer(self) -> None:
        """Answer with the records that can be read now."""
        ...


@dataclass(slots=True, eq=False)
class FetchSession:
    """A fetch session: the client's partitions, with the offsets that were sent to the client.

    `changed`: the partitions at which the session is not up to date. `tells_divergence`: true if
    the version of the last request has a field for diverging epochs in its answer.
    `topics_version`, `isolation_level`: the version of the topics and the isolation level for which
    the session is up to date at its unchanged partitions. `waiting`: the parked fetch of the
    session. `busy`: the claim of the fetch in slices that uses the session.
    """

    id: int
    uses_topic_ids: bool
    tells_divergence: bool
    used_ms: int
    created_ms: int
    topics_version: int
    isolation_level: int
    epoch: int = 1
    partitions: dict[Key, RequestedPartition] = field(default_factory=dict)
    changed: dict[RequestedPartition, None] = field(default_factory=dict)
    waiting: WaitingFetch | None = None
    busy: Claim | None = None
    _turns: int = 0

    def add(self, key: Key, requested: RequestedPartition) -> None:
        """Add a partition, to be read after all others."""
        self.partitions[key] = requested
        requested.session = self
        self.changed[requested] = None
        self.move_to_end(requested)

    def move_to_end(self, requested: RequestedPartition) -> None:
        """Move a partition that had records in the last answer to the end of the reading order
        (F-25)."""
        self._turns += 1
        requested.turn = self._turns

    def mark_up_to_date(self, requested: RequestedPartition, partition: Partition) -> None:
        """Make incremental fetches skip a partition until its offsets change."""
        del self.changed[requested]
        requested.up_to_date_at = partition
        partition.up_to_date_sessions[requested] = None

    def mark_changed(self, requested: RequestedPartition) -> None:
        """Make the next fetch read a partition."""
        partition = requested.up_to_date_at
        if partition is not None:
            requested.up_to_date_at = None
            partition.up_to_date_sessions.pop(requested, None)
            self.changed[requested] = None

    def mark_all_changed(self) -> None:
        """Make the next fetch read all partitions."""
        for requested in self.partitions.values():
            self.mark_changed(requested)

    def remove(self, key: Key) -> None:
        """Remove a partition that the client no longer requests."""
        requested = self.partitions.pop(key, None)
        if requested is not None:
            self.mark_changed(requested)
            del self.changed[requested]


@dataclass(slots=True)
class FetchContext:
    """The partitions of one request in reading order, and its session, which decides what the
    answer includes.

    An `incremental` plan has only the changed partitions. `topics_version`: that of the topics when
    the plan was begun.
    """

    partitions: list[RequestedPartition]
    session: FetchSession | None = None
    incremental: bool = False
    topics_version: int = 0

    @property
    def asks_for_nothing(self) -> bool:
        """True if the request has no partition, and neither has its session."""
        return not (self.partitions if self.session is None else self.session.partitions)

    @property
    def session_id(self) -> int:
        """The session id of the response; 0 without a session."""
        return 0 if self.session is None else self.session.id

    def included(self, answers: Sequence[Answer]) -> Answers:
        """The answers that an incremental response includes: the answers of changed partitions."""
        return [each for each in answers if each[0].changed_by(each[1])]

    def note_sent(self, answers: Sequence[Answer]) -> None:
        """Called when the client knows the state in all these answers, including answers that
        `included` omits because nothing has changed."""
        for requested, answer in answers:
            # After an error no offset counts as sent, so that the next fetch reports the recovery.
            requested.sent_high_watermark = -1 if answer.error_code else answer.high_watermark
            requested.sent_log_start_offset = answer.log_start_offset
            # The answer to a full request gives the order of a new session (F-25).
            if self.session is not None and (answer.records or not self.incremental):
                self.session.move_to_end(requested)


def response_of(session_id: int, answers: Answers) -> FetchResponse:
    """A response in which neighbouring partitions of one topic share an entry; the order of
    partitions is kept."""
    response = FetchResponse(session_id=session_id)
    add_answers(response, answers)
    return response


def add_answers(response: FetchResponse, answers: Sequence[Answer]) -> None:
    """Add answers to a response; see `response_of`."""
    topics = response.responses
    for requested, answer in answers:
        last = topics[-1] if topics else None
        if last is None or last.topic != requested.topic or last.topic_id != requested.topic_id:
            last = FetchableTopicResponse(topic=requested.topic, topic_id=requested.topic_id)
            topics.append(last)
        last.partitions.append(answer)


#: (topic, topic id, request for the partition).
_AnyFetch = FetchRequest | OneFetch
_Named = tuple[str, bytes, FetchPartition | OneFetch]


def _named(request: _AnyFetch) -> Iterable[_Named]:
    if isinstance(request, OneFetch):
        topic = request.topic
        if not topic:
            return ()
        if isinstance(topic, str):
            return ((topic, ZERO_UUID, request),)
        return (("", topic, request),)
    return [
        (topic.topic, topic.topic_id, asked)
        for topic in request.topics
        for asked in topic.partitions
    ]


def _forgotten(session: FetchSession, request: _AnyFetch) -> list[Key]:
    """The partitions that a client no longer requests."""
    if isinstance(request, OneFetch):
        return []
    return [
        (topic.topic_id if session.uses_topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


async def _each_named(request: _AnyFetch, take: Callable[[Iterable[_Named]], object]) -> None:
    """Call `take` with some of the partitions at a time that a request asks for."""
    if isinstance(request, OneFetch):
        take(_named(request))
        return
    async for topics in in_pieces(request.topics):
        for topic in topics:
            async for some in in_pieces(topic.partitions):
                take([(topic.topic, topic.topic_id, asked) for asked in some])


def _names_more(request: _AnyFetch, most: int) -> bool:
    """True if a request names more topics or partitions than so many."""
    if isinstance(request, OneFetch):
        return most < 1
    if len(request.topics) + len(request.forgotten_topics_data) > most:
        return True
    count = sum([len(topic.partitions) for topic in request.topics])
    return count + sum([len(topic.partitions) for topic in request.forgotten_topics_data]) > most


turn_of = attrgetter("turn")


class Claim:
    """The right of a fetch in slices to change its session. Other requests of the session wait
    until it is `released`; `is_wanted`: true if one does."""

    def __init__(self) -> None:
        self._session: FetchSession | None = None
        self.is_wanted = False
        self.released: Deferred[None] = Deferred()

    def take(self, session: FetchSession) -> None:
        """Begin to use a session that is not busy."""
        self._session = session
        session.busy = self

    def release(self) -> None:
        """Let others use the session."""
        if self._session is not None:
            self._session.busy = None
        self.released.resolve(None)


class TopicNames(Protocol):
    """The topics in the cluster metadata."""

    @property
    def topics_version(self) -> int:
        """A number that changes with every topic and with every leader epoch."""
        ...

    def topic_name(self, topic_id: bytes, /) -> str | None: ...


async def _forget(session: FetchSession) -> None:
    """Let no partition of a removed session refer to it."""
    async for some in in_pieces(session.partitions.values()):
        for requested in some:
            session.mark_changed(requested)


class FetchSessions:
    """All sessions of this broker, at most `slots_max`, with `partitions_max` partitions
    together."""

    def __init__(
        self,
        clock: Clock,
        randomness: Randomness,
        slots_max: int,
        topics: TopicNames,
        slices: Slices,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._clock = clock
        self._randomness = randomness
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        #: Sessions with more partitions, and requests that name more, are handled in slices.
        self.partitions_at_once = PARTITIONS_AT_ONCE
        self._topics = topics
        self._slices = slices
        #: The sessions by id; those that were used last are at the end.
        self.by_id: dict[int, FetchSession] = {}
        #: The number of partitions in all sessions together.
        self._partitions = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def plan(
        self, request: _AnyFetch, version: int, *, everything: bool = False
    ) -> FetchContext | ErrorCode | None:
        """The plan of a request, or the session error that answers it (F-20, F-21). `everything`:
        read all partitions of the session. None for a request that needs `plan_in_slices`."""
        epoch = request.session_epoch
        if version < SESSIONS_SINCE or epoch in _WITHOUT_SESSION:
            if _names_more(request, self.partitions_at_once):
                return None
            if request.session_id and version >= SESSIONS_SINCE:
                self._remove(request.session_id)
            asked = self._ask(_named(request), version, {})
            plan = FetchContext(list(asked.values()))
            if version >= SESSIONS_SINCE and epoch == INITIAL_SESSION_EPOCH:
                plan.session = self._new_session(request, version)
                for key, requested in asked.items():
                    plan.session.add(key, requested)
                if not self._register(plan.session):
                    plan.session = None
            return plan
        session = self._session(request, version)
        if isinstance(session, ErrorCode):
            return session
        most = self.partitions_at_once
        if session.busy is not None or len(session.partitions) > most:
            return None
        if isinstance(request, FetchRequest) and _names_more(request, most):
            return None
        if session.waiting is not None:
            # The parked fetch is answered, because the client has sent the next fetch of its
            # session.
            session.waiting.answer()
            return self.plan(request, version, everything=everything)
        return self._incremental(session, request, version, everything)

    async def plan_in_slices(
        self, request: _AnyFetch, version: int, claim: Claim, *, everything: bool
    ) -> FetchContext | ErrorCode:
        """Like `plan`, for many partitions. `claim` gets the session, and is released when the
        fetch has ended."""
        epoch = request.session_epoch
        if version < SESSIONS_SINCE or epoch in _WITHOUT_SESSION:
            if request.session_id and version >= SESSIONS_SINCE:
                self._remove(request.session_id)
            plan = await self._whole(request, version)
            if version >= SESSIONS_SINCE and epoch == INITIAL_SESSION_EPOCH:
                session = self._new_session(request, version)
                session.topics_version = plan.topics_version
                async for some in in_pieces(plan.partitions):
                    for requested in some:
                        topic = requested.topic_id if session.uses_topic_ids else requested.topic
                        session.add((topic, requested.partition), requested)
                while self._lacks_room(len(session.partitions)) and self._evict_idle():
                    await pause()
                if self._register(session):
                    claim.take(session)
                    plan.session = session
            return plan
        while True:
            found = self._session(request, version)
            if isinstance(found, ErrorCode):
                return found
            if found.waiting is not None:
                found.waiting.answer()
            elif found.busy is not None:
                found.busy.is_wanted = True
                await found.busy.released
            else:
                claim.take(found)
                return await self._incremental_in_slices(found, request, version, everything)

    def _session(self, request: _AnyFetch, version: int) -> FetchSession | ErrorCode:
        """The session of an incremental fetch, or the error that answers it."""
        session = self.by_id.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def has(self, session: FetchSession) -> bool:
        """True if a session has not been removed."""
        return self.by_id.get(session.id) is session

    async def _whole(self, request: _AnyFetch, version: int) -> FetchContext:
        """The plan of the partitions that a request names, without a session."""
        topics_version = self._topics.topics_version
        asked: dict[Key, RequestedPartition] = {}
        await _each_named(request, lambda some: self._ask(some, version, asked))
        plan = FetchContext(list(asked.values()), topics_version=topics_version)
        await let_go(asked)
        return plan

    def look_up_again(self, partitions: Iterable[RequestedPartition], plan: FetchContext) -> None:
        """Look up topic ids again, if topics were created or deleted since the plan was begun."""
        if self._topics.topics_version != plan.topics_version:
            for requested in partitions:
                if requested.topic_id != ZERO_UUID and requested.error is ErrorCode.NONE:
                    self._resolve(requested)

    def withhold(self, plan: FetchContext) -> FetchResponse:
        """The response without records for a client over its quota. The client's session stays
        unchanged, and no new session begins (Q-08)."""
        if plan.session is None:
            return FetchResponse()
        if plan.incremental:
            return FetchResponse(session_id=plan.session.id)
        self._remove(plan.session.id)
        return FetchResponse()

    def _incremental(
        self, session: FetchSession, request: _AnyFetch, version: int, everything: bool
    ) -> FetchContext | ErrorCode:
        if self._begin(session, version):
            for requested in session.partitions.values():
                requested.last_fetched_epoch = -1
            session.mark_all_changed()
        if isinstance(request, FetchRequest) or request.topic:
            self._change(session, _named(request), version, _forgotten(session, request))
            if not self._fits(session):
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if not session.partitions:
            self._remove(session.id)
            return FetchContext(list(self._ask(_named(request), version, {}).values()))
        topics_version = self._topics.topics_version
        if session.topics_version != topics_version:
            session.topics_version = topics_version
            everything = True
            if session.uses_topic_ids:
                for requested in session.partitions.values():
                    self._resolve(requested)
        if everything or session.isolation_level != request.isolation_level:
            session.isolation_level = request.isolation_level
            session.mark_all_changed()
        partitions = list(session.changed)
        if len(partitions) > 1:
            partitions.sort(key=turn_of)
        return FetchContext(partitions, session, True)

    async def _incremental_in_slices(
        self, session: FetchSession, request: _AnyFetch, version: int, everything: bool
    ) -> FetchContext | ErrorCode:
        topics_version = self._topics.topics_version
        if self._begin(session, version):
            everything = True
            async for some in in_pieces(session.partitions.values()):
                for requested in some:
                    requested.last_fetched_epoch = -1
        await _each_named(request, lambda some: self._change(session, some, version))
        async for forgotten in in_pieces(_forgotten(session, request)):
            self._change(session, (), version, forgotten)
        if not self.has(session) or not self._fits(session):
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if not session.partitions:
            self._remove(session.id)
            return await self._whole(request, version)
        if session.topics_version != topics_version:
            session.topics_version = topics_version
            everything = True
            async for some in in_pieces(session.partitions.values()):
                for requested in some if session.uses_topic_ids else ():
                    self._resolve(requested)
        if everything or session.isolation_level != request.isolation_level:
            session.isolation_level = request.isolation_level
            async for some in in_pieces(session.partitions.values()):
                for requested in some:
                    session.mark_changed(requested)
        partitions = await in_sorted_order(session.changed, turn_of)
        return FetchContext(partitions, session, True, topics_version)

    def _begin(self, session: FetchSession, version: int) -> bool:
        """Begin an incremental fetch. True if all partitions have to be read again, because answers
        in only one of the two versions, this one and that of the fetch before, tell divergence."""
        session.used_ms = self._clock.monotonic_ms()
        self.by_id[session.id] = self.by_id.pop(session.id)
        session.epoch = 1 if session.epoch == SESSION_EPOCH_MAX else session.epoch + 1
        tells_divergence = version >= DIVERGENCE_SINCE
        if session.tells_divergence is tells_divergence:
            return False
        session.tells_divergence = tells_divergence
        return True

    def _change(
        self,
        session: FetchSession,
        named: Iterable[_Named],
        version: int,
        forgotten: Iterable[Key] = (),
    ) -> None:
        """Change the partitions of a session, unless it was removed. A partition that is both named
        and forgotten is forgotten."""
        if not self.has(session):
            return
        before = len(session.partitions)
        self._ask(named, version, session.partitions, session)
        for key in forgotten:
            session.remove(key)
        self._partitions += len(session.partitions) - before

    def _fits(self, session: FetchSession) -> bool:
        """True if the sessions have no more partitions than they may. Otherwise this session is
        removed; the client has to request a new one, and gets none while the limit is exceeded."""
        if self._partitions <= self._partitions_max:
            return True
        self._remove(session.id)
        return False

    def _ask(
        self,
        named: Iterable[_Named],
        version: int,
        into: dict[Key, RequestedPartition],
        session: FetchSession | None = None,
    ) -> dict[Key, RequestedPartition]:
        """Add or update the partitions that a request names; if a partition is named twice, the
        last entry is used (F-15). Returns `into`."""
        uses_ids = version >= TOPIC_IDS_SINCE
        for topic, topic_id, asked in named:
            key = (topic_id if uses_ids else topic), asked.partition
            requested = into.get(key)
            if requested is not None:
                if session is not None:
                    session.mark_changed(requested)
                requested.update(asked)
                continue
            requested = into[key] = RequestedPartition(
                "" if uses_ids else topic,
                topic_id,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
            )
            if uses_ids:
                self._resolve(requested)
            if session is not None:
                session.add(key, requested)
        return into

    def _resolve(self, requested: RequestedPartition) -> None:
        """Look up the name of a topic id again, because topics are created and deleted during a
        session. The session keeps the name of a deleted topic even if another topic gets the name
        later (F-14)."""
        name = (
            None if requested.topic_id == ZERO_UUID else self._topics.topic_name(requested.topic_id)
        )
        if name:
            requested.topic, requested.error = name, ErrorCode.NONE
        elif requested.topic:
            requested.error = ErrorCode.INCONSISTENT_TOPIC_ID
        else:
            requested.error = ErrorCode.UNKNOWN_TOPIC_ID

    def _new_session(self, request: _AnyFetch, version: int) -> FetchSession:
        """A session without partitions, which is not registered yet."""
        now_ms = self._clock.monotonic_ms()
        return FetchSession(
            0,
            version >= TOPIC_IDS_SINCE,
            version >= DIVERGENCE_SINCE,
            now_ms,
            now_ms,
            self._topics.topics_version,
            request.isolation_level,
        )

    def _register(self, session: FetchSession) -> bool:
        """Give a new session its id; False if it would exceed the limits (F-26)."""
        if not self._make_room(len(session.partitions)):
            return False
        while session.id == 0 or session.id in self.by_id:
            session.id = self._randomness.below(_SESSION_ID_MAX) + 1
        self.by_id[session.id] = session
        self._partitions += len(session.partitions)
        return True

    def _remove(self, session_id: int) -> None:
        session = self.by_id.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
            if session.waiting is not None:
                session.waiting.answer()
            if len(session.partitions) <= self.partitions_at_once:
                session.mark_all_changed()
            else:
                self._slices.run(_forget(session))

    def _lacks_room(self, partitions: int) -> bool:
        return self._partitions + partitions > self._partitions_max

    def _make_room(self, partitions: int) -> bool:
        while self._lacks_room(partitions):
            if not self._evict_idle():
                return False
        if len(self.by_id) < self._slots_max or self._evict_idle():
            return True
        if not self.by_id:
            return False
        smallest = min(self.by_id.values(), key=lambda session: len(session.partitions))
        young = self._clock.monotonic_ms() - smallest.created_ms < _IDLE_MS
        if young or len(smallest.partitions) >= partitions:
            return False
        self._remove(smallest.id)
        return True

    def _evict_idle(self) -> bool:
        """Remove a session that was unused for long; False if there is none."""
        oldest = next(iter(self.by_id.values()), None)
        if oldest is None or self._clock.monotonic_ms() - oldest.used_ms < _IDLE_MS:
            return False
        self._remove(oldest.id)
        return True
