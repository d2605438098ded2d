"""Share sessions: their epochs, partitions and limits, and their end."""

from __future__ import annotations

from collections.abc import Callable

from node_world import SoonScheduler
from odradek_broker.share.events import SessionEnd
from odradek_broker.share.sessions import (
    FINAL_EPOCH,
    AskedPartition,
    ShareFetchContext,
    ShareSessions,
)
from odradek_broker.share_state import ShareKey
from odradek_broker.slices import Slices
from odradek_protocol.errors import ErrorCode

E = ErrorCode
T, U = b"t" * 16, b"u" * 16
NAMES = {T: "t"}


class World:
    """Share sessions, and the recorded reports about sessions that ended."""

    def __init__(self, sessions_max: int = 10) -> None:
        self.left: list[tuple[str, list[ShareKey], SessionEnd]] = []
        self.emptied: list[str] = []
        self.turns = SoonScheduler()
        self.sessions = ShareSessions(
            lambda: sessions_max,
            NAMES.get,
            lambda member, keys, end: self.left.append((member, keys, end)),
            self._emptied,
            Slices(lambda: 0, self.turns),
        )

    async def _emptied(self, group: str, _: Callable[[], bool]) -> None:
        self.emptied.append(group)

    def fetch(
        self,
        epoch: int,
        *partitions: int,
        member: str = "a",
        group: str = "g",
        topic_id: bytes = T,
        forgotten: tuple[int, ...] = (),
        connection: int = 1,
        acknowledges: bool = False,
    ) -> list[int] | ErrorCode:
        """The partitions that the session plans to fetch; an error code if the request is
        refused."""
        plan = self.plan(
            epoch,
            *partitions,
            member=member,
            group=group,
            topic_id=topic_id,
            forgotten=forgotten,
            connection=connection,
            acknowledges=acknowledges,
        )
        if isinstance(plan, ErrorCode):
            return plan
        return [each.asked.partition for each in plan.partitions]

    def plan(
        self,
        epoch: int,
        *partitions: int,
        member: str = "a",
        group: str = "g",
        topic_id: bytes = T,
        forgotten: tuple[int, ...] = (),
        connection: int = 1,
        acknowledges: bool = False,
    ) -> ShareFetchContext | ErrorCode:
        asked = [AskedPartition(topic_id, each) for each in partitions]
        return self.sessions.plan(
            group,
            member,
            epoch,
            {each: self.sessions.named(each, epoch) for each in asked},
            [AskedPartition(T, each) for each in forgotten],
            connection,
            acknowledges=acknowledges,
        )


def _told(plan: ShareFetchContext | ErrorCode, records: int = -1, error: int = -1) -> list[int]:
    """The partitions in an answer, if partition `records` has records and partition `error` an
    error."""
    assert isinstance(plan, ShareFetchContext) and plan.session is not None
    session = plan.session
    return [
        each.asked.partition
        for each in plan.partitions
        if session.includes(
            each,
            records=each.asked.partition == records,
            error=each.asked.partition == error,
        )
    ]


def test_h180_each_request_has_the_next_epoch() -> None:
    world = World()
    assert world.fetch(1, 0) is E.SHARE_SESSION_NOT_FOUND
    assert world.fetch(FINAL_EPOCH) is E.SHARE_SESSION_NOT_FOUND
    assert world.fetch(0, 0, acknowledges=True) is E.INVALID_REQUEST
    assert world.fetch(0, 0, 1) == [0, 1]
    assert world.fetch(2) is E.INVALID_SHARE_SESSION_EPOCH
    assert world.fetch(1) == [1, 0]
    assert world.fetch(1) is E.INVALID_SHARE_SESSION_EPOCH
    assert world.fetch(2) == [0, 1]
    assert world.fetch(0, 3) == [3], "a new session"
    assert world.fetch(1) == [3]
    assert len(world.sessions) == 1


def test_h180_the_last_epoch_is_followed_by_the_first() -> None:
    world = World()
    world.fetch(0, 0)
    world.sessions._sessions[next(iter(world.sessions._sessions))].epoch = 2**31 - 1
    assert world.fetch(2**31 - 1) == [0]
    assert world.fetch(1) == [0]


def test_h181_a_session_remembers_its_partitions() -> None:
    world = World()
    world.fetch(0, 0, 1)
    assert world.fetch(1, 2, forgotten=(0,)) == [2, 1]
    assert world.fetch(2) == [1, 2]
    plan = world.plan(3, 5, topic_id=U)
    assert isinstance(plan, ShareFetchContext)
    assert [each.topic for each in plan.partitions] == ["t", "t", None]


def test_h182_an_answer_has_only_partitions_with_news() -> None:
    world = World()
    world.fetch(0, 0, 1)
    assert _told(world.plan(1)) == []
    assert _told(world.plan(2), records=0, error=1) == [0, 1]
    # The client has to learn that the partition has no error any more.
    assert _told(world.plan(3)) == [1]
    assert _told(world.plan(4, 2)) == [2], "a partition that the session learned of"
    assert _told(world.plan(5)) == []


def test_h182_a_partition_that_had_records_is_read_last() -> None:
    world = World()
    world.fetch(0, 0, 1, 2)
    plan = world.plan(3 - 2)
    assert _told(plan, records=0) == [0]
    assert isinstance(plan, ShareFetchContext) and plan.session is not None
    assert [each.partition for each in plan.session.partitions] == [1, 2, 0]


def test_h183_sessions_are_limited() -> None:
    world = World(sessions_max=2)
    world.fetch(0, 0, member="a")
    world.fetch(0, 0, member="b")
    assert world.fetch(0, 0, member="c") is E.SHARE_SESSION_LIMIT_REACHED
    assert world.fetch(0, 1, member="a") == [1], "in place of the earlier one"
    world.sessions.close("g", "b")
    assert world.fetch(0, 0, member="c") == [0]


def test_h184_the_end_of_a_connection_ends_its_sessions() -> None:
    world = World()
    world.fetch(0, 0, 1, member="a", connection=1)
    world.fetch(0, 0, member="b", connection=2)
    world.fetch(0, 7, member="b", connection=3)
    world.sessions.connection_closed(2)
    assert (world.left, world.emptied) == ([], []), "the member began another session since"
    world.sessions.connection_closed(1)
    gone = SessionEnd.DISCONNECTED
    assert world.left == [("a", [ShareKey("g", T, 0), ShareKey("g", T, 1)], gone)]
    assert world.emptied == []
    world.sessions.connection_closed(3)
    assert (world.left[1], world.emptied) == (("b", [ShareKey("g", T, 7)], gone), ["g"])
    assert len(world.sessions) == 0
    assert not world.sessions._members_of and not world.sessions._groups


def test_h185_an_acknowledgement_uses_a_session_epoch() -> None:
    world = World()
    acknowledging = world.sessions.acknowledging
    assert acknowledging("g", "a", 1) is E.SHARE_SESSION_NOT_FOUND
    assert acknowledging("g", "a", FINAL_EPOCH) is E.SHARE_SESSION_NOT_FOUND
    world.fetch(0, 0)
    assert acknowledging("g", "a", 0) is E.INVALID_SHARE_SESSION_EPOCH
    assert acknowledging("g", "a", 1) is E.NONE
    assert acknowledging("g", "a", 1) is E.INVALID_SHARE_SESSION_EPOCH
    assert world.fetch(2) == [0]
    assert acknowledging("g", "a", FINAL_EPOCH) is E.NONE
    assert len(world.sessions) == 1, "the answer ends it"


def test_h186_a_closed_session_releases_the_records_of_its_member() -> None:
    world = World()
    world.fetch(0, 0)
    assert world.fetch(FINAL_EPOCH) == []
    world.sessions.close("g", "a")
    assert world.left == [("a", [ShareKey("g", T, 0)], SessionEnd.CLOSED)]
    assert world.emptied == ["g"]
    world.sessions.close("g", "a")
    assert len(world.left) == 1
    world.fetch(0, 0)
    world.sessions.clear()
    assert (len(world.left), world.emptied) == (1, ["g", "g"])


def test_h184_a_large_session_gives_back_in_slices_and_its_member_is_leaving_meanwhile() -> None:
    world = World()
    world.fetch(0, *range(20_000))
    world.fetch(0, 1, member="b", connection=2)
    world.sessions.connection_closed(1)
    assert len(world.sessions) == 1
    leaving = world.sessions.leaving("g", "a")
    assert leaving is not None and not leaving.done
    given_back = sum(len(keys) for _, keys, _ in world.left)
    assert 0 < given_back < 20_000
    world.turns.run()
    assert leaving.done and world.sessions.leaving("g", "a") is None
    assert [key.partition for _, keys, _ in world.left for key in keys] == [*range(20_000)]
    assert world.emptied == []
