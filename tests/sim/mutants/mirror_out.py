"""Bugs of the mirror out: positions committed outside of the transaction, runs of offsets across
gaps, failed starts."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_client.producer.producer import Producer
from odradek_mirror import offset_map
from odradek_mirror.map_topic import MapTopicOwner
from odradek_mirror.offset_map import MappedRun, encode_key, encode_value
from odradek_mirror.ownership import Ownership
from odradek_mirror.transactional_writer import TransactionalWriter


async def _written_outside(self: TransactionalWriter, entries: Any, forgotten: Any = ()) -> None:
    bootstrap = self._producer.network.config.bootstrap_servers
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for entry in entries:
            key = encode_key(entry.tp, entry.start)
            await producer.send_and_wait(self._map_topic, encode_value(entry), key, partition=0)


def _follows_in_the_source(before: MappedRun, run: MappedRun) -> bool:
    return run.source == before.source + before.length


async def _check_as_the_last_name(self: Ownership) -> None:
    if self._tried_identities:
        self._owner = MapTopicOwner(*self._tried_identities[-1], host="", pid=0, since_ms=0)
        self._tried_identities.clear()
    await _check(self)


_check = Ownership.check

MIRROR_OUT = (
    Mutant(
        "a mirror writes its positions outside of its transaction",
        "mirror-out",
        3,
        {(TransactionalWriter, "write_map"): _written_outside},
        ("mirrored",),
    ),
    Mutant(
        "a run in a mirror's offset map continues across a transaction marker of the target",
        "mirror-out",
        1,
        {(offset_map, "_follows"): _follows_in_the_source},
        ("mirrored",),
    ),
    Mutant(
        "a mirror takes its own failed start for another instance",
        "mirror-out",
        110,
        {(Ownership, "check"): _check_as_the_last_name},
        ("the only instance",),
    ),
)
