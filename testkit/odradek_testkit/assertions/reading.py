"""The reading of a topic's records for an assertion, while further records may arrive."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from odradek_client.admin import Admin
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import UnknownTopicOrPartition
from odradek_client.structs import ConsumerRecord, TopicPartition

#: A value to compare with, a mapping of fields to compare, or a function that returns true.
Matching = bytes | str | Mapping[str, Any] | Callable[[ConsumerRecord], object]
Positions = Mapping[int, int]

_FIELDS = ("value", "key", "headers", "partition", "offset", "timestamp")
#: The last records that a failure shows.
SHOWN_MAX = 5
#: The pause before a request is repeated because the broker does not have the result yet.
PAUSE_S = 0.05
_POLL_S = 1.0
#: The time limit for finding a broker, and for the answer to a request.
_PATIENCE_MS = 10_000


def connection_settings(bootstrap: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the clients of assertions."""
    return {
        "bootstrap_servers": bootstrap,
        "allow_auto_create_topics": False,
        "default_api_timeout_ms": _PATIENCE_MS,
        **settings,
    }


def matcher(matching: Matching | None) -> Callable[[ConsumerRecord], bool]:
    """The function that returns true for a matching record. Raises TypeError for a `matching` of a
    wrong type, ValueError for an unknown field."""
    if matching is None:
        return lambda record: True
    if isinstance(matching, bytes | str):
        return lambda record: _equals(record.value, matching)
    if isinstance(matching, Mapping):
        fields = dict(matching)
        unknown = fields.keys() - {*_FIELDS}
        if unknown:
            raise ValueError(
                f"matching: unknown field {', '.join(sorted(unknown))}; there are {', '.join(_FIELDS)}"
            )
        return lambda record: all(_has(record, name, fields[name]) for name in fields)
    if callable(matching):
        return lambda record: bool(matching(record))
    raise TypeError(
        f"matching: {matching!r} is {type(matching).__name__}; give bytes, a text, a dict of "
        f"{', '.join(_FIELDS)}, or a function of a record"
    )


def _has(record: ConsumerRecord, name: str, wanted: Any) -> bool:
    if name == "headers":
        found = dict(record.headers)
        return all(header in found and _equals(found[header], wanted[header]) for header in wanted)
    return _equals(getattr(record, name), wanted)


def _equals(found: Any, wanted: Any) -> bool:
    if callable(wanted):
        return bool(wanted(found))
    if isinstance(wanted, str) and isinstance(found, bytes):
        return found == wanted.encode()
    if isinstance(wanted, dict | list) and isinstance(found, bytes):
        try:
            return bool(json.loads(found) == wanted)
        except ValueError:
            return False
    return bool(found == wanted)


class TopicReader:
    """Reads a topic from its beginning, or from the offsets in `since`. The topic need not exist
    yet.

    With `isolation` "read_committed" it reads only records whose transaction is committed. `only`:
    the single partition to read.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, Any],
        topic: str,
        *,
        since: Positions | None = None,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        only: int | None = None,
    ) -> None:
        common = connection_settings(bootstrap, settings)
        self.topic = topic
        self.partitions: list[TopicPartition] = []
        #: The number of records that were read, and the last of them.
        self.count = 0
        self.last: deque[ConsumerRecord] = deque(maxlen=SHOWN_MAX)
        self._since = dict(since or {})
        self._only = only
        self.admin = Admin(**common)
        self._consumer = Consumer(auto_offset_reset="earliest", isolation_level=isolation, **common)
        self._connected = False

    @property
    def exists(self) -> bool:
        """True if the topic was found."""
        return bool(self.partitions)

    async def poll(self, until: float) -> list[ConsumerRecord]:
        """The next records; an empty list if none arrive in one short poll. Returns by `until`, a
        time of the event loop in seconds."""
        loop = asyncio.get_running_loop()
        while not self.exists:
            await self._look_for_topic()
            if self.exists or loop.time() >= until:
                break
            await asyncio.sleep(min(PAUSE_S, max(0.0, until - loop.time())))
        if not self.exists:
            return []
        wait_s = min(_POLL_S, max(0.0, until - loop.time()))
        records = await self._consumer.poll(timeout_ms=wait_s * 1000)
        self.count += len(records)
        self.last.extend(records)
        return records

    async def _look_for_topic(self) -> None:
        try:
            described = (await self.admin.describe_topics(self.topic))[self.topic]
        except UnknownTopicOrPartition:
            return
        partitions = [
            TopicPartition(self.topic, each.partition)
            for each in described.partitions
            if self._only in (None, each.partition)
        ]
        if not self._connected:
            await self._consumer.start()
            self._connected = True
        self._consumer.assign(partitions)
        for each in partitions:
            if each.partition in self._since:
                self._consumer.seek(each, self._since[each.partition])
        self.partitions = partitions

    async def ends(self) -> dict[TopicPartition, int]:
        """The present end offset of each partition; an empty dict if the topic does not exist."""
        if not self.exists:
            await self._look_for_topic()
        return await self._consumer.end_offsets(*self.partitions) if self.exists else {}

    async def poll_to_end(self, until: float, take: Callable[[list[ConsumerRecord]], None]) -> bool:
        """Call `take` with the records up to the present end of the topic. False if the end was not
        reached in time."""
        ends = await self.ends()
        while await self._is_before(ends):
            if asyncio.get_running_loop().time() >= until:
                return False
            take(await self.poll(until))
        return True

    async def has_record(self, until: float) -> bool:
        """True if a record was read before the present end of the topic, or if that end was not
        reached in time."""
        ends = await self.ends()
        while await self._is_before(ends):
            if await self.poll(until) or asyncio.get_running_loop().time() >= until:
                return True
        return False

    async def _is_before(self, ends: Mapping[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if end > 0 and await self._consumer.position(partition) < end:
                return True
        return False

    async def __aenter__(self) -> Self:
        await self.admin.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._connected:
                await self._consumer.close()
        finally:
            await self.admin.close()
