"""The messages between members of a group, which the broker passes on: subscriptions, assignments,
user data (G-52, K-52).

The first byte chooses the kind of the message. A message that was read can be written again, and
the written bytes are read as the same message. If bit 7 of the first byte is set, the rest is the
subscriptions of several members, each prefixed by its length in two bytes: the leader assigns the
partitions to these members (K-50 to K-55).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from tests.adversity.fuzz.target import Broken, Target

from odradek_client.consumer.assignors import BUILT_IN
from odradek_client.consumer.group.classic_membership import LeaderAssignment
from odradek_client.structs import TopicPartition
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.join_group import JoinGroupResponseMember
from odradek_protocol.stored import assignment, control_marker, sticky_user_data, subscription
from odradek_protocol.stored.assignment import ConsumerAssignment
from odradek_protocol.stored.control_marker import ControlMarkerError
from odradek_protocol.stored.sticky_user_data import StickyUserData
from odradek_protocol.stored.subscription import ConsumerSubscription, OwnedPartitions

_MEMBERS_MAX = 20


def _comes_back(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        try:
            found = decode(data)
        except DecodeError:
            return
        again = encode(found)
        if encode(decode(again)) != again:
            raise Broken(f"{found} changes when it is written and read")

    return check


def _marker(data: bytes) -> None:
    key, value = data[:4] or None, data[4:] or None
    with suppress(ControlMarkerError):
        control_marker.decode_type(key)
        control_marker.decode_marker(key, value)


_KINDS = (
    _comes_back(subscription.decode_subscription, subscription.encode_subscription),
    _comes_back(assignment.decode_assignment, assignment.encode_assignment),
    _comes_back(sticky_user_data.decode_sticky, sticky_user_data.encode_sticky),
    _comes_back(sticky_user_data.decode_cooperative, sticky_user_data.encode_cooperative),
    _marker,
)


_PARTITION_COUNTS = {"t": 3, "u": 1, "v": 4}


class _Cluster:
    """Three topics with their partitions."""

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(_PARTITION_COUNTS.get(topic, 0))]


def _members(data: bytes) -> Iterator[JoinGroupResponseMember]:
    position = 0
    for number in range(_MEMBERS_MAX):
        if position >= len(data):
            return
        size = int.from_bytes(data[position : position + 2], "big")
        metadata = data[position + 2 : position + 2 + size]
        yield JoinGroupResponseMember(member_id=f"m{number}", metadata=metadata)
        position += 2 + size


def _check_leader(data: bytes) -> None:
    members = list(_members(data))
    for name, kind in BUILT_IN.items():
        cluster: Any = _Cluster()
        try:
            given = LeaderAssignment(members).assign(kind(), cluster)
        except DecodeError:
            return
        held = [
            (each.topic, number)
            for member in given
            for each in assignment.decode_assignment(member.assignment).assigned_partitions
            for number in each.partitions
        ]
        if len(set(held)) != len(held):
            raise Broken(f"{name} gives a partition twice: {held}")
        wanted = {
            (topic, number)
            for member in members
            for topic in subscription.decode_subscription(member.metadata).topics
            for number in range(_PARTITION_COUNTS.get(topic, 0))
        }
        if not set(held) <= wanted:
            raise Broken(f"{name} gives what nobody asked for: {held}")


def _check(data: bytes) -> None:
    if data and data[0] & 0x80:
        _check_leader(data[1:])
    elif data:
        _KINDS[data[0] % len(_KINDS)](data[1:])


def _seeds() -> Iterator[bytes]:
    owned = [OwnedPartitions(topic="t", partitions=[0, 2])]
    sticky = sticky_user_data.encode_sticky(
        StickyUserData(
            previous_assignment=[PartitionsOfTopic(topic="t", partitions=[0, 1])], generation=3
        )
    )
    members = []
    for user_data in (None, sticky, sticky_user_data.encode_cooperative(4)):
        each = ConsumerSubscription(
            topics=["t", "u"], user_data=user_data, owned_partitions=owned, generation_id=4
        )
        for version in range(4):
            encoded = subscription.encode_subscription(each, version)
            yield b"\0" + encoded
            members.append(len(encoded).to_bytes(2, "big") + encoded)
            yield b"\x80" + b"".join(members)
    given = ConsumerAssignment(
        assigned_partitions=[PartitionsOfTopic(topic="t", partitions=[0, 5])], user_data=b"x"
    )
    yield b"\1" + assignment.encode_assignment(given)
    yield b"\2" + sticky
    yield b"\3" + sticky_user_data.encode_cooperative(1)
    yield b"\4" + b"\0\0\0\1\0\0\0\0\0\5"


TARGET = Target(_check, _seeds)
