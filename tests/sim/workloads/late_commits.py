"""A group as in `groups`, with delayed commits of earlier generations and members."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from tests.sim.workloads.groups import GROUP, GroupsWorkload

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.group.offset_requests import (
    OFFSET_COMMIT_NEWEST,
    offset_commit_request,
)
from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from odradek_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_testkit.simulation.world import World

_REMEMBERED_MAX = 50
_TIMEOUT_MS = 1_500


class _Remembered(NamedTuple):
    """A commit that a member could have sent in the past, with the member's identity at that
    time."""

    identity: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, int]


class LateCommitsWorkload(GroupsWorkload):
    """Commits of earlier generations, epochs and member ids are sent to the coordinator, which must
    refuse them, because another member has had one of the partitions since.

    A real member could send such a commit late, after it was suspended during a rebalance.
    """

    name: ClassVar[str] = "late-commits"
    faults: ClassVar[tuple[str, ...]] = (
        "kill-broker",
        "cut-power",
        "cut-power-behind-an-answer",
        "lost-answers",
        "refused-requests",
        "refused-commits",
        "crash-in-operation",
        "cut-connections",
        "unreachable",
        "slow-disk",
        "kill-client",
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance("late commits")
        self._remembered: list[_Remembered] = []
        #: The newest generation or member epoch in which each member had a partition.
        self._had: dict[TopicPartition, dict[str, int]] = {}
        #: Static members: instance id -> the newest member id.
        self._instances: dict[str, str] = {}

    async def work(self) -> None:
        """Run the group's members, and send delayed commits."""
        late = asyncio.ensure_future(self._commit_late())
        await super().work()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)

    async def _commit_late(self) -> None:
        config = ConsumerConfig.from_settings(
            {"bootstrap_servers": self._world.broker.bootstrap, "client_id": "late"}
        )
        network = NetworkClient(config)
        try:
            await network.start()
            while True:
                await self._world.sleep(self._chance.choice((20, 100, 200)))
                self._remember()
                old = [each for each in self._remembered if self._is_over(each)]
                if old and self._chance.random() < 0.5:
                    await self._send(network, self._chance.choice(old))
                if self._chance.random() < 0.3:
                    self._delay_a_commit()
        except OdradekError as problem:
            self._world.note("late", f"gives up: {problem}")
        finally:
            await network.close()

    def _delay_a_commit(self) -> None:
        """Let the broker refuse a member's commit until the group has changed; then the member
        retries."""
        if len(self._members) < 2:
            return
        name, leaver = self._chance.sample(list(self._members), 2)
        process = self._world.clients.get(name)
        if process is None or not self._members[name].next_offsets:
            return
        self._world.order(
            fault="fail",
            api="OffsetCommit",
            code="COORDINATOR_LOAD_IN_PROGRESS",
            client_id=name,
            times=None,
            for_ms=self._chance.choice((500, 1_000, 2_000)),
        )
        process.call(self._members[name].commit_soon)
        self._members[leaver].leave()

    def _remember(self) -> None:
        for member in self._members.values():
            identity = member.consumer.group_metadata()
            if identity.generation_id < 0 or not member.next_offsets:
                continue
            for partition in member.consumer.assignment():
                self._had.setdefault(partition, {})[identity.member_id] = identity.generation_id
            if identity.group_instance_id is not None:
                self._instances[identity.group_instance_id] = identity.member_id
            self._remembered.append(_Remembered(identity, dict(member.next_offsets)))
        del self._remembered[:-_REMEMBERED_MAX]

    def _is_over(self, each: _Remembered) -> bool:
        identity = each.identity
        replaced_by = self._instances.get(identity.group_instance_id or "", identity.member_id)
        return identity.member_id != replaced_by or any(
            member_id != identity.member_id and generation > identity.generation_id
            for partition in each.offsets
            for member_id, generation in self._had.get(partition, {}).items()
        )

    async def _send(self, network: NetworkClient, each: _Remembered) -> None:
        identity = each.identity
        request = offset_commit_request(
            GROUP,
            {place: OffsetAndMetadata(offset) for place, offset in each.offsets.items()},
            generation=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
        )
        try:
            node = await network.find_coordinator(GROUP)
            await network.send(
                node, request, timeout_ms=_TIMEOUT_MS, max_version=OFFSET_COMMIT_NEWEST
            )
        except OdradekError as problem:
            self._world.note("late", f"{problem}")
        else:
            self._world.note(
                "late", f"a commit of generation {identity.generation_id} was sent late"
            )
