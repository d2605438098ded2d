"""ShareFetch and ShareAcknowledge: checks, answers, sessions, quotas, restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from acl_rules import Rule, RuleList
from handler_calls import received, send
from logs import append, make_batch
from node_world import NodeWorld, SoonScheduler
from odradek_broker import slices
from odradek_broker.deferred import Deferred
from odradek_broker.handlers import share_fetch
from odradek_broker.request import Peer
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.share_state import ShareKey
from odradek_protocol.common_structs import AcknowledgementBatch, PartitionsOfTopicId
from odradek_protocol.common_structs import AcknowledgementBatch as Acknowledged
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from odradek_testkit.simulation.clock import StoppedTimer

E = ErrorCode
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NO_SUCH_ID = b"\1" * 16
Acks = Sequence[tuple[int, int, list[int]]]


class Later(SoonScheduler):
    """A scheduler whose delayed timers fire only in `ring`."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[Any] = []

    def call_later(self, delay_ms: float, callback: Any, /) -> StoppedTimer:
        if delay_ms > 0:
            self.later.append(callback)
        return super().call_later(delay_ms, callback)

    def ring(self) -> None:
        later, self.later = self.later, []
        for callback in later:
            callback()


class World(NodeWorld):
    """A node with share groups, and a topic of two partitions whose states are initialized."""

    def __init__(self, **settings: str) -> None:
        self.scheduler = self.later = Later()
        super().__init__(**settings)
        self.create("t", 2)
        self.settle()
        self.begin()
        for index in range(2):
            self.node.share_state.initialize(ShareKey("g", self.topic_id, index), 1, 0)
            self.settle()

    def begin(self) -> None:
        """Enable share groups. A restart disables them again."""
        self.node.metadata.feature_levels["share.version"] = 1

    @property
    def topic_id(self) -> bytes:
        return self.node.metadata.topic_id("t")

    def settle(self) -> None:
        """Run flushes and scheduled calls until nothing is left."""
        for _ in range(10):
            self.flush()
            self.later.run()

    def ask(self, request: Message, version: int = 2) -> Any:
        """The answer to a request, after all its writes are durable."""
        answer = send(self.node, request, version)
        self.settle()
        return received(request, version, answer)

    def fetching(
        self, epoch: int, partitions: Mapping[int, Acks] | None = None, **more: Any
    ) -> Any:
        named = {0: ()} if partitions is None else partitions
        topics = [
            ShareFetchTopic(
                topic_id=more.pop("topic_id", self.topic_id),
                partitions=[
                    ShareFetchPartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=types
                            )
                            for first, last, types in acks
                        ],
                    )
                    for index, acks in named.items()
                ],
            )
        ]
        given = {
            "group_id": "g",
            "member_id": "m",
            "share_session_epoch": epoch,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "topics": topics if named else [],
            **more,
        }
        return ShareFetchRequest(**given)

    def fetch(
        self,
        epoch: int,
        partitions: Mapping[int, Acks] | None = None,
        version: int = 2,
        **more: Any,
    ) -> Any:
        return self.ask(self.fetching(epoch, partitions, **more), version)

    def acknowledging(self, epoch: int, *acks: tuple[int, int, list[int]], **more: Any) -> Any:
        given = {
            "group_id": "g",
            "member_id": "m",
            "share_session_epoch": epoch,
            "topics": [
                AcknowledgeTopic(
                    topic_id=more.pop("topic_id", self.topic_id),
                    partitions=[
                        AcknowledgePartition(
                            partition_index=more.pop("partition", 0),
                            acknowledgement_batches=[
                                Acknowledged(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in acks
                            ],
                        )
                    ],
                )
            ],
            **more,
        }
        return ShareAcknowledgeRequest(**given)

    def acknowledge(
        self, epoch: int, *acks: tuple[int, int, list[int]], version: int = 2, **more: Any
    ) -> Any:
        return self.ask(self.acknowledging(epoch, *acks, **more), version)


def acquired(answer: Any) -> list[tuple[int, int, int, int]]:
    """(partition, first offset, last offset, delivery count) of the acquired records in an
    answer."""
    assert answer.error_code == 0
    return [
        (each.partition_index, got.first_offset, got.last_offset, got.delivery_count)
        for topic in answer.responses
        for each in topic.partitions
        for got in each.acquired_records
    ]


def errors(answer: Any) -> list[tuple[int, ErrorCode, ErrorCode]]:
    """(partition, error, error of its acknowledgements)."""
    assert answer.error_code == 0
    return sorted(
        (
            each.partition_index,
            ErrorCode(each.error_code),
            ErrorCode(getattr(each, "acknowledge_error_code", 0)),
        )
        for topic in answer.responses
        for each in topic.partitions
    )


def test_h152_h182_a_share_fetch_acquires_records_and_answers_them() -> None:
    world = World()
    world.produce("t", 3)
    world.produce("t", 2, partition=1)
    answer = world.fetch(0, {0: (), 1: ()})
    assert acquired(answer) == [(0, 0, 2, 1), (1, 0, 1, 1)]
    counts = [
        [header.record_count for _, header in iter_batches(bytes(each.records))]
        for topic in answer.responses
        for each in topic.partitions
    ]
    assert counts == [[3], [2]]
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert world.fetch(1, {}).responses == []


def test_h172_an_acknowledgement_is_answered_when_it_is_durable() -> None:
    world = World()
    world.produce("t", 3)
    world.fetch(0)
    request = world.acknowledging(1, (0, 2, [ACCEPT]))
    answer = send(world.node, request, 2)
    assert isinstance(answer, Deferred) and not answer.done
    world.settle()
    told = received(request, 2, answer)
    assert errors(told) == [(0, E.NONE, E.NONE)]
    assert told.acquisition_lock_timeout_ms == 30_000


def test_h151_h172_a_power_cut_keeps_answered_acknowledgements() -> None:
    world = World()
    world.produce("t", 3)
    world.produce("t", 3)
    world.fetch(0)
    world.acknowledge(1, (0, 1, [ACCEPT]), (2, 2, [RELEASE]))
    send(world.node, world.acknowledging(2, (3, 5, [ACCEPT])), 2)
    world.crash(keep_page_cache=False)
    world.begin()
    assert world.fetch(5).error_code == E.SHARE_SESSION_NOT_FOUND
    assert acquired(world.fetch(0)) == [(0, 2, 2, 2), (0, 3, 5, 1)]


def test_h173_a_waiting_share_fetch_is_answered_after_an_append() -> None:
    world = World()
    request = world.fetching(0, max_wait_ms=500)
    answer = send(world.node, request, 2)
    world.settle()
    assert not answer.done
    world.produce("t", 3)
    assert acquired(received(request, 2, answer)) == [(0, 0, 2, 1)]


def test_h183_a_fetch_over_the_limit_of_sessions_is_refused_after_a_delay() -> None:
    world = World(group_share_max_share_sessions="1")
    world.fetch(0)
    request = world.fetching(0, member_id="n", max_wait_ms=500)
    answer = send(world.node, request, 2)
    assert not answer.done
    world.later.ring()
    assert received(request, 2, answer).error_code == E.SHARE_SESSION_LIMIT_REACHED


def test_h184_a_closed_connection_releases_its_records() -> None:
    world = World()
    world.produce("t", 3)
    world.fetch(0)
    world.node.connection_closed(Peer("127.0.0.1", 1))
    world.settle()
    assert acquired(world.fetch(0, member_id="n")) == [(0, 0, 2, 2)]


def test_h186_the_final_epoch_acknowledges_and_releases_records() -> None:
    world = World()
    world.produce("t", 3)
    world.produce("t", 3)
    world.fetch(0)
    final = world.fetch(-1, {0: [(0, 3, [ACCEPT])]})
    assert errors(final) == [(0, E.NONE, E.NONE)]
    assert acquired(world.fetch(0, member_id="n")) == [(0, 4, 5, 2)]
    assert world.fetch(1, {}).error_code == E.SHARE_SESSION_NOT_FOUND
    assert errors(world.acknowledge(-1, (4, 4, [ACCEPT]), member_id="n")) == [(0, E.NONE, E.NONE)]
    assert acquired(world.fetch(0)) == [(0, 5, 5, 3)]


def test_h187_requests_without_valid_group_or_member_are_refused() -> None:
    world = World()
    for make in (world.fetch, world.acknowledge):
        assert make(0, group_id=None).error_code == E.INVALID_REQUEST
        for member_id in (None, "", "x" * 37):
            assert make(0, member_id=member_id).error_code == E.INVALID_REQUEST
    assert world.fetch(0, member_id="x" * 36).error_code == 0
    world.node.metadata.feature_levels["share.version"] = 0
    assert world.fetch(1).error_code == E.UNSUPPORTED_VERSION
    assert world.acknowledge(1).error_code == E.UNSUPPORTED_VERSION
    world.begin()
    assert world.fetch(1, member_id="x" * 36).error_code == E.SHARE_SESSION_NOT_FOUND


def test_h187_h188_share_requests_need_read_on_group_and_topic() -> None:
    world = World()
    world.produce("t", 3)
    rules = world.node.authorizer = RuleList()
    assert world.fetch(0).error_code == E.GROUP_AUTHORIZATION_FAILED
    assert world.acknowledge(1).error_code == E.GROUP_AUTHORIZATION_FAILED
    rules.rules.append(Rule(Operation.READ, ResourceType.GROUP, "g"))
    assert errors(world.fetch(0)) == [(0, E.TOPIC_AUTHORIZATION_FAILED, E.NONE)]
    assert errors(world.acknowledge(1, (0, 2, [ACCEPT]))) == [
        (0, E.TOPIC_AUTHORIZATION_FAILED, E.NONE)
    ]
    rules.rules.append(Rule(Operation.READ, ResourceType.TOPIC, "t"))
    assert acquired(world.fetch(2, {})) == [(0, 0, 2, 1)]


def test_h181_unknown_topics_and_partitions_are_refused() -> None:
    world = World()
    assert errors(world.fetch(0, {7: ()})) == [(7, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE)]
    forgotten = [PartitionsOfTopicId(topic_id=world.topic_id, partitions=[7])]
    answer = world.fetch(1, {3: ()}, topic_id=NO_SUCH_ID, forgotten_topics_data=forgotten)
    assert errors(answer) == [(3, E.UNKNOWN_TOPIC_ID, E.NONE)]
    acks = [(0, 2, [ACCEPT])]
    assert errors(world.acknowledge(2, *acks, partition=7)) == [
        (7, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE)
    ]
    assert errors(world.acknowledge(3, *acks, topic_id=NO_SUCH_ID)) == [
        (0, E.UNKNOWN_TOPIC_ID, E.NONE)
    ]


def test_h188_invalid_acknowledgement_batches_are_refused() -> None:
    world = World()
    world.produce("t", 5)
    world.fetch(0)
    epoch = 1
    for acks, version in (
        ([(2, 1, [ACCEPT])], 2),
        ([(0, 4, [])], 2),
        ([(0, 4, [ACCEPT, ACCEPT])], 2),
        ([(0, 4, [5])], 2),
        ([(0, 4, [-1])], 2),
        ([(3, 4, [ACCEPT]), (0, 2, [ACCEPT])], 2),
        ([(0, 4, [RENEW])], 2),
        ([(0, 4, [RENEW])], 1),
    ):
        answer = world.acknowledge(epoch, *acks, version=version)
        assert errors(answer) == [(0, E.INVALID_REQUEST, E.NONE)], acks
        epoch += 1
    assert errors(world.acknowledge(epoch, (0, 4, [ACCEPT]))) == [(0, E.NONE, E.NONE)]


def test_h188_acknowledgement_errors_are_separate_from_fetch_errors() -> None:
    world = World()
    world.produce("t", 5)
    world.fetch(0)
    world.produce("t", 2)
    answer = world.fetch(1, {0: [(0, 9, [ACCEPT])], 1: ()})
    assert errors(answer) == [(0, E.NONE, E.INVALID_REQUEST), (1, E.NONE, E.NONE)]
    assert acquired(answer) == [(0, 5, 6, 1)]
    (told,) = {each.acknowledge_error_message for each in answer.responses[0].partitions} - {None}
    assert told == "Batch record not found. The last offset in request is past acquired records."


def test_h189_a_fetch_that_renews_locks_answers_no_records() -> None:
    world = World()
    world.produce("t", 5)
    world.fetch(0)
    world.produce("t", 2)
    renewed: dict[int, Acks] = {0: [(0, 4, [RENEW])]}
    assert world.fetch(1, renewed, is_renew_ack=True).error_code == E.INVALID_REQUEST
    zeros = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    answer = world.fetch(1, renewed, is_renew_ack=True, **zeros)
    assert (errors(answer), acquired(answer)) == ([(0, E.NONE, E.NONE)], [])
    assert acquired(world.fetch(2, {})) == [(0, 5, 6, 1)]


def test_h190_a_share_fetch_over_the_quota_answers_no_records() -> None:
    world = World()
    world.produce("t", 5)
    world.node.quotas.update((("client-id", "client"),), "consumer_byte_rate", 10.0)
    assert acquired(world.fetch(0)) == []


def test_h191_a_fenced_write_names_the_leader() -> None:
    world = World()
    world.produce("t", 5)
    world.fetch(0)
    world.node.set_advertised({"": ("here", 9092)})
    world.node.share_state.initialize(ShareKey("g", world.topic_id, 0), 2, 0)
    world.settle()
    answer = world.acknowledge(1, (0, 4, [ACCEPT]))
    ((partition,),) = [topic.partitions for topic in answer.responses]
    assert partition.error_code == E.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader.leader_id == world.node.node_id
    assert [(each.host, each.port) for each in answer.node_endpoints] == [("here", 9092)]


def test_h181_a_session_does_not_read_a_recreated_topic() -> None:
    world = World()
    world.produce("t", 10)
    assert world.fetch(0).responses[0].partitions[0].error_code == E.NONE
    world.delete("t")
    world.settle()
    (answer,) = world.fetch(1, {}).responses
    assert answer.partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    world.create("t", 2)
    world.settle()
    (answer,) = world.fetch(2, {}).responses
    assert answer.partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert len(world.node.share_partitions) == 0


def test_h171_an_altered_start_offset_applies_to_open_sessions() -> None:
    world = World()
    world.produce("t", 10)
    assert acquired(world.fetch(0)) == [(0, 0, 9, 1)]
    key = ShareKey("g", world.topic_id, 0)
    world.node.share_state.initialize_all(2, {key: 7})
    world.settle()
    assert acquired(world.fetch(1, {})) == [(0, 7, 9, 1)]


def test_h171_open_sessions_begin_again_with_a_recreated_group() -> None:
    world = World()
    world.produce("t", 10)
    world.fetch(0)
    world.acknowledge(1, (0, 9, [ACCEPT]))
    key = ShareKey("g", world.topic_id, 0)
    world.node.share_state.delete_all([key])
    world.settle()
    world.node.share_state.initialize_all(1, {key: 0})
    world.settle()
    assert acquired(world.fetch(2, {})) == [(0, 0, 9, 1)]


# --- In slices ---


class SlicedWorld(World):
    """A node that pauses a ShareFetch at every place. Each partition of "t" has a record."""

    def __init__(self) -> None:
        super().__init__()
        self.fill(b"old")

    def fill(self, value: bytes) -> None:
        for index in range(2):
            partition = self.node.partition("t", index)
            assert partition is not None
            append(partition.log, make_batch(1, value=value))
            self.asked[partition.log.durability] = None
        self.settle()

    def make_again(self) -> None:
        self.delete("t")
        self.settle()
        self.create("t", 2)
        self.settle()
        self.fill(b"new")

    def check(self) -> None:
        """Nothing waits, and no partition refers to a fetch."""
        self.settle()
        assert not self.node.parked_fetches and not self.node.slices.waiting
        for _, _, partition in self.node.replicas.partitions():
            assert not partition.data_waiters


@pytest.fixture
def pause_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_fetch, "PARTITIONS_AT_ONCE", -1)
    for name in ("TURN_STEPS", "SLICE_STEPS", "LATE_STEPS"):
        monkeypatch.setattr(slices, name, 1)
    monkeypatch.setattr(slices.in_pieces, "SIZE", 1)


def at_each_pause(wait_ms: int) -> Iterator[tuple[SlicedWorld, ShareFetchRequest, Any]]:
    """For each pause of a ShareFetch of both partitions: a world in which it pauses there, the
    request, and its answer. With `wait_ms`, nothing can be acquired at first."""
    pauses = 0
    while True:
        world = SlicedWorld()
        if wait_ms:
            world.fetch(0, {0: (), 1: ()}, member_id="other", max_bytes=10_000, max_wait_ms=0)
        fields = {"max_bytes": 10_000, "max_wait_ms": wait_ms}
        request = world.fetching(0, {0: (), 1: ()}, **fields)
        answer = send(world.node, request, 2)
        assert isinstance(answer, Deferred)
        if not all(world.later.turn() for _ in range(pauses)):
            assert pauses > 8
            return
        yield world, request, answer
        pauses += 1


def contents(answer: Any) -> bytes:
    assert answer.error_code == 0
    return b"".join(bytes(each.records) for topic in answer.responses for each in topic.partitions)


@pytest.mark.usefixtures("pause_everywhere")
@pytest.mark.parametrize("wait_ms", [0, 500])
def test_h181_a_topic_that_is_made_again_at_a_pause_of_a_share_fetch(wait_ms: int) -> None:
    for world, request, answer in at_each_pause(wait_ms):
        world.make_again()
        world.clock.now_ms += wait_ms
        world.later.ring()
        world.settle()
        assert b"new" not in contents(received(request, 2, answer))
        world.check()


def test_h184_a_session_begins_when_the_last_one_of_its_member_has_given_back_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.produce("t", 10)
    last_one: Deferred[None] = Deferred()
    monkeypatch.setattr(
        world.node.share_sessions, "leaving", lambda *_: None if last_one.done else last_one
    )
    request = world.fetching(0)
    answer = send(world.node, request, 2)
    world.settle()
    assert not answer.done and not len(world.node.share_sessions)
    last_one.resolve(None)
    world.settle()
    assert received(request, 2, answer).error_code == E.NONE and len(world.node.share_sessions) == 1


@pytest.mark.usefixtures("pause_everywhere")
@pytest.mark.parametrize("wait_ms", [0, 500])
def test_h184_a_connection_that_is_closed_at_a_pause_of_a_share_fetch_keeps_no_records(
    wait_ms: int,
) -> None:
    for world, _, answer in at_each_pause(wait_ms):
        answer.abandon()
        for member in ("m", "other"):
            world.node.share_sessions.close("g", member)
        world.check()
        found = world.fetch(0, {0: (), 1: ()}, member_id="next", max_bytes=10_000)
        assert [(index, first) for index, first, _, _ in acquired(found)] == [(0, 0), (1, 0)]
        world.check()


@pytest.mark.usefixtures("pause_everywhere")
def test_h173_records_that_arrive_at_a_pause_end_the_wait_of_a_share_fetch() -> None:
    for world, request, answer in at_each_pause(500):
        world.fill(b"more")
        found = received(request, 2, answer)
        assert b"more" in contents(found)
        assert acquired(found)[0][1] == 1
        world.check()
