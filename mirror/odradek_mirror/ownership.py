"""The owner of a mirror: the instance that fenced all others last. Its owner record is in the map
topic."""

from __future__ import annotations

import os
import socket
import time
from collections import deque

from odradek_client.admin import Admin
from odradek_client.errors import Refused
from odradek_mirror.map_topic import MapTopicOwner, encode_owner, read_map
from odradek_mirror.transactional_writer import TransactionalWriter

#: The maximum number of producer identities that are remembered because the commit of their owner
#: record was not answered.
_TRIED_MAX = 1_000


class MirrorFenced(Refused):
    """The error of an instance that another instance with the same name has fenced."""


class Ownership:
    """The owner records of one instance."""

    def __init__(self, target: Admin, name: str) -> None:
        self._target, self._name = target, name
        #: The last owner record of this instance whose commit was answered.
        self._owner: MapTopicOwner | None = None
        #: The producer identities in later owner records of this instance. The commits of these
        #: records were not answered.
        self._tried_identities: deque[tuple[int, int]] = deque(maxlen=_TRIED_MAX)

    async def take(self, writer: TransactionalWriter) -> None:
        """Start the writer, which fences other instances, and write the owner record."""
        identity = await writer.start()
        since_ms = int(time.time() * 1000)
        owner = MapTopicOwner(*identity, socket.gethostname(), os.getpid(), since_ms)
        await writer.begin()
        await writer.write_record(*encode_owner(owner))
        self._tried_identities.append(identity)
        await writer.commit()
        self._owner = owner
        self._tried_identities.clear()

    async def check(self) -> None:
        """Raise MirrorFenced if this instance was the owner, and another instance has written its
        owner record into the map topic."""
        if self._owner is None:
            return
        owner = (await read_map(self._target, self._name)).owner
        if owner is None or owner[:2] in {self._owner[:2], *self._tried_identities}:
            return
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner.since_ms / 1000))
        raise MirrorFenced(
            f"another instance of the mirror {self._name!r} has taken over: process"
            f" {owner.pid} on {owner.host}, since {since}. This one ends, and has copied nothing"
            " twice; to run two mirrors, give them different --name"
        )
