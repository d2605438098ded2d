"""The short cuts of Fetch do not change answers: a second broker without short cuts reads all
partitions each time. Both brokers give the same answers, byte by byte, and have the same sessions
and counters (D6, F-01 to F-28)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import budget
from fetch_worlds import FetchWorld
from odradek_broker.quotas.client_quotas import QuotaKey, quota_entity
from odradek_protocol import frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

TOPICS = ("a", "bb")
PARTITIONS = 3
VERSIONS = range(4, 19)
_API = APIS[ApiKey.FETCH]
CLIENT = quota_entity([("client-id", "client-1")])


class Pair:
    """Both brokers. Sessions, epochs and ends are taken from the broker without short cuts.
    `in_slices`: the other broker handles all fetches in slices."""

    def __init__(self, *, in_slices: bool = False, **settings: str) -> None:
        self.both = [FetchWorld(short_cuts=short, **settings) for short in (True, False)]
        self.in_slices = in_slices
        if in_slices:
            self.both[0].node.fetch_sessions.partitions_at_once = -1
        self.do(self._create_topics)

    @staticmethod
    def _create_topics(world: FetchWorld) -> None:
        for name in TOPICS:
            world.create(name, PARTITIONS)
        world.settle_metadata()

    def do(self, what: Callable[[FetchWorld], Any]) -> Any:
        """Call `what` with each broker; returns the result of the broker without short cuts."""
        for world in self.both:
            given = what(world)
        return given

    def check(self) -> None:
        fast, plain = (world.state() for world in self.both)
        assert fast == plain
        self.both[0].check_up_to_date()

    def sessions(self) -> list[tuple[int, int, bool]]:
        """(id, epoch, True if it uses topic ids) of each session."""
        found = self.both[1].node.fetch_sessions.by_id.values()
        return [(each.id, each.epoch, each.uses_topic_ids) for each in found]

    def topic_id(self, name: str) -> bytes:
        found: bytes = self.both[1].node.metadata.topic_id(name)
        return found

    def topic_name(self, topic_id: bytes) -> str:
        return self.both[1].node.metadata.topic_name(topic_id) or ""

    def epoch(self, name: str, partition: int) -> int:
        found = self.both[1].node.partition(name, partition)
        return -1 if found is None else found.leader_epoch

    def end(self, name: str, partition: int) -> int:
        found = self.both[1].node.partition(name, partition)
        return 0 if found is None else found.log.log_end_offset


class Consumer:
    """A client that fetches as usual: always from the offset after the records that it received."""

    def __init__(self, pair: Pair, rng: random.Random, connection: int) -> None:
        self.pair, self.rng, self.connection = pair, rng, connection
        self.version = rng.choice(VERSIONS)
        self.isolation_level = rng.choice((0, 1))
        self.has_session = self.version >= 7 and rng.random() < 0.7
        count = rng.randrange(1, 6) if self.has_session else 1
        every = [(name, index) for name in TOPICS for index in range(PARTITIONS)]
        self.offsets = {where: pair.end(*where) for where in rng.sample(every, count)}
        self.waits_for: int | None = None
        self.begin()

    def begin(self) -> None:
        self.session_id, self.epoch = 0, 0 if self.has_session else -1
        self.asks_for = dict.fromkeys(self.offsets)

    def step(self) -> None:
        """Take the answer, if it has arrived, and send the next request."""
        if self.waits_for is not None:
            answer = self.pair.both[1].answers.get(self.waits_for)
            if answer is None:
                return
            assert isinstance(answer, bytes), answer
            self.waits_for = None
            self.take(frames.decode_response(_API, self.version, memoryview(answer)[4:]))
        request = FetchRequest(
            max_wait_ms=self.rng.choice((0, 500, 500)),
            min_bytes=1 if self.pair.in_slices or self.rng.random() < 0.9 else 500,
            max_bytes=self.rng.choice((1 << 20, 3000)),
            isolation_level=self.isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[self.topic(*where) for where in self.asks_for],
        )
        self.asks_for = {} if self.has_session else dict.fromkeys(self.offsets)
        if self.epoch >= 0:
            self.epoch += 1
        self.waits_for = self.pair.do(
            lambda world: world.ask(request, self.version, self.connection)
        )

    def topic(self, name: str, index: int) -> FetchTopic:
        asked = FetchPartition(
            partition=index,
            fetch_offset=self.offsets[name, index],
            partition_max_bytes=self.rng.choice((6000, 6000, 50)),
        )
        if self.version >= 12 and self.rng.random() < 0.8:
            asked.last_fetched_epoch = self.pair.epoch(name, index)
        return FetchTopic(topic=name, topic_id=self.pair.topic_id(name), partitions=[asked])

    def take(self, response: Any) -> None:
        if response.error_code or (self.has_session and not response.session_id):
            self.begin()
            return
        self.session_id = response.session_id
        for topic in response.responses:
            name = topic.topic or self.pair.topic_name(topic.topic_id)
            for one in topic.partitions:
                where = name, one.partition_index
                if where not in self.offsets:
                    continue
                if one.error_code or one.diverging_epoch.epoch >= 0:
                    self.offsets[where] = self.pair.end(*where)
                for _, header in iter_batches(one.records or b""):
                    self.offsets[where] = header.next_offset
                self.asks_for[where] = None


def a_request(pair: Pair, rng: random.Random) -> tuple[FetchRequest, int]:
    """A random Fetch request, usually like that of a consumer at the end of a log, but sometimes
    unusual."""
    version = rng.choice(VERSIONS) if rng.random() < 0.5 else rng.choice((11, 12, 13, 16))
    usual = rng.random() < 0.7
    request = FetchRequest(
        max_wait_ms=rng.choice((0, 100, 500)),
        min_bytes=1 if usual else rng.choice((-1, 0, 1, 300, 5000)),
        max_bytes=1 << 20 if usual else rng.choice((-1, 0, 1, 200, 1 << 20)),
        isolation_level=rng.choice((0, 1)) if rng.random() < 0.97 else 7,
    )
    sessions = [each for each in pair.sessions() if each[2] is (version >= 13)]
    in_session = sessions and rng.random() < 0.7
    if in_session:
        request.session_id, request.session_epoch, _ = rng.choice(sessions)
        if rng.random() < 0.05:
            request.session_epoch = rng.choice((0, -1, 1, 99, request.session_epoch + 1))
    elif version >= 7 and rng.random() < 0.7:
        request.session_epoch = 0
        if not usual:
            request.session_id = rng.randrange(4)
    count = rng.choice((0, 0, 1)) if in_session and usual else rng.choice((1, 1, 2, 6))
    for _ in range(count):
        request.topics.append(a_topic(pair, rng, version, usual=usual))
    if in_session and version >= 7 and rng.random() < 0.1:
        name = rng.choice(TOPICS)
        request.forgotten_topics_data.append(
            ForgottenTopic(
                topic=name, topic_id=pair.topic_id(name), partitions=[rng.randrange(PARTITIONS)]
            )
        )
    if rng.random() < 0.1:
        request.rack_id = "a rack"
    if rng.random() < 0.02:
        if version < 15:
            request.replica_id = 3
        else:
            request.replica_state = ReplicaState(replica_id=3)
    if rng.random() < 0.03 and version >= 12:
        request.cluster_id = "a cluster"
    return request, version


def a_topic(pair: Pair, rng: random.Random, version: int, *, usual: bool) -> FetchTopic:
    name = rng.choice(TOPICS) if usual or rng.random() < 0.9 else "absent"
    topic_id = pair.topic_id(name) if rng.random() < 0.95 else rng.randbytes(16)
    topic = FetchTopic(topic=name, topic_id=topic_id)
    for _ in range(1 if usual else rng.choice((1, 1, 2, 4))):
        index = rng.randrange(PARTITIONS) if usual else rng.randrange(-1, PARTITIONS + 1)
        end = pair.end(name, index)
        offset = end if rng.random() < 0.6 else rng.randrange(-1, end + 3)
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=-1 if usual else rng.choice((-1, 0, 1, 7)),
                fetch_offset=offset,
                last_fetched_epoch=-1
                if version < 12 or rng.random() < 0.8
                else rng.choice((0, 1, 7)),
                partition_max_bytes=1 << 20 if usual else rng.choice((-1, 0, 1, 150, 1 << 20)),
            )
        )
    return topic


def move(pair: Pair, rng: random.Random, open_sequences: dict[Any, int]) -> None:
    """Append to a random partition of both brokers, or end a transaction in that partition."""
    name, index = rng.choice(TOPICS), rng.randrange(PARTITIONS)
    chance = rng.random()
    producer = rng.randrange(1, 4)
    if chance < 0.6:
        count, value = rng.choice((1, 3)), bytes(rng.choice((1, 100, 1000, 5000)))
        pair.do(lambda world: world.append(name, index, count, value=value))
    elif chance < 0.8:
        key = name, index, producer
        sequence = open_sequences.get(key, 0)
        open_sequences[key] = sequence + 1
        pair.do(
            lambda world: world.append(
                name, index, 1, producer_id=producer, sequence=sequence, transactional=True
            )
        )
    else:
        commit = rng.random() < 0.5
        pair.do(lambda world: world.end_transaction(name, index, producer, commit=commit))
    if rng.random() < 0.9:
        pair.do(FetchWorld.flush)


def step(pair: Pair, rng: random.Random, open_sequences: dict[Any, int]) -> None:
    """Do one random action with both brokers."""
    name, index = rng.choice(TOPICS), rng.randrange(PARTITIONS)
    chance = rng.random()
    if chance < 0.6:
        request, version = a_request(pair, rng)
        connection = rng.randrange(3)
        number = pair.do(lambda world: world.ask(request, version, connection))
        assert number is not None
    elif chance < 0.75:
        request, version = a_request(pair, rng)
        frame = bytearray(b"".join(frames.encode_request(request, version, 7, "client-1"))[4:])
        if rng.random() < 0.5:
            frame[rng.randrange(10, len(frame))] = rng.choice((0, 1, 2, 127, 128, 255))
        else:
            del frame[rng.randrange(10, len(frame)) :]
        pair.do(lambda world: world.send(bytes(frame)))
    elif chance < 0.90:
        by_ms = rng.choice((1, 100, 500))
        pair.do(lambda world: world.advance(by_ms))
    elif chance < 0.93:
        offset = rng.randrange(6)
        pair.do(lambda world: world.delete_records(name, index, offset))
    elif chance < 0.94:
        waiting = sorted(pair.both[1].held)
        if waiting:
            number = rng.choice(waiting)
            pair.do(lambda world: world.abandon(number))
    elif chance < 0.95:
        pair.do(lambda world: world.fail_reads(name, index))
    elif chance < 0.955:
        pair.do(lambda world: world.files.heal())
    elif chance < 0.96:
        pair.do(lambda world: world.take_offline(name, index))
    elif chance < 0.97:
        pair.do(lambda world: world.raise_epoch(name))
    elif chance < 0.98:
        if name in pair.both[1].node.metadata.topics:
            pair.do(lambda world: world.delete(name))
        else:
            for key in [key for key in open_sequences if key[0] == name]:
                del open_sequences[key]
            pair.do(lambda world: world.create(name, PARTITIONS))
        if rng.random() < 0.8:
            pair.do(FetchWorld.settle_metadata)
    elif chance < 0.985:
        limit = rng.choice((None, 50, 5000))
        quota = rng.choice((QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE))
        pair.do(lambda world: world.node.quotas.update(CLIENT, quota, limit))
    elif chance < 0.99:
        pair.do(lambda world: world.advance(200_000))
    else:
        pair.do(lambda world: world.node.parked_fetches.answer_all())


def play(seed: int, steps: int, *, in_slices: bool = False, **broker_settings: str) -> Pair:
    pair, rng = Pair(in_slices=in_slices, **broker_settings), random.Random(seed)
    open_sequences: dict[Any, int] = {}
    consumers = [Consumer(pair, rng, 10 + n) for n in range(3)]
    # Some runs have no faults, others have many.
    trouble = rng.choice((0.0, 0.1, 1.0))
    for _ in range(steps):
        chance = rng.random()
        if chance < 0.5:
            rng.choice(consumers).step()
        elif chance < 0.75:
            move(pair, rng, open_sequences)
        elif rng.random() < trouble:
            step(pair, rng, open_sequences)
        else:
            pair.do(lambda world: world.advance(100))
        pair.check()
    return pair


@pytest.mark.parametrize("seed", range(12))
def test_f24_long_histories_have_the_same_answers_without_short_cuts(seed: int) -> None:
    play(seed, 400, max_incremental_fetch_session_cache_slots="4")


@pytest.mark.parametrize("seed", range(12))
def test_n57_fetches_in_slices_have_the_same_answers(seed: int) -> None:
    play(seed, 400, in_slices=True, max_incremental_fetch_session_cache_slots="4")


@given(st.integers(0, 2**32), st.sampled_from(["1", "3", "1000"]))
@settings(
    max_examples=budget.examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_f24_short_histories_have_the_same_answers_without_short_cuts(
    seed: int, slots: str
) -> None:
    play(seed, 60, max_incremental_fetch_session_cache_slots=slots)


def looked_at(world: FetchWorld, request: FetchRequest, partitions: list[Any]) -> tuple[int, int]:
    """Send a request. Returns the request's number, and the number of partitions that the broker
    looked up for it."""
    counted: list[int] = []
    found = world.node.partition

    def count(topic: str, index: int) -> Any:
        counted.append(index)
        return found(topic, index)

    world.node.partition = count
    number = world.ask(request, 12)
    world.node.partition = found
    for index in partitions:
        world.append("many", index, 1)
    world.node.partition = count
    world.flush()
    world.node.partition = found
    return number, len(counted)


def test_f24_a_fetch_of_a_session_reads_changed_partitions_only() -> None:
    world = FetchWorld(short_cuts=True)
    world.create("many", 100)
    world.settle_metadata()
    everything = [FetchPartition(partition=n, partition_max_bytes=1000) for n in range(100)]
    begin = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="many", partitions=everything)])
    world.ask(begin, 12)
    ((session_id, _, _),) = [
        (each.id, each.epoch, 0) for each in world.node.fetch_sessions.by_id.values()
    ]
    waiting = FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=500, min_bytes=1)
    _, first = looked_at(world, waiting, [7])
    assert first == 100 + 1, "all of them once, and the one that moved when it is read"
    _, second = looked_at(
        world,
        FetchRequest(
            session_id=session_id,
            session_epoch=2,
            max_wait_ms=500,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic="many",
                    partitions=[
                        FetchPartition(partition=7, fetch_offset=1, partition_max_bytes=1000)
                    ],
                )
            ],
        ),
        [3],
    )
    assert second == 2, "the one that was asked for, and the one that moved"
    assert not world.held


def test_f20_a_session_has_at_most_one_parked_fetch() -> None:
    """A second request of the session causes an answer to the parked request, and leaves the
    session unchanged."""
    world = FetchWorld(short_cuts=True)
    world.create("t", 1)
    world.settle_metadata()
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=99)])
    world.ask(FetchRequest(session_epoch=0, topics=[topic]), 12)
    (session,) = world.node.fetch_sessions.by_id.values()
    waiting = [
        world.ask(
            FetchRequest(session_id=session.id, session_epoch=n, max_wait_ms=500, min_bytes=1),
            12,
            n,
        )
        for n in (1, 2)
    ]
    assert list(world.held) == waiting[1:]
    assert world.answers[waiting[0]]
    closing = FetchRequest(session_id=session.id, session_epoch=-1, topics=[topic])
    world.ask(closing, 12)
    assert not world.held and not world.node.parked_fetches
    assert not world.node.partition("t", 0).up_to_date_sessions  # type: ignore[union-attr]


@pytest.mark.parametrize("waits", [False, True])
def test_f12_an_older_version_in_a_session_has_no_diverging_epochs(waits: bool) -> None:
    """Answers before version 12 have no field for a diverging epoch: to encode one would close the
    connection."""
    pair = Pair()
    pair.do(lambda world: world.append("a", 0, 3))
    pair.do(FetchWorld.settle_metadata)
    epoch = pair.epoch("a", 0)

    def fetch(session_epoch: int, version: int, offset: int | None = None) -> None:
        asked = FetchPartition(
            partition=0,
            fetch_offset=offset or 0,
            last_fetched_epoch=epoch if version >= 12 else -1,
            partition_max_bytes=1000,
        )
        request = FetchRequest(
            session_id=pair.sessions()[0][0] if session_epoch else 0,
            session_epoch=session_epoch,
            max_wait_ms=500 if waits and session_epoch else 0,
            min_bytes=1,
            topics=[] if offset is None else [FetchTopic(topic="a", partitions=[asked])],
        )
        pair.do(lambda world: world.ask(request, version))
        pair.check()

    def begin_epoch(world: FetchWorld) -> None:
        world.raise_epoch("a")
        partition = world.node.partition("a", 0)
        assert partition is not None
        now_ms = world.clock.wall_ms()
        partition.append(memoryview(simple_batch([(None, b"x")] * 2, now_ms)), now_ms)
        world.settle_metadata()

    fetch(0, 12, 3)
    pair.do(begin_epoch)
    fetch(1, 12, 5)  # the offset is after the end of the requested epoch: the logs diverge
    fetch(2, 11)
    pair.do(lambda world: world.advance(500))
    pair.check()
    for world in pair.both:
        assert not world.held
        assert isinstance(world.answers[2], bytes), world.answers[2]
    fetch(3, 12)
    assert all(isinstance(each, bytes) for world in pair.both for each in world.answers.values())
