"""The verdicts about groups: a table of situations, each built by real clients in virtual time, and
the sentence about the group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

import group_scenes as scenes
from odradek_testkit.simulation.simulate import simulate
from odradek_testkit.simulation.world import World


class Row(NamedTuple):
    """A situation, and what is said about the group."""

    build: Callable[[scenes.Scene], Awaitable[None]]
    sentence: str
    settings: Mapping[str, object] = MappingProxyType({})


ROWS = [
    Row(
        scenes.reads_all,
        "OK: it keeps up in all 2 partitions",
    ),
    Row(
        scenes.waits_for_a_short_time,
        "OK: 8 records wait in 1 of 2 partitions, and its last commit there was T ago; in orders-0",
    ),
    Row(
        scenes.has_no_members,
        "STOPPED: 8 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: it has no members; in orders-0",
    ),
    Row(
        scenes.read_and_left,
        "OK: it keeps up",
    ),
    Row(
        scenes.lost_what_it_had_not_read,
        "OK: it keeps up",
    ),
    Row(
        scenes.stands_in_a_hole,
        "STALLED: 5 records wait, and its last commit there was T ago: they are behind an"
        " open transaction of transactional id payments, which has been open for T and"
        " ends by itself after T; its client payer at client is connected; in orders-0",
    ),
    Row(
        scenes.falls_behind,
        "WARNING: it falls behind: 550 records waited T ago, 991 wait now; in orders-0",
    ),
    Row(
        scenes.commits_the_same,
        "STALLED: 15 records wait, and all its commits there for T are of offset 5; in orders-0",
    ),
    Row(
        scenes.waits_for_a_transaction,
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T and ends by itself after T; its client payer at client is"
        " connected; in orders-0",
    ),
    Row(
        scenes.waits_for_a_client_with_a_long_name,
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T and ends by itself after T; in orders-0",
    ),
    Row(
        scenes.waits_for_a_dead_client,
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T and ends by itself after T; its client payer at client is gone;"
        " in orders-0",
    ),
    Row(
        scenes.waits_for_two_phases,
        "STALLED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: they are behind an open transaction of transactional id payments, which has"
        " been open for T; it waits for its client's decision as long as it takes"
        " (two-phase commit); its client payer at client is connected; in orders-0",
        {"transaction.two.phase.commit.enable": True},
    ),
    Row(
        scenes.waits_for_a_moment,
        "OK: 5 records wait in 1 of 2 partitions, and its last commit there was T ago; in orders-0",
    ),
    Row(
        scenes.reads_uncommitted,
        "OK: it keeps up",
    ),
    Row(
        scenes.hangs,
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: client reader at client does not poll, its last fetch was T ago, and it was"
        " last heard of T ago; in orders-0",
    ),
    Row(
        scenes.hangs_in_the_consumer_protocol,
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: client reader at client does not poll, its last fetch was T ago, and it was"
        " last heard of T ago; in orders-0",
    ),
    Row(
        scenes.never_commits,
        "STOPPED: 3 records wait, and its last commit there was T ago: client reader at"
        " client fetches, the last time T ago, but does not commit; in orders-0",
    ),
    Row(
        scenes.may_not_join,
        "STOPPED: 3 records wait, and its last commit there was T ago: members may not"
        " join, the right READ on the group is missing for User:ANONYMOUS, and JoinGroup"
        " was refused T ago; in orders-0",
        scenes.ACLS,
    ),
    Row(
        scenes.may_not_read,
        "STOPPED: 5 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: fetches of client reader at client return TOPIC_AUTHORIZATION_FAILED, the"
        " last time T ago; in orders-0",
        scenes.ACLS,
    ),
    Row(
        scenes.is_throttled,
        "STALLED: 5500 records wait in 1 of 2 partitions, and all its commits there for T"
        " are of offset 0: client reader at client is throttled by its quota consumer_byte_rate, at"
        " present; in orders-0",
    ),
    Row(
        scenes.is_offline,
        "STALLED: 3 records wait in 1 of 2 partitions, and all its commits there for T are of offset"
        " 2: the partition is offline because of a disk error; in orders-0",
    ),
    Row(
        scenes.may_not_jump,
        "STALLED: 10 records wait, and all its commits there for T are of offset 3:"
        " fetches of client reader at client return OFFSET_OUT_OF_RANGE, the last time T"
        " ago; in orders-0",
    ),
    Row(
        scenes.stands_after_the_end,
        "STOPPED: it reads nothing, and its last commit there was T ago: its position 500"
        " is after the end of the partition, 20; in orders-0",
    ),
    Row(
        scenes.reads_another_topic,
        "STOPPED: 17 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: its member is not assigned this partition; in orders-0",
    ),
    Row(
        scenes.rebalances,
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: it rebalances, for T, and waits for client reader at client; in orders-0",
    ),
    Row(
        scenes.was_restarted,
        "STOPPED: 9 records wait in 1 of 2 partitions, and its last commit there was T"
        " ago: client reader at client does not poll, it has fetched nothing since it"
        " connected, and it was last heard of T ago; in orders-0",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.build.__name__)
def test_g164_the_sentence_about_a_group_names_the_cause(row: Row) -> None:
    found: list[str] = []

    async def story(world: World) -> None:
        await world.start_broker()
        scene = scenes.Scene(world)
        async with scene.admin:
            await row.build(scene)
            found.append(await scene.sentence())
        await world.broker.stop()

    simulate(row.build.__name__, 1, story, row.settings)
    assert found == [row.sentence]
