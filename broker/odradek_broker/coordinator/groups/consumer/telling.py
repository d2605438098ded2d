"""What happened to consumer groups, as events for people, and what they are (`odradek explain group`).

Every change of a consumer group is a record; what a record changed is told when it is replayed. Why a
member was removed, and what was refused, is recorded where it is decided.
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.consumer.partitions import Partitions, each
from odradek_broker.coordinator.groups.consumer.settings import Topics
from odradek_broker.coordinator.groups.consumer.states import MemberState
from odradek_broker.history import LIST_MAX, History, Now, Place
from odradek_broker.history_words import Value, What, describe_client, span
from odradek_protocol.stored.consumer_group import RecordType

_LEFT_EPOCH = -1


def tell_replayed(
    history: History,
    topics: Topics,
    kind: RecordType,
    group: ConsumerGroup,
    before: ConsumerMember | None,
    after: ConsumerMember | None,
) -> None:
    """Record what a record of this kind has changed in its group, or in one member."""
    if kind is RecordType.GROUP:
        history.record(group.group_id, What.CONSUMER_EPOCH, epoch=group.epoch)
    elif kind is RecordType.TARGET_EPOCH:
        shares = tuple(
            f"{member_id} ({len(list(each(group.target(member_id))))} partitions)"
            for member_id in group.members
        )
        history.record(
            group.group_id,
            What.CONSUMER_ASSIGNED,
            epoch=group.assignment_epoch,
            members=shares,
            state=group.state.value,
        )
    elif kind is RecordType.MEMBER and after is not None:
        _tell_member(history, group, before, after)
    elif kind is RecordType.CURRENT and after is not None:
        _tell_current(history, topics, group, after)


def _tell_member(
    history: History, group: ConsumerGroup, before: ConsumerMember | None, after: ConsumerMember
) -> None:
    subscribed = tuple(sorted(after.topics))
    if after.pattern:
        subscribed = (*subscribed, f"all that match {after.pattern}")
    history.record(
        group.group_id,
        What.CONSUMER_JOINED if before is None else What.CONSUMER_CHANGED,
        member=after.member_id,
        instance=after.instance_id,
        client=_client(after),
        topics=subscribed,
    )


def _tell_current(
    history: History, topics: Topics, group: ConsumerGroup, after: ConsumerMember
) -> None:
    if after.epoch == 0:
        return  # Nothing is decided for it yet.
    pending = len(list(each(after.pending)))
    history.record(
        group.group_id,
        What.CONSUMER_MOVED,
        places=_places(after.assigned, topics),
        member=after.member_id,
        epoch=after.epoch,
        note=_state(after),
        pending=pending or None,
    )


def now_of_consumer_group(
    group: ConsumerGroup, topics: Topics, offsets: int, session_ms: int
) -> list[Now]:
    """The group, then its members (the first of them). `session_ms`: of who does not say its own."""
    fields: dict[str, Value | None] = {
        "state": group.state.value,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
        "offsets": offsets,
    }
    told = [Now.of(What.NOW_CONSUMER_GROUP, fields)]
    for member in list(group.members.values())[:LIST_MAX]:
        timeout_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
        held: dict[str, Value | None] = {
            "member": member.member_id,
            "instance": member.instance_id,
            "client": _client(member),
            "timeout": span(timeout_ms),
            "note": f"epoch {member.epoch}, {_state(member)}",
        }
        told.append(Now.of(What.NOW_MEMBER, held, _places(member.assigned, topics)))
    if len(group.members) > LIST_MAX:
        more = len(group.members) - LIST_MAX
        told.append(Now.of(What.NOW_NOTHING, {"reason": f"and {more} members"}))
    return told


def _state(member: ConsumerMember) -> str:
    if member.epoch < _LEFT_EPOCH:
        return "away for a while (static)"
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        return "to give partitions back first"
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return "waiting for partitions that others still hold"
    return "with all that it is to have"


def _client(member: ConsumerMember) -> str:
    return describe_client(member.client_id, member.client_host)


def _places(partitions: Partitions, topics: Topics) -> list[Place]:
    """By name; a topic that is gone has none and is left out."""
    return [
        (name, index)
        for topic_id, index in each(partitions)
        if (name := topics.topic_name(topic_id)) is not None
    ]
