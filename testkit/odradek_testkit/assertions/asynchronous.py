"""Assertions about topics and groups that wait until they hold, for async tests."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, overload

from odradek_client.admin import Admin
from odradek_client.admin.history import Subject
from odradek_client.errors import OdradekError, Retriable
from odradek_client.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition
from odradek_testkit.assertions.failures import explained, explained_topic, section, shown_record
from odradek_testkit.assertions.groups import GroupPositions, group_positions
from odradek_testkit.assertions.reading import (
    PAUSE_S,
    SHOWN_MAX,
    Matching,
    Positions,
    TopicReader,
    connection_settings,
    matcher,
)
from odradek_testkit.assertions.snapshots import TopicSnapshot, difference, write_snapshot

WITHIN_S = 10.0
#: The default time to wait for unwanted or further records.
QUIET_S = 1.0
#: The time to read the present records, in addition to the wait for new ones.
CATCH_UP_S = 5.0
#: The maximum number of records in a topic for checks that compare records with each other.
RECORDS_MAX = 1_000_000
#: The time limit for gathering the text of a failure.
_EXPLAIN_S = 5.0
_PAUSE_MAX_S = 0.25
#: "1" makes `assert_topic_equals` write the files that it would compare with.
UPDATE_VARIABLE = "ODRADEK_UPDATE_SNAPSHOTS"


class AsyncAssertions:
    """Assertions about the brokers at `bootstrap`. `client_settings`: the settings of the
    connection, such as `security_protocol`.

    The assertions see the records that a "read_committed" consumer gets. Each call opens its own
    connections, and works on any event loop.
    """

    def __init__(self, bootstrap: str, **client_settings: Any) -> None:
        self.bootstrap = bootstrap
        self._settings = client_settings

    # --- Records ----------------------------------------------------------------------------------

    @overload
    async def assert_produced(
        self,
        topic: str,
        matching: Matching | None = None,
        *,
        count: None = None,
        within_s: float = WITHIN_S,
        since: Positions | None = None,
    ) -> ConsumerRecord: ...
    @overload
    async def assert_produced(
        self,
        topic: str,
        matching: Matching | None = None,
        *,
        count: int,
        within_s: float = WITHIN_S,
        since: Positions | None = None,
    ) -> list[ConsumerRecord]: ...
    async def assert_produced(
        self,
        topic: str,
        matching: Matching | None = None,
        *,
        count: int | None = None,
        within_s: float = WITHIN_S,
        since: Positions | None = None,
    ) -> ConsumerRecord | list[ConsumerRecord]:
        """Wait for a matching record and return the first one. With `count`, wait for exactly
        `count` matching records and return them. Raises AssertionError if there are fewer after
        `within_s`, or if there are more.

        `matching`: a value (bytes or text); a dict of value, key, headers, partition, offset or
        timestamp; or a function of a record. A dict or list inside a dict is compared with the
        parsed JSON of the field, and headers that `matching` does not name are ignored. `since`: an
        earlier result of `positions`; records before these offsets are ignored.
        """
        matches = matcher(matching)
        if count is not None and count < 1:
            raise ValueError(f"count={count} must be at least 1; see assert_nothing_produced")
        wanted = count or 1
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        found: list[ConsumerRecord] = []

        def take(records: list[ConsumerRecord]) -> None:
            found.extend(each for each in records if _matches(matches, each))
            del found[wanted + SHOWN_MAX :]

        async with self._reader(topic, since) as reader:
            while len(found) < wanted and loop.time() < until:
                take(await reader.poll(until))
            if count is not None or len(found) < wanted:
                await reader.poll_to_end(loop.time() + CATCH_UP_S, take)
            if count is None and found:
                return found[0]
            if len(found) == count:
                return found
            few = f"{len(found)} of {wanted}" if len(found) < wanted else f"more than {wanted}"
            what = f"{few} records" if count else "no record"
            raise await self._failure(
                f"{what} of topic {topic!r}{_that_match(matching)} within {within_s:g} s",
                reader,
                section("that match:", map(shown_record, found)),
                await self._uncommitted(reader, matches, since) if len(found) < wanted else [],
            )

    async def assert_nothing_produced(
        self,
        topic: str,
        within_s: float = QUIET_S,
        *,
        matching: Matching | None = None,
        since: Positions | None = None,
    ) -> None:
        """Wait for the whole of `within_s`. Raises AssertionError if the topic has a matching
        record, even one from before the call. The topic need not exist. `matching` and `since`: as
        for `assert_produced`."""
        matches = matcher(matching)
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        found: list[ConsumerRecord] = []

        def take(records: list[ConsumerRecord]) -> None:
            found.extend(each for each in records if _matches(matches, each))
            del found[SHOWN_MAX:]

        async with self._reader(topic, since) as reader:
            while not found and loop.time() < until:
                take(await reader.poll(until))
            if not found:
                await reader.poll_to_end(loop.time() + CATCH_UP_S, take)
            if found:
                raise await self._failure(
                    f"topic {topic!r} has a record{_that_match(matching)}",
                    reader,
                    section("that match:", map(shown_record, found)),
                )

    async def assert_no_duplicates(
        self,
        topic: str,
        key: Callable[[ConsumerRecord], Any] | None = None,
        *,
        within_s: float = 60.0,
        since: Positions | None = None,
    ) -> int:
        """Read all present records, and return their number. AssertionError if `key`, a function of
        a record, returns the same for two records; by default, if two records have the same key and
        value.

        Also AssertionError if the topic does not exist, has more than a million records, or cannot
        be read within `within_s`.
        """
        seen: dict[Any, ConsumerRecord] = {}
        repeated: dict[Any, list[ConsumerRecord]] = defaultdict(list)
        count = 0

        def take(records: list[ConsumerRecord]) -> None:
            nonlocal count
            count += len(records)
            for record in records:
                name = (record.key, record.value) if key is None else key(record)
                if seen.setdefault(name, record) is not record:
                    repeated[name].append(record)
            if count > RECORDS_MAX:
                raise AssertionError(
                    f"topic {topic!r} has more than {RECORDS_MAX} records, too many to compare"
                )

        until = asyncio.get_running_loop().time() + within_s
        async with self._reader(topic, since) as reader:
            complete = await reader.poll_to_end(until, take)
            if not reader.exists:
                raise AssertionError(f"topic {topic!r} does not exist")
            if repeated:
                shown = [
                    shown_record(record)
                    for name, others in list(repeated.items())[:SHOWN_MAX]
                    for record in (seen[name], *others[:SHOWN_MAX])
                ]
                raise await self._failure(
                    f"topic {topic!r} has {sum(map(len, repeated.values()))} duplicates among"
                    f" {count} records",
                    reader,
                    section("the same:", shown),
                )
            if not complete:
                raise AssertionError(
                    f"topic {topic!r} was not read to its end within {within_s:g} s:"
                    f" {count} records, no duplicates among them"
                )
            return count

    async def positions(self, topic: str) -> dict[int, int]:
        """The present end offset of each partition, to pass as `since`; an empty dict if the topic
        does not exist."""
        async with self._reader(topic, isolation="read_uncommitted") as reader:
            return {each.partition: end for each, end in (await reader.ends()).items()}

    # --- Groups -----------------------------------------------------------------------------------

    async def assert_lag_zero(
        self, group: str, within_s: float = WITHIN_S, *, topics: Collection[str] | None = None
    ) -> None:
        """Wait until the group has committed all records of `topics`, by default of all partitions
        that the group reads. AssertionError after `within_s`.

        Records of open or aborted transactions, and transaction markers, do not count as lag.
        """

        async def is_reached(positions: GroupPositions) -> bool:
            if not any(positions.committed.values()):
                return False
            for tp, (start, _) in positions.behind.items():
                if await self._has_record(tp, start):
                    return False
            return True

        await self._wait_for_group(
            group, within_s, topics, is_reached, f"group {group!r} has not read everything"
        )

    async def assert_committed(
        self,
        group: str,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        within_s: float = WITHIN_S,
    ) -> OffsetAndMetadata:
        """Wait until the group has committed `offset` for a partition (None: any offset), and
        return the committed offset. AssertionError after `within_s`."""
        tp = TopicPartition(topic, partition)

        async def is_reached(positions: GroupPositions) -> bool:
            found = positions.committed.get(tp)
            return found is not None and offset in (None, found.offset)

        what = "an offset" if offset is None else f"offset {offset}"
        failed = f"group {group!r} has not committed {what} of {topic}-{partition}"
        positions = await self._wait_for_group(group, within_s, None, is_reached, failed)
        found = positions.committed[tp]
        assert found is not None
        return found

    async def _wait_for_group(
        self,
        group: str,
        within_s: float,
        topics: Collection[str] | None,
        is_reached: Callable[[GroupPositions], Awaitable[bool]],
        failed: str,
    ) -> GroupPositions:
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        pause_s = PAUSE_S
        positions: GroupPositions | None = None
        problem: Retriable | None = None
        async with self._admin() as admin:
            while True:
                try:
                    positions, problem = await group_positions(admin, group, topics), None
                    if await is_reached(positions):
                        return positions
                except Retriable as error:
                    problem = error
                left_s = until - loop.time()
                if left_s <= 0:
                    break
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)
            lines = [f"{failed} within {within_s:g} s"]
            lines += positions.told() if positions is not None else []
            lines += [f"the broker's last answer: {problem}"] if problem is not None else []
            lines += await _within_limit(explained(admin, [(Subject.GROUP, group)]))
        raise AssertionError("\n".join(lines))

    async def _has_record(self, tp: TopicPartition, start: int) -> bool:
        """True if a "read_committed" consumer gets a record from offset `start` on, or if the
        answer takes too long."""
        until = asyncio.get_running_loop().time() + CATCH_UP_S
        async with self._reader(tp.topic, {tp.partition: start}, only=tp.partition) as reader:
            return await reader.has_record(until)

    # --- Snapshots --------------------------------------------------------------------------------

    async def snapshot(
        self,
        topic: str,
        path: str | os.PathLike[str],
        *,
        count: int | None = None,
        within_s: float = WITHIN_S,
        partitions: bool = True,
        offsets: bool = False,
        timestamps: bool = False,
    ) -> int:
        """Write the records to a file, a JSON object in each line, and return their number.

        Waits for `count` records, or without `count` until no record has arrived for a second.
        Raises AssertionError if there are fewer than `count` after `within_s`. Lines are sorted by
        partition and offset. They contain offset and timestamp only if requested. With
        `partitions=False` they contain no partition, and are sorted by their text.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        taken = TopicSnapshot(partitions=partitions, offsets=offsets, timestamps=timestamps)
        async with self._reader(topic) as reader:
            while loop.time() < until and (count is None or len(taken) < count):
                wait_until = until if count is not None else min(until, loop.time() + QUIET_S)
                records = await reader.poll(wait_until)
                self._take(taken, topic, records)
                if count is None and not records and reader.exists and loop.time() >= wait_until:
                    break
            if count is not None and len(taken) == count:
                await reader.poll_to_end(until, lambda more: self._take(taken, topic, more))
            if not reader.exists or (count is not None and len(taken) != count):
                wanted = "" if count is None else f", not {count}"
                raise await self._failure(
                    f"topic {topic!r} has {len(taken)} records{wanted}, after {within_s:g} s",
                    reader,
                )
        await asyncio.to_thread(write_snapshot, Path(path), taken.lines())
        return len(taken)

    async def assert_topic_equals(
        self,
        topic: str,
        path: str | os.PathLike[str],
        *,
        within_s: float = WITHIN_S,
        update: bool | None = None,
        partitions: bool = True,
        offsets: bool = False,
        timestamps: bool = False,
    ) -> None:
        """Wait until the topic's records equal the file `path`, which `snapshot` wrote with the
        same options. AssertionError with the difference after `within_s`.

        With `update`, or the environment variable ODRADEK_UPDATE_SNAPSHOTS=1, the file is written
        instead.
        """
        if os.environ.get(UPDATE_VARIABLE) == "1" if update is None else update:
            await self.snapshot(
                topic,
                path,
                within_s=within_s,
                partitions=partitions,
                offsets=offsets,
                timestamps=timestamps,
            )
            return
        file = Path(path)
        try:
            wanted = (await asyncio.to_thread(file.read_text, "utf-8")).splitlines()
        except FileNotFoundError:
            raise AssertionError(
                f"there is no {file}; {UPDATE_VARIABLE}=1 makes the run write it"
            ) from None
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        taken = TopicSnapshot(partitions=partitions, offsets=offsets, timestamps=timestamps)
        async with self._reader(topic) as reader:

            def take(records: list[ConsumerRecord]) -> None:
                self._take(taken, topic, records)

            await reader.poll_to_end(loop.time() + CATCH_UP_S, take)
            while taken.lines() != wanted:
                if loop.time() >= until:
                    raise await self._failure(
                        f"topic {topic!r} differs from {file} after {within_s:g} s"
                        f" ({UPDATE_VARIABLE}=1 makes the run write it)",
                        reader,
                        difference(wanted, taken.lines(), str(file), f"topic {topic}"),
                    )
                take(await reader.poll(until))

    def _take(self, taken: TopicSnapshot, topic: str, records: list[ConsumerRecord]) -> None:
        taken.extend(records)
        if len(taken) > RECORDS_MAX:
            raise AssertionError(f"topic {topic!r} has more than {RECORDS_MAX} records")

    # --- Parts ------------------------------------------------------------------------------------

    def _reader(self, topic: str, since: Positions | None = None, **options: Any) -> TopicReader:
        return TopicReader(self.bootstrap, self._settings, topic, since=since, **options)

    def _admin(self) -> Admin:
        return Admin(**connection_settings(self.bootstrap, self._settings))

    async def _uncommitted(
        self,
        reader: TopicReader,
        matches: Callable[[ConsumerRecord], bool],
        since: Positions | None,
    ) -> list[str]:
        """Lines about matching records of open or aborted transactions."""
        visible: set[tuple[int, int]] = set()
        found: list[ConsumerRecord] = []

        async def look() -> list[str]:
            until = asyncio.get_running_loop().time() + _EXPLAIN_S / 2
            committed = self._reader(reader.topic, since)
            everything = self._reader(reader.topic, since, isolation="read_uncommitted")

            def see(records: list[ConsumerRecord]) -> None:
                visible.update((each.partition, each.offset) for each in records)

            def take(records: list[ConsumerRecord]) -> None:
                found.extend(each for each in records if _matches(matches, each))
                del found[RECORDS_MAX:]

            async with everything, committed:
                await everything.poll_to_end(until, take)
                await committed.poll_to_end(until, see)
            hidden = [each for each in found if (each.partition, each.offset) not in visible]
            return section(
                "that match, in transactions that are open or were aborted:",
                map(shown_record, hidden[:SHOWN_MAX]),
            )

        return await _within_limit(look()) if reader.exists else []

    async def _failure(
        self, text: str, reader: TopicReader, *sections: Collection[str]
    ) -> AssertionError:
        """The error, with the last records that were read and the history of their partitions."""
        lines = [text, *(line for lines in sections for line in lines)]
        if not reader.exists:
            lines.append(f"topic {reader.topic!r} does not exist")
        elif not reader.count:
            lines.append(f"{reader.topic!r} has no committed records ({_count(reader)})")
        else:
            title = f"records that were read: {reader.count} ({_count(reader)}), the last of them:"
            lines += section(title, map(shown_record, reader.last))
        lines += await _within_limit(explained_topic(reader.admin, reader.partitions))
        return AssertionError("\n".join(lines))


def _count(reader: TopicReader) -> str:
    number = len(reader.partitions)
    return f"{number} partition{'' if number == 1 else 's'}"


async def _within_limit(lines: Awaitable[list[str]]) -> list[str]:
    """The optional lines of a failure; an empty list if they take too long, or if a request for
    them fails."""
    try:
        async with asyncio.timeout(_EXPLAIN_S):
            return await lines
    except (TimeoutError, OdradekError):
        return []


def _matches(matches: Callable[[ConsumerRecord], bool], record: ConsumerRecord) -> bool:
    try:
        return matches(record)
    except Exception as error:
        error.add_note(f"while matching {shown_record(record)}")
        raise


def _that_match(matching: Matching | None) -> str:
    if matching is None:
        return ""
    if isinstance(matching, bytes | str | Mapping):
        return f" that matches {matching!r}"
    return f" that {getattr(matching, '__name__', matching)} accepts"
