"""The partition of the internal topic that a group or a transactional id belongs to (G-06,
T-01)."""

from __future__ import annotations

import pytest

from group_world import GroupWorld
from odradek_broker.coordinator.shards import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Hello World", -862545276),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_g06_t01_a_text_has_the_hash_of_a_java_string(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_g06_t01_the_absolute_value_of_the_hash_chooses_the_partition() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("Hello World", 50) == 862545276 % 50
    assert partition_for("polygenelubricants", 50) == 0, "the smallest hash has no absolute value"


def test_g06_groups_live_in_the_partition_of_their_hash() -> None:
    world = GroupWorld(partitions=3)
    for name in ("x", "y", "z"):
        world.enter(group=name)
    for index, partition in enumerate(world.topic_partitions):
        names = [name for name in ("x", "y", "z") if partition_for(name, 3) == index]
        assert all(any(n.encode() in (key or b"") for n in names) for key, _ in partition.records)
    assert sorted(listing.group_id for listing in world.groups.groups()) == ["x", "y", "z"]
