"""Share sessions: the partitions that a member of a share group fetches from (H-180 to H-186).

A member sends its partitions once and then only changes; each request has the next epoch, so that
no request is carried out twice. The session ends with a request of epoch -1, or with the connection
on which it began; then all records that its member has acquired are released. A restart drops all
sessions, and members begin new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import field
from typing import Any

from odradek_broker.deferred import Deferred
from odradek_broker.share.events import SessionEnd
from odradek_broker.share_state import ShareKey
from odradek_broker.slices import Slices, in_pieces, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
#: The limit of partitions in all sessions together.
PARTITIONS_MAX = 100_000


class AskedPartition(NamedTuple):
    """A partition of a topic in a request, by topic id."""

    topic_id: bytes
    partition: int


@dataclass(slots=True, eq=False)
class SessionPartition:
    """A partition of a session. `topic` is None for an id that was unknown when it was added to the
    session. `unanswered`: the next answer includes the partition in any case, because the partition
    is new or had an error."""

    asked: AskedPartition
    topic: str | None
    unanswered: bool = False


class ShareFetchContext(NamedTuple):
    """The partitions of one request, in reading order. `session` decides which partitions the
    answer includes; None if the request begins or ends a session."""

    partitions: list[SessionPartition]
    session: ShareSession | None = None


class _Member(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """The session of one member. `connection_id`: the connection on which it began."""

    member: _Member
    connection_id: int
    epoch: int = 1
    partitions: dict[AskedPartition, SessionPartition] = field(default_factory=dict)

    def includes(self, each: SessionPartition, *, records: bool, error: bool) -> bool:
        """True if the answer includes this partition: it has records or an error, or is unanswered.
        A partition with records moves to the end of the reading order."""
        has = records or error or each.unanswered
        each.unanswered = error
        if records and self.partitions.pop(each.asked, None) is not None:
            self.partitions[each.asked] = each
        return has


class ShareSessions:
    """All share sessions of this broker, at most `sessions_max`.

    `topic_name` returns the name of a topic id, or None. `left` is called for each session that has
    ended, with some of its share partitions at a time and the cause; then `emptied` is awaited if
    the group has no other session. It ends when the function that it gets returns true, because a
    session has begun. Both take turns with other work.
    """

    def __init__(
        self,
        sessions_max: Callable[[], int],
        topic_name: Callable[[bytes], str | None],
        left: Callable[[str, list[ShareKey], SessionEnd], None],
        emptied: Callable[[str, Callable[[], bool]], Coroutine[Any, Any, None]],
        slices: Slices,
    ) -> None:
        self._slices = slices
        self._sessions_max = sessions_max
        self._topic_name = topic_name
        self._left = left
        self._emptied = emptied
        self._sessions: dict[_Member, ShareSession] = {}
        #: The members whose session began on each connection, and the sessions of each group.
        self._members_of: dict[int, set[_Member]] = {}
        self._groups: Counter[str] = Counter()
        #: The members whose last session is giving back what it has.
        self._leaving: dict[_Member, Deferred[None]] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    # --- Requests ---

    def plan(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        asked: Mapping[AskedPartition, SessionPartition],
        forgotten: Collection[AskedPartition],
        connection_id: int,
        *,
        acknowledges: bool,
    ) -> ShareFetchContext | ErrorCode:
        """The plan of a ShareFetch, or the error that answers it. `asked`: see `named`. To be
        called when `leaving` returns None."""
        member = _Member(group_id, member_id)
        if epoch == FINAL_EPOCH:
            if member not in self._sessions:
                return ErrorCode.SHARE_SESSION_NOT_FOUND
            return ShareFetchContext([])
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                return ErrorCode.INVALID_REQUEST
            return self._begin(member, asked, connection_id)
        session = self._next(member, epoch)
        if isinstance(session, ErrorCode):
            return session
        if self._partitions + len(asked) > PARTITIONS_MAX:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        before = len(session.partitions)
        if asked:
            # A partition of the session keeps its place.
            session.partitions = {**session.partitions, **asked, **session.partitions}
        if forgotten:
            gone = frozenset(forgotten)
            session.partitions = {
                asked: each for asked, each in session.partitions.items() if asked not in gone
            }
        self._partitions += len(session.partitions) - before
        return ShareFetchContext(_turned(list(session.partitions.values()), epoch), session)

    def acknowledging(self, group_id: str, member_id: str, epoch: int) -> ErrorCode:
        """The error that answers a ShareAcknowledge, or NONE. The request advances the epoch of its
        session."""
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        member = _Member(group_id, member_id)
        if epoch == FINAL_EPOCH:
            known = member in self._sessions
            return ErrorCode.NONE if known else ErrorCode.SHARE_SESSION_NOT_FOUND
        session = self._next(member, epoch)
        return session if isinstance(session, ErrorCode) else ErrorCode.NONE

    def _begin(
        self,
        member: _Member,
        asked: Mapping[AskedPartition, SessionPartition],
        connection_id: int,
    ) -> ShareFetchContext | ErrorCode:
        """Begin a session in place of an earlier one. The member keeps the records that it has
        acquired."""
        self._remove(member)
        partitions = dict(asked)
        if (
            len(self._sessions) >= self._sessions_max()
            or self._partitions + len(partitions) > PARTITIONS_MAX
        ):
            self._slices.run(self._check_emptied(member.group_id))
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(member, connection_id, partitions=partitions)
        self._sessions[member] = session
        self._groups[member.group_id] += 1
        self._partitions += len(partitions)
        self._members_of.setdefault(connection_id, set()).add(member)
        return ShareFetchContext(list(partitions.values()))

    def _next(self, member: _Member, epoch: int) -> ShareSession | ErrorCode:
        """The session of a member, if the request has the session's next epoch; else the error."""
        session = self._sessions.get(member)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def named(self, asked: AskedPartition, epoch: int) -> SessionPartition:
        """A partition of a request with this epoch. A partition that is added to a session is
        answered in any case."""
        return SessionPartition(
            asked, self._topic_name(asked.topic_id), unanswered=epoch != INITIAL_EPOCH
        )

    # --- Ends ---

    def close(self, group_id: str, member_id: str) -> None:
        """End a session, and release the records that its member has acquired."""
        self._end([_Member(group_id, member_id)], SessionEnd.CLOSED)

    def connection_closed(self, connection_id: int) -> None:
        self._end(list(self._members_of.get(connection_id, ())), SessionEnd.DISCONNECTED)

    def clear(self) -> None:
        """Drop all sessions, because share groups were disabled."""
        groups = dict.fromkeys([member.group_id for member in self._sessions])
        for member in list(self._sessions):
            self._remove(member)
        for group_id in groups:
            self._slices.run(self._check_emptied(group_id))

    def leaving(self, group_id: str, member_id: str) -> Deferred[None] | None:
        """Resolves when the last session of a member has released all its records. A new session
        must not begin earlier: its records would be released too. None if nothing is left."""
        return self._leaving.get(_Member(group_id, member_id))

    def _end(self, members: Collection[_Member], end: SessionEnd) -> None:
        ended = [session for each in members if (session := self._remove(each)) is not None]
        left = self._slices.deferred(self._leave(ended, end))
        if not left.done:
            self._leaving |= dict.fromkeys([session.member for session in ended], left)
            left.then(lambda _: self._have_left(ended))

    def _have_left(self, ended: Iterable[ShareSession]) -> None:
        for session in ended:
            del self._leaving[session.member]

    async def _leave(self, ended: Iterable[ShareSession], end: SessionEnd) -> None:
        async for session in paced(ended):
            group_id, member_id = session.member
            async for some in in_pieces(session.partitions):
                self._left(member_id, [ShareKey(group_id, *each) for each in some], end)
            await self._check_emptied(group_id)

    def _remove(self, member: _Member) -> ShareSession | None:
        session = self._sessions.pop(member, None)
        if session is None:
            return None
        self._partitions -= len(session.partitions)
        self._groups[member.group_id] -= 1
        members = self._members_of[session.connection_id]
        members.discard(member)
        if not members:
            del self._members_of[session.connection_id]
        return session

    async def _check_emptied(self, group_id: str) -> None:
        if not self._groups[group_id]:
            del self._groups[group_id]
            await self._emptied(group_id, lambda: self._groups[group_id] > 0)


def _turned(partitions: list[SessionPartition], epoch: int) -> list[SessionPartition]:
    """The partitions, rotated by the epoch, so that each partition comes first in some requests."""
    turn = epoch % len(partitions) if partitions else 0
    return partitions[turn:] + partitions[:turn]
