"""A member of the group of the `share-groups` workload: the shipped share consumer, which
acknowledges at random."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Literal

from tests.sim.checkers.share_deliveries import Place
from tests.sim.checkers.share_readers import ShareReaders

from odradek_client.errors import BadAnswer, IllegalState, OdradekError
from odradek_client.share.acknowledgements import AcknowledgeType
from odradek_client.share.consumer import ShareConsumer
from odradek_client.share.errors import Reject, Release
from odradek_client.share.record import ShareRecord
from odradek_testkit.simulation.world import World

#: The duration of a stall, longer than that of a lock.
_STALL_MS = 1_400
_EXPLICIT = ("accept",) * 5 + ("release", "release", "reject", "renew", "handle", "keep")
_IMPLICIT = ("keep",) * 6 + ("accept", "release", "reject", "handle")


@dataclass
class Plan:
    """The life of one member.

    `drains`: the member accepts every record until it is told to end. `rejects`: the member rejects
    many records, so that these become dead letters.
    """

    mode: Literal["implicit", "explicit"]
    acquire: Literal["batch_optimized", "record_limit"]
    polls: int
    max_poll_records: int
    drains: bool = False
    rejects: bool = False

    @classmethod
    def of(cls, random: Random) -> Plan:
        """A random plan."""
        return cls(
            mode=random.choice(("explicit", "implicit")),
            acquire=random.choice(("batch_optimized", "record_limit")),
            polls=random.randint(1, 30),
            max_poll_records=random.choice((1, 3, 20)),
        )


class ShareMember:
    """A member of the group: a process with a share consumer."""

    def __init__(
        self,
        world: World,
        random: Random,
        name: str,
        group_id: str,
        topics: Iterable[str],
        plan: Plan,
        readers: ShareReaders,
    ) -> None:
        self._world = world
        self._random = random
        self.name = name
        self.plan = plan
        self._readers = readers
        self._consumer = ShareConsumer(
            *topics,
            bootstrap_servers=world.broker.bootstrap,
            group_id=group_id,
            client_id=name,
            share_acknowledgement_mode=plan.mode,
            share_acquire_mode=plan.acquire,
            max_poll_records=plan.max_poll_records,
            max_poll_interval_ms=10_000,
            fetch_max_wait_ms=300,
            fetch_max_bytes=random.choice((200, 52_428_800)),
            metadata_max_age_ms=700,
            request_timeout_ms=1_500,
            default_api_timeout_ms=4_000,
        )
        self._consumer.set_acknowledgement_callback(self._on_result)
        self._member_id = self._consumer._group.membership.member_id

    async def run(self, must_stop: Callable[[], bool], end: asyncio.Event) -> None:
        """Acquire records for as many polls as planned, but end early if `must_stop` says so. A
        member that drains runs until `end`."""
        plan, world = self.plan, self._world
        world.note(self.name, f"starts as {self._member_id}: {plan}")
        polls = 0
        try:
            await self._consumer.start()
        except OdradekError as problem:
            self._told(problem, "gives up")
        else:
            while not end.is_set() if plan.drains else polls < plan.polls and not must_stop():
                polls += 1
                await self._step()
        try:
            await self._consumer.close(timeout_ms=2_000)
        except OdradekError as problem:
            self._told(problem, "closing")
        world.note(self.name, "ends")

    async def _step(self) -> None:
        random, world = self._random, self._world
        try:
            records = await self._consumer.poll(timeout_ms=random.choice((50, 200)))
        except OdradekError as problem:
            self._told(problem, "poll")
            await world.sleep(50)
            return
        for record in records:
            self._got(record)
        if records and not self.plan.drains and random.random() < 0.1:
            self._intrude(records[0])
        for record in records:
            await self._answer(record)
        if self.plan.drains or random.random() < 0.2:
            await self._commit()
        elif random.random() < 0.1:
            self._consumer.commit_soon()
        if not self.plan.drains:
            stalls = random.random() < 0.04
            await world.sleep(_STALL_MS if stalls else random.choice((0, 0, 20, 100)))

    async def _answer(self, record: ShareRecord) -> None:
        random, plan = self._random, self.plan
        how = random.choice(_EXPLICIT if plan.mode == "explicit" else _IMPLICIT)
        if plan.drains:
            how = "accept"
        elif plan.rejects and random.random() < 0.3:
            how = "reject"
        if how == "handle":
            await self._handle(record)
        elif how == "renew":
            record.acknowledge(AcknowledgeType.RENEW)
            await self._world.sleep(random.choice((0, 20, 700)))
            record.accept()
        elif how != "keep":
            record.acknowledge(AcknowledgeType[how.upper()])

    def _intrude(self, near: ShareRecord) -> None:
        """Acknowledge a record that another member may have; the broker must refuse the
        acknowledgement."""
        random = self._random
        offset = max(0, near.offset + random.randint(-4, 4))
        kind = random.choice(list(AcknowledgeType)[:3])
        if self._readers.is_held(self._member_id, _place(near), offset):
            # This member has the record: the result would be taken for that of its own
            # acknowledgement.
            return
        self._world.note(self.name, f"answers {offset} of {_place(near)}, which it need not have")
        now_ms = self._world.loop.time() * 1_000
        self._consumer._fetcher._add(near.node_id, near.place, offset, kind, now_ms)

    async def _handle(self, record: ShareRecord) -> None:
        """Handle the record in an `async with` block; the block renews the record's lock."""
        random = self._random
        async with record:
            await self._world.sleep(random.choice((0, 100, 600, _STALL_MS)))
            decision = random.choice((None, None, Reject, Release))
            if decision is not None:
                raise decision

    async def _commit(self) -> None:
        try:
            await self._consumer.commit(timeout_ms=2_000)
        except OdradekError as problem:
            self._told(problem, "commit")

    # --- Results and errors ---

    def _got(self, record: ShareRecord) -> None:
        for problem in self._readers.handed_out(
            self._member_id, _place(record), record.offset, record.value, record.delivery_count
        ):
            self._world.violated("readers", problem)

    def _on_result(self, record: ShareRecord, error: OdradekError | None) -> None:
        if error is not None:
            self._told(error, f"offset {record.offset} of {_place(record)}")
        elif record.answer is AcknowledgeType.ACCEPT:
            for problem in self._readers.accepted(self._member_id, _place(record), record.offset):
                self._world.violated("readers", problem)

    def _told(self, problem: OdradekError, what: str) -> None:
        self._world.note(self.name, f"{what}: {type(problem).__name__}: {problem}")
        if isinstance(problem, IllegalState | BadAnswer):
            self._world.violated("client", f"{self.name}, {what}: {problem!r}")


def _place(record: ShareRecord) -> Place:
    return Place(record.place.topic_id, record.place.partition)
