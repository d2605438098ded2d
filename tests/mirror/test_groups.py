"""Committed offsets of groups, copied between two fake clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek_client.admin.groups import GroupDescription, GroupListing
from odradek_client.admin.results import Results
from odradek_client.errors import (
    GroupAuthorizationFailed,
    OdradekError,
    UnknownTopicOrPartition,
)
from odradek_client.structs import OffsetAndMetadata, TopicPartition
from odradek_mirror.group_offsets import GroupCopier, delete_notes
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID

TP = TopicPartition("orders", 0)
PREFIX = "odradek-mirror-default."
#: The id of the topic on both sides.
ID = b"i" * 16


class Groups:
    """The groups of a fake cluster: their offsets and states, and the errors in the cluster's
    answers."""

    def __init__(self, **offsets: int) -> None:
        self.offsets = {name: {TP: OffsetAndMetadata(offset)} for name, offset in offsets.items()}
        self.active: set[str] = set()
        self.refused: set[str] = set()
        self.topic_id: bytes | None = ID
        self.request_count = 0
        self.writing = self.most_writing = 0

    def error(self, group: str) -> OdradekError | None:
        return GroupAuthorizationFailed(f"no right on {group}") if group in self.refused else None

    @property
    def requests(self) -> SimpleNamespace:
        async def metadata(names: list[str]) -> SimpleNamespace:
            code = ErrorCode.NONE if self.topic_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics = [
                SimpleNamespace(name=name, topic_id=self.topic_id, error_code=code)
                for name in names
            ]
            return SimpleNamespace(topics=topics)

        async def for_each(
            names: list[str], ask: Any, raise_errors: bool, *, final: Any
        ) -> Results[str, bytes]:
            assert UnknownTopicOrPartition in final
            found = Results[str, bytes]()
            for name, outcome in (await ask(names)).items():
                if isinstance(outcome, OdradekError):
                    found.errors[name] = outcome
                else:
                    found[name] = outcome
            return found

        return SimpleNamespace(metadata=metadata, for_each=for_each)

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, "", "Empty", "classic", 1) for name in self.offsets]

    async def describe_groups(
        self, groups: Iterable[str], *, raise_errors: bool
    ) -> Results[str, GroupDescription]:
        found = Results[str, GroupDescription]()
        for name in groups:
            state = "Stable" if name in self.active else "Empty"
            found[name] = GroupDescription(name, 1, "classic", state, "consumer", "", [])
        return found

    async def list_offsets_of_groups(
        self, groups: Mapping[str, Any], *, raise_errors: bool
    ) -> Results[str, dict[TopicPartition, OffsetAndMetadata | None]]:
        self.request_count += 1
        found = Results[str, dict[TopicPartition, OffsetAndMetadata | None]]()
        for name in groups:
            if (error := self.error(name)) is not None:
                found.errors[name] = error
            else:
                found[name] = dict(self.offsets.get(name, {}))
        return found

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self.writing += 1
        self.most_writing = max(self.writing, self.most_writing)
        await asyncio.sleep(0)
        self.writing -= 1
        if (error := self.error(group)) is not None:
            raise error
        self.offsets.setdefault(group, {}).update(offsets)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, raise_errors: bool
    ) -> Results[TopicPartition, None]:
        for tp in partitions:
            del self.offsets[group][tp]
        return Results()

    async def delete_groups(
        self, groups: Iterable[str], *, raise_errors: bool
    ) -> Results[str, None]:
        for group in groups:
            del self.offsets[group]
        return Results()


class Plan:
    """A plan with the topic `orders` and the given groups."""

    def __init__(self, *groups: str) -> None:
        self.groups = groups

    def has_topic(self, name: str) -> bool:
        return name == "orders"


def copier_of(
    source: Groups, target: Groups, told: list[str] | None = None, copied: int = 100
) -> GroupCopier:
    """A copier for a mirror that has copied all records before the offset `copied`."""
    return GroupCopier(
        cast(Any, source),
        cast(Any, target),
        lambda _, offset: offset if offset <= copied else None,
        lambda _: (ID, ID),
        (told if told is not None else []).append,
        prefix=PREFIX,
        keep_epochs=False,
    )


async def test_groups_that_are_not_copied_are_named_with_a_remedy() -> None:
    source, target = Groups(busy=5, beyond=101, moved=5, early=5, done=5), Groups(moved=7, early=3)
    target.active = {"busy"}
    left = await copier_of(source, target).copy(Plan(*source.offsets))
    assert left.keys() == {"busy", "beyond", "early"}
    assert "it has members at the target (Stable): stop them" in left["busy"]
    assert "its offset 101 of orders-0 is not copied yet" in left["beyond"]
    assert "somebody else has committed offset 3 of orders-0" in left["early"]
    assert target.offsets["done"] == {TP: OffsetAndMetadata(5, "")}
    assert target.offsets["moved"] == {TP: OffsetAndMetadata(7)}


async def test_an_error_of_one_group_is_reported_once_and_the_others_continue() -> None:
    source, target, told = Groups(a=5, b=5, c=5), Groups(), list[str]()
    source.refused, target.refused = {"a"}, {"b"}
    copier, plan = copier_of(source, target, told), Plan("a", "b", "c")
    for _ in range(2):
        left = await copier.copy(plan)
        assert left.keys() == {"a", "b"}
        assert "no right on a" in left["a"]
        assert TP in target.offsets["c"]
    assert len(told) == 2
    source.refused = target.refused = set()
    assert await copier.copy(plan) == {}
    assert target.offsets["a"] == target.offsets["b"] == target.offsets["c"]


async def test_i42_offsets_that_the_target_has_lost_are_written_again() -> None:
    source, target = Groups(a=5, b=5), Groups()
    copier, plan = copier_of(source, target), Plan("a", "b")
    await copier.copy(plan)
    # The offsets of a have expired, with those of its second group.
    del target.offsets["a"], target.offsets[f"{PREFIX}a"]
    target.offsets["b"] = {TP: OffsetAndMetadata(7)}
    assert await copier.copy(plan) == {}
    assert target.offsets["a"] == {TP: OffsetAndMetadata(5, "")}
    assert target.offsets["b"] == {TP: OffsetAndMetadata(7)}


@pytest.mark.parametrize("topic_id", [b"o" * 16, None])
@pytest.mark.parametrize("side", ["source", "target"])
async def test_i44_no_offset_of_another_topic_of_the_same_name_is_written(
    side: str, topic_id: bytes | None
) -> None:
    source, target = Groups(a=5), Groups()
    copier, plan = copier_of(source, target), Plan("a")
    await copier.copy(plan)
    source.offsets["a"] = {TP: OffsetAndMetadata(3)}
    (source if side == "source" else target).topic_id = topic_id
    left = await copier.copy(plan)
    why = "created again" if topic_id else "the broker does not have this topic"
    assert f"because of the {side}: topic 'orders'" in left["a"] and why in left["a"]
    assert target.offsets["a"] == {TP: OffsetAndMetadata(5, "")}
    source.topic_id = target.topic_id = ID
    assert await copier.copy(plan) == {}
    assert target.offsets["a"] == {TP: OffsetAndMetadata(3, "")}


async def test_topics_without_ids_are_those_that_were_copied() -> None:
    source, target = Groups(a=5), Groups()
    source.topic_id = target.topic_id = ZERO_UUID
    assert await copier_of(source, target).copy(Plan("a")) == {}
    assert target.offsets["a"] == {TP: OffsetAndMetadata(5, "")}


async def test_a_missing_write_right_stops_one_group_only() -> None:
    source, target = Groups(a=5, b=5), Groups()
    target.refused = {f"{PREFIX}a"}
    assert (await copier_of(source, target).copy(Plan("a", "b"))).keys() == {"a"}
    assert "b" in target.offsets


async def test_many_groups_take_few_requests_and_few_are_written_at_once() -> None:
    source, target = Groups(**{f"g{number}": 5 for number in range(450)}), Groups()
    assert await copier_of(source, target).copy(Plan(*source.offsets)) == {}
    assert len(target.offsets) == 900
    assert (source.request_count, target.request_count) == (3, 3)
    assert 1 < target.most_writing <= 8


async def test_second_groups_of_deleted_source_groups_are_deleted() -> None:
    source, target = Groups(a=5, b=5, c=5), Groups()
    copier = copier_of(source, target)
    await copier.copy(Plan("a", "b", "c"))
    del source.offsets["b"]
    target.offsets[f"{PREFIX}of-another-source"] = {
        TopicPartition("payments", 0): OffsetAndMetadata(1)
    }
    # The group c exists at the source, but is no longer selected.
    await copier.delete_unneeded(Plan("a"))
    assert target.offsets.keys() == {
        *("a", "b", "c"),
        *(f"{PREFIX}{name}" for name in ("a", "c", "of-another-source")),
    }


async def test_a_group_without_read_right_keeps_its_second_group() -> None:
    source, target = Groups(a=5), Groups()
    copier = copier_of(source, target)
    await copier.copy(Plan("a"))
    source.refused, source.offsets = {"a"}, {}
    await copier.delete_unneeded(Plan())
    assert f"{PREFIX}a" in target.offsets


async def test_a_promotion_deletes_notes_about_its_topics_alone() -> None:
    other = TopicPartition("payments", 0)
    target = Groups()
    target.offsets = {
        "a": {TP: OffsetAndMetadata(1)},
        f"{PREFIX}a": {TP: OffsetAndMetadata(1)},
        f"{PREFIX}b": {TP: OffsetAndMetadata(1), other: OffsetAndMetadata(1)},
        f"{PREFIX}c": {other: OffsetAndMetadata(1)},
    }
    assert await delete_notes(cast(Any, target), {"orders"}) == []
    assert target.offsets.keys() == {"a", f"{PREFIX}b", f"{PREFIX}c"}
    assert target.offsets[f"{PREFIX}b"].keys() == {other}
