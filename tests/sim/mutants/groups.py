"""Bugs of consumer groups: ownership, commits, restarts, changes of protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.coordinator.groups import conversion, shard
from odradek_broker.coordinator.groups.classic.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.classic.join_phase import Rebalances
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.deadlines import MemberDeadlines
from odradek_broker.coordinator.groups.offsets import (
    OffsetStore,
    check_commit,
    check_consumer_commit,
)
from odradek_broker.coordinator.groups.offsets import commit_records as _commit_records
from odradek_broker.coordinator.runtime import Runtime
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.partition import Partition
from odradek_protocol.errors import ErrorCode


async def _nothing(*_: Any, **__: Any) -> None:
    pass


_await_disk = Runtime._await_disk
_check_member = ClassicGroup.check_member
_OLD_GENERATION = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)
_read_stored = Partition.read_stored
_rename = ClassicGroup.rename
_upgraded = conversion.upgraded
_downgraded = conversion.downgraded


def _commit_of_any_generation(*args: Any, **kwargs: Any) -> ErrorCode:
    error = check_commit(*args, **kwargs)
    return ErrorCode.NONE if error in _OLD_GENERATION else error


def _commit_of_any_epoch(*args: Any, **kwargs: Any) -> ErrorCode:
    error = check_consumer_commit(*args, **kwargs)
    return ErrorCode.NONE if error in _OLD_GENERATION else error


def _resets_are_not_written(call: Any, *rest: Any) -> Any:
    records, errors = _commit_records(call, *rest)
    return (records if call.generation >= 0 or call.member_id else []), errors


def _answered_before_it_is_durable(self: Runtime[Any], outcome: Any, written: Any) -> None:
    _await_disk(self, outcome, Deferred.of(ErrorCode.NONE))


def _offline_is_empty(self: Partition, first_offset: int = 0) -> Iterator[Any]:
    if not self.log.offline:
        yield from _read_stored(self, first_offset)


def _read_in_reverse_order(self: Partition, first_offset: int = 0) -> Iterator[Any]:
    stored = list(_read_stored(self, first_offset))
    yield from reversed(stored) if self.log.name.startswith(OFFSETS_TOPIC) else stored


def _rename_but_not_the_leader(self: ClassicGroup, member: Member, member_id: str) -> None:
    leader_id = self.leader_id
    _rename(self, member, member_id)
    self.leader_id = leader_id


def _member_of_any_instance(
    group: ClassicGroup, member_id: str, instance_id: str | None
) -> ErrorCode:
    error = _check_member(group, member_id, instance_id)
    return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID else error


class _FirstGeneration:
    """A classic group that always believes it is in its first generation."""

    generation = 1

    def __init__(self, group: ClassicGroup) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


def _upgraded_from_the_first_epoch(classic: Any, *rest: Any) -> Any:
    return _upgraded(_FirstGeneration(classic), *rest)  # type: ignore[arg-type]


async def _downgraded_to_the_first_generation(group: ConsumerGroup, *rest: Any) -> Any:
    epoch, group.epoch = group.epoch, 1
    try:
        return await _downgraded(group, *rest)
    finally:
        group.epoch = epoch


def _never_stale(self: OffsetStore, partition: Any, committed: Any) -> bool:
    return False


def _all_of_group(self: OffsetStore, group_id: str) -> dict[Any, Any]:
    return {
        partition: committed.value
        for partition, committed in self._committed.get(group_id, {}).items()
    }


GROUPS = (
    Mutant(
        "offsets of a deleted topic stay if the disk was full, and a new topic of the name has them",
        "recreated-topics",
        5,
        {(OffsetStore, "_is_stale"): _never_stale, (OffsetStore, "of_group"): _all_of_group},
        ("of a deleted topic of the same name",),
    ),
    Mutant(
        "offsets that an administrator sets are acknowledged but not written",
        "groups",
        3,
        {(shard, "commit_records"): _resets_are_not_written},
    ),
    Mutant(
        "a partition is assigned to a member while another member still owns it",
        "groups",
        3,
        {(ConsumerGroup, "owner"): lambda self, topic_id, partition: None},
    ),
    Mutant(
        "offset commits of an older generation are accepted",
        "late-commits",
        10,
        {
            (shard, "check_commit"): _commit_of_any_generation,
            (shard, "check_consumer_commit"): _commit_of_any_epoch,
        },
        ("committed: ",),
    ),
    Mutant(
        "a restart forgets the session timeouts of group members",
        "groups",
        8,
        {(Rebalances, "restored"): _nothing, (MemberDeadlines, "restored"): _nothing},
    ),
    Mutant(
        "an offset commit is acknowledged before it is durable",
        "late-commits",
        14,
        {(Runtime, "_await_disk"): _answered_before_it_is_durable},
        ("committed: ",),
    ),
    Mutant(
        "a restart replays offset commits in reverse order",
        "groups",
        1,
        {(Partition, "read_stored"): _read_in_reverse_order},
        ("committed: ",),
    ),
    Mutant(
        "a change of the group protocol forgets which member owns which partition",
        "groups",
        11,
        {(conversion, "_has_assignment"): lambda classic, member: False},
    ),
    Mutant(
        "a start of a coordinator takes its offline partition for an empty one",
        "groups",
        8,
        {(Partition, "read_stored"): _offline_is_empty},
    ),
    Mutant(
        "a static member that led its group does not lead it after it rejoins",
        "groups",
        99,
        {(ClassicGroup, "rename"): _rename_but_not_the_leader},
        ("liveness: ",),
    ),
    Mutant(
        "a static member that was replaced is not fenced",
        "late-commits",
        20,
        {(ClassicGroup, "check_member"): _member_of_any_instance},
        ("committed: ",),
    ),
    Mutant(
        "an upgrade to the consumer protocol starts over with the first epoch",
        "groups",
        3,
        {(conversion, "upgraded"): _upgraded_from_the_first_epoch},
        ("ownership: ",),
    ),
    Mutant(
        "a downgrade to the classic protocol starts over with the first generation",
        "groups",
        3,
        {(conversion, "downgraded"): _downgraded_to_the_first_generation},
        ("ownership: ",),
    ),
)
