"""Requests of one connection, as frames: every API and version, through the dispatcher of a whole
node.

An input is a conversation (`conversation.py`). The client can read each answer, and an answer that
was read is written again as the same bytes. A node gets many inputs and is then crashed: it must
start again with nothing to repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tests.adversity.fuzz.conversation import (
    Conversation,
    World,
    framed,
    play,
    request_frame,
    split,
)
from tests.adversity.fuzz.target import MEGABYTE, NeedsEarlierInputs, Target

import golden
from logs import make_batch
from odradek_protocol import codec
from odradek_protocol.keys import APIS, Api
from odradek_protocol.message import ArrayOf
from odradek_protocol.primitives import EncodeError, WireType
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest
from odradek_protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek_protocol.stored.assignment import ConsumerAssignment, encode_assignment
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription

_held: list[World] = []


def _check(data: bytes) -> None:
    """Check an input on a used node. A failing input is tried again on a new node."""
    world = _held.pop() if _held else World()
    data = b"".join(framed(step) for step in split(data))
    world.history += data
    world.inputs += 1
    try:
        play(world, data)
        if world.worn:
            world.check_restart()
            return
    except Exception:
        if world.history != data:
            check_alone(data)
            try:
                check_alone(world.history)
            except Exception as again:
                raise NeedsEarlierInputs(world.history, again) from again
        raise
    _held.append(world)


def check_alone(data: bytes) -> None:
    """Check an input on a new node, then crash the node and check that it starts again."""
    world = World()
    play(world, data)
    world.check_restart()


# --- Seeds ----------------------------------------------------------------------------------------

#: Values that the node knows, by field name.
_MEANINGFUL: dict[str, Any] = {
    "name": "t",
    "topic": "t",
    "topic_name": "t",
    "group_id": "g",
    "group": "g",
    "key": "g",
    "transactional_id": "x",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "partition_index": 0,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 4,
    "producer_id": 0,
    "producer_epoch": 0,
    "max_bytes": MEGABYTE,
    "partition_max_bytes": MEGABYTE,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "timeout_ms": 1000,
    "transaction_timeout_ms": 60_000,
    "acks": -1,
    "resource_type": 2,
    "resource_name": "t",
    "client_software_name": "fuzz",
    "client_software_version": "1",
    "metadata": encode_subscription(ConsumerSubscription(topics=["t"])),
    "assignment": encode_assignment(ConsumerAssignment()),
    "current_leader_epoch": -1,
    "replica_id": -1,
    "committed_leader_epoch": -1,
    "session_epoch": -1,
    "member_epoch": 0,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
    "server_assignor": "uniform",
    "states_filter": [],
    "types_filter": [],
    "generation_id": 1,
    "generation_id_or_member_epoch": -1,
}


def _plausible(cls: Any, version: int) -> Any:
    made = cls()
    for spec in cls.fields:
        if version not in spec.versions:
            continue
        if spec.name == "records":
            made.records = bytes(make_batch(1))
        elif isinstance(spec.type, ArrayOf) and spec.name not in _MEANINGFUL:
            element = spec.type.element
            if not isinstance(element, WireType):
                setattr(made, spec.name, [_plausible(element, version)])
            elif element.name == "string":
                setattr(made, spec.name, ["g" if "group" in spec.name else "t"])
            elif element.name.startswith("int"):
                setattr(made, spec.name, [0])
        elif not isinstance(spec.type, WireType | ArrayOf):
            setattr(made, spec.name, _plausible(spec.type, version))
        elif spec.name in _MEANINGFUL and isinstance(
            _MEANINGFUL[spec.name], type(spec.fresh_default()) | list
        ):
            setattr(made, spec.name, _MEANINGFUL[spec.name])
    return made


def _static_members(say: Conversation) -> None:
    """Static members with a rebalance timeout of 0 ms."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=_MEANINGFUL["metadata"])]
    ids: dict[str, str] = {}
    for instance in ("one", "two", "one"):
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=0,
            member_id=ids.get(instance, ""),
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=protocols,
        )
        answer = say.ask(join, 9)
        say.pass_time(1_000)
        ids[instance] = "" if answer is None else answer.member_id
    for generation in (1, 2):
        for instance, member_id in ids.items():
            sync = SyncGroupRequest(
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
            )
            say.ask(sync, 5)
    leaving = [MemberIdentity(member_id=ids["one"], group_instance_id="one")]
    say.ask(LeaveGroupRequest(group_id="g", members=leaving), 5)
    say.pass_time(10_000)
    say.pass_time(100_000)


def _consumer_group(say: Conversation) -> None:
    beat = ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        subscribed_topic_regex="t.*",
        topic_partitions=[],
    )
    answer = say.ask(beat, 1)
    say.pass_time(3_000)
    again = ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m", member_epoch=answer.member_epoch
    )
    say.ask(again, 1)
    other = ConsumerGroupHeartbeatRequest(**{**_fields(beat), "member_id": "n"})
    say.ask(other, 1)
    say.ask(again, 1)
    say.pass_time(60_000)
    say.ask(ConsumerGroupHeartbeatRequest(group_id="c", member_id="m", member_epoch=-1), 1)


def _fields(message: Any) -> dict[str, Any]:
    return {spec.name: getattr(message, spec.name) for spec in message.fields}


def _transactions(say: Conversation) -> None:
    """Two transactions: the first is committed, the second is aborted by its timeout."""
    for committed in (True, False):
        begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000)
        made = say.ask(begin, 4)
        who = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        parts = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=parts,
        )
        say.ask(add, 3)
        batch = make_batch(
            2, producer_id=made.producer_id, epoch=made.producer_epoch, transactional=True
        )
        records = [PartitionProduceData(index=0, records=batch)]
        topics = [TopicProduceData(name="t", partition_data=records)]
        produce = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=100, topic_data=topics)
        say.ask(produce, 9)
        say.ask(AddOffsetsToTxnRequest(transactional_id="x", group_id="g", **who), 3)
        offsets = [
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=2, committed_metadata=""
                    )
                ],
            )
        ]
        commit = TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=offsets, **who)
        say.ask(commit, 3)
        if committed:
            say.ask(EndTxnRequest(transactional_id="x", committed=True, **who), 3)
        else:
            say.pass_time(60_000)


def _frame(api: Api, version: int, body: bytes) -> bytes:
    return framed(request_frame(api, version, body))


def _seeds() -> Iterator[bytes]:
    everything = b""
    for api in APIS.values():
        for version in api.request.versions:
            with suppress(EncodeError):
                body = codec.encode_bytes(_plausible(api.request, version), version)
                yield _frame(api, version, body)
        everything += _frame(api, version, body)
    yield everything[:4096]
    yield framed(5000) + everything[:2000] + framed(60_000)
    for talk in (_static_members, _consumer_group, _transactions):
        conversation = Conversation()
        talk(conversation)
        yield conversation.data
    for api, line in golden.bodies():
        if line["direction"] == "request" and line["version"] in api.versions:
            yield _frame(api, line["version"], bytes.fromhex(line["hex"]))


TARGET = Target(_check, _seeds, memory_bytes=128 * MEGABYTE)
