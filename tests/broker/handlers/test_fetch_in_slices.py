"""Fetches in slices (rule N-57): whatever happens at any pause of a fetch, its answer is right, and
the broker keeps nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fetch_worlds import FetchWorld
from odradek_broker import slices
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import AllowEverything, Operation, Resource
from odradek_protocol import frames
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

PARTITIONS = 4
BY_ID, BY_NAME = 13, 12
WAIT_MS = 500


@pytest.fixture(autouse=True)
def pause_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt fetches at every pause, and let them pause for each partition."""
    for name in ("TURN_STEPS", "SLICE_STEPS", "LATE_STEPS", "_SORTED_AT_ONCE"):
        monkeypatch.setattr(slices, name, 1)
    monkeypatch.setattr(slices.in_pieces, "SIZE", 1)


class World(FetchWorld):
    """A broker with the topic "t", whose fetches are all handled in slices."""

    def __init__(self, **settings: str) -> None:
        super().__init__(short_cuts=True, **settings)
        self.node.fetch_sessions.partitions_at_once = -1
        self.make(b"old")

    def make(self, value: bytes) -> None:
        """Create the topic, with one record in each partition."""
        self.create("t", PARTITIONS)
        self.settle_metadata()
        for index in range(PARTITIONS):
            self.append("t", index, 1, value=value)
        self.flush()
        self.topic_id = self.node.metadata.topic_id("t")

    def make_again(self) -> None:
        """Replace the topic by another one of its name."""
        self.delete("t")
        self.settle_metadata()
        self.make(b"new")

    def settle_metadata(self) -> None:
        while self.asked:
            self.flush()

    def request(self, version: int, *offsets: tuple[int, int], **fields: Any) -> FetchRequest:
        """A fetch of partitions from offsets on."""
        asked = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
            for index, offset in offsets
        ]
        topic = FetchTopic(topic="t", topic_id=self.topic_id, partitions=asked)
        fields = {"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 100_000} | fields
        return FetchRequest(topics=[topic] if asked else [], **fields)

    def everything(self, version: int, offset: int = 0, **fields: Any) -> FetchRequest:
        return self.request(version, *((n, offset) for n in range(PARTITIONS)), **fields)

    def turns(self, at_most: int = 10**6) -> int:
        """Let the broker go on. Returns the number of turns that it took."""
        for number in range(at_most):
            if not self.timers.turn():
                return number
        return at_most

    def begin_session(self, version: int) -> int:
        """A session whose client has read everything."""
        number = self.ask(self.everything(version, session_epoch=0), version)
        self.turns()
        session_id = self.answer(number, version).session_id
        wanted = self.everything(version, 1, session_id=session_id, session_epoch=1, max_wait_ms=0)
        self.ask(wanted, version)
        self.turns()
        return session_id

    def answer(self, number: int, version: int) -> FetchResponse:
        told = self.answers[number]
        assert isinstance(told, bytes), told
        response = frames.decode_response(APIS[ApiKey.FETCH], version, memoryview(told)[4:])
        assert isinstance(response, FetchResponse)
        return response

    def check(self) -> None:
        """Nothing waits, and the sessions are in order."""
        self.turns()
        self.advance(WAIT_MS)
        self.turns()
        assert not self.held and not self.node.parked_fetches
        assert not self.node.slices.waiting
        assert not any("failed in the broker" in str(told) for told in self.answers.values())
        self.check_up_to_date()
        sessions = self.node.fetch_sessions
        assert sessions._partitions == sum(len(s.partitions) for s in sessions.by_id.values())
        assert not any(session.busy for session in sessions.by_id.values())
        assert not any(session.waiting for session in sessions.by_id.values())
        for _, _, partition in self.node.replicas.partitions():
            assert not partition.data_waiters


def records(response: FetchResponse) -> dict[tuple[str | bytes, int], bytes]:
    """The records of each partition, by topic and index."""
    return {
        (topic.topic or topic.topic_id, one.partition_index): bytes(one.records or b"")
        for topic in response.responses
        for one in topic.partitions
        if one.records
    }


Begin = Callable[[World], int]


def at_each_pause(begin: Begin, **settings: str) -> Iterator[tuple[World, int]]:
    """For each pause of the fetch that `begin` sends: a world in which it pauses there, and the
    number of the fetch."""
    pauses = 0
    while True:
        world = World(**settings)
        number = begin(world)
        if world.turns(pauses) < pauses:
            assert pauses > 2 * PARTITIONS
            return
        yield world, number
        pauses += 1


def whole(version: int) -> Begin:
    """A fetch that begins a session."""
    return lambda world: world.ask(world.everything(version, session_epoch=0), version)


def of_session(version: int, *, topics: bool = False) -> Begin:
    """A fetch of a session that has read everything; `topics`: one that names the partitions again.
    All are looked up, because a topic was made."""

    def begin(world: World) -> int:
        session_id = world.begin_session(version)
        world.create("other")
        world.settle_metadata()
        fields = {"session_id": session_id, "session_epoch": 2}
        request = world.request(version, **fields)
        if topics:
            request = world.everything(version, 1, **fields)
            request.forgotten_topics_data = [
                ForgottenTopic(topic="t", topic_id=world.topic_id, partitions=[3])
            ]
        return world.ask(request, version)

    return begin


FETCHES: dict[str, Callable[[int], Begin]] = {
    "whole": whole,
    "session": of_session,
    "renewed": lambda version: of_session(version, topics=True),
}


@pytest.mark.parametrize("kind", FETCHES)
@pytest.mark.parametrize("version", [BY_ID, BY_NAME])
def test_f14_a_topic_that_is_made_again_at_a_pause(kind: str, version: int) -> None:
    for world, number in at_each_pause(FETCHES[kind](version)):
        old_id = world.topic_id
        world.make_again()
        world.turns()
        world.advance(WAIT_MS)
        world.turns()
        response = world.answer(number, version)
        if version == BY_ID:
            assert not any(b"new" in each for each in records(response).values())
        # The session finds out, and a client that knows the new topic gets its records.
        if response.session_id:
            epoch = 1 if kind == "whole" else 3
            following = world.request(
                version, session_id=response.session_id, session_epoch=epoch, max_wait_ms=0
            )
            again = world.ask(following, version)
            world.turns()
            for topic in world.answer(again, version).responses:
                if version == BY_ID and topic.topic_id == old_id:
                    assert all(one.error_code for one in topic.partitions)
        new = world.ask(world.everything(version, session_epoch=0), version)
        world.turns()
        found = records(world.answer(new, version))
        assert len(found) == PARTITIONS and all(b"new" in each for each in found.values())
        world.check()


@pytest.mark.parametrize("kind", FETCHES)
def test_n10_a_connection_that_is_closed_at_a_pause(kind: str) -> None:
    for world, number in at_each_pause(FETCHES[kind](BY_ID)):
        world.abandon(number)
        assert not any(session.busy for session in world.node.fetch_sessions.by_id.values())
        world.turns()
        for _, _, partition in world.node.replicas.partitions():
            assert not partition.data_waiters
        other = world.ask(world.everything(BY_ID, session_epoch=0), BY_ID, 2)
        world.turns()
        assert len(records(world.answer(other, BY_ID))) == PARTITIONS
        world.check()


@pytest.mark.parametrize("kind", FETCHES)
def test_f26_a_session_that_is_evicted_at_a_pause(kind: str) -> None:
    settings = {"max_incremental_fetch_session_cache_slots": "1"}
    for world, number in at_each_pause(FETCHES[kind](BY_ID), **settings):
        world.clock.now_ms += 200_000
        other = world.ask(world.everything(BY_ID, session_epoch=0), BY_ID, 2)
        world.turns()
        world.advance(WAIT_MS)
        world.turns()
        assert not world.answer(other, BY_ID).error_code
        response = world.answer(number, BY_ID)
        assert response.error_code in (ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        world.check()


@pytest.mark.parametrize("kind", FETCHES)
def test_f21_a_session_that_its_client_ends_at_a_pause(kind: str) -> None:
    for world, number in at_each_pause(FETCHES[kind](BY_ID)):
        for session in list(world.node.fetch_sessions.by_id.values()):
            ending = world.request(BY_ID, session_id=session.id, session_epoch=-1, max_wait_ms=0)
            world.ask(ending, BY_ID, 2)
        world.turns()
        world.advance(WAIT_MS)
        world.turns()
        assert world.answer(number, BY_ID).error_code in (
            ErrorCode.NONE,
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        )
        world.check()


@pytest.mark.parametrize("kind", ["session", "renewed"])
@pytest.mark.parametrize("index", [0, 2])
def test_f03_records_that_arrive_at_a_pause_end_the_wait(kind: str, index: int) -> None:
    for world, number in at_each_pause(FETCHES[kind](BY_ID)):
        world.append("t", index, 1, value=b"more")
        world.flush()
        world.turns()
        found = records(world.answer(number, BY_ID))
        assert found.keys() == {(world.topic_id, index)}
        world.check()


@pytest.mark.parametrize("kind", ["session", "renewed"])
def test_f20_the_next_fetch_of_a_session_at_a_pause_comes_after_it(kind: str) -> None:
    for world, number in at_each_pause(FETCHES[kind](BY_ID)):
        (session,) = world.node.fetch_sessions.by_id.values()
        if session.epoch != 3:
            continue
        following = world.request(BY_ID, session_id=session.id, session_epoch=3)
        second = world.ask(following, BY_ID, 2)
        world.turns()
        assert world.answer(number, BY_ID).error_code == ErrorCode.NONE
        world.append("t", 1, 1, value=b"more")
        world.flush()
        world.turns()
        assert records(world.answer(second, BY_ID)).keys() == {(world.topic_id, 1)}
        world.check()


class _Denies(AllowEverything):
    """An authorizer without any rights on topics."""

    def allows(self, context: RequestContext, operation: Operation, resource: Resource) -> bool:
        return False


def test_a09_a_topic_that_is_made_at_a_pause_is_not_read_without_the_right() -> None:
    new_id = bytes(range(16))

    def begin(world: World) -> int:
        world.node.authorizer = _Denies()
        world.topic_id = new_id
        return world.ask(world.everything(BY_ID, session_epoch=0, max_wait_ms=0), BY_ID)

    for world, number in at_each_pause(begin):
        world.node.metadata.new_topic_id = lambda: new_id  # type: ignore[method-assign]
        world.make_again()
        world.turns()
        assert not records(world.answer(number, BY_ID))
        world.check()


def test_f01_the_bytes_of_many_partitions_are_counted_one_by_one() -> None:
    """A fetch waits until its partitions have enough together, however they move."""
    world = World()
    request = world.everything(BY_NAME, 1, min_bytes=400)
    number = world.ask(request, BY_NAME)
    world.turns()
    for index in (0, 1, 2):
        assert number in world.held
        world.append("t", index, 1, value=bytes(100))
        world.flush()
        world.turns()
    assert len(records(world.answer(number, BY_NAME))) == 3
    world.check()
