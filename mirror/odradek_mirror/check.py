"""The check of a mirror, which compares topics and groups of the source with those of the target.

The ends of the target are read first, then the run map, then the ends of the source. So a mirror
that runs during the check has only one effect: records that are not copied yet. One partition is
read at a time, on both sides in parallel, so only a few batches are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_client.admin import Admin
from odradek_client.admin.configs import ConfigResource
from odradek_client.admin.groups import GroupListing
from odradek_client.admin.topics import TopicDescription
from odradek_client.errors import Refused
from odradek_client.structs import TopicPartition
from odradek_client.tasks import all_done
from odradek_mirror.comparison import (
    ComparedBatch,
    Difference,
    MappedOffsets,
    PartitionComparison,
    SameOffsets,
    Side,
)
from odradek_mirror.map_topic import check_map_topic, map_topic, read_map, topic_uuid
from odradek_mirror.offset_map import NotCopied, PartitionMap
from odradek_mirror.plan import Mode, TopicSelection, read_group_settings
from odradek_mirror.settings import copied_settings, own_values
from odradek_mirror.source import SourceReader, SourceReadingEnded
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.aborted import AbortedBatches
from odradek_protocol.records.batch import BatchError, iter_batches
from odradek_records.partition_fetch import FetchLimits

#: The wait of a fetch is short, because a prefetch that waits at the end of a partition delays the
#: next partition.
_LIMITS = FetchLimits(max_bytes=16 * 1024 * 1024, partition_bytes=4 * 1024 * 1024, wait_ms=50)
#: The wait of one poll. After `_POLLS_WITHOUT_PROGRESS_MAX` polls in a row without progress, the
#: comparison of the partition fails.
_POLL_MS = 500
_POLLS_WITHOUT_PROGRESS_MAX = 120
_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")


class CannotCompare(Refused):
    """The error if a comparison is impossible, with the reason."""


@dataclass(slots=True)
class PartitionCheckResult:
    """The result for a partition. `error`: the reason why it could not be compared."""

    tp: TopicPartition
    source_records: int = 0
    target_records: int = 0
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str = ""


class GroupResult(NamedTuple):
    """The result for a committed offset. `expected`: the offset that the target should have, None
    if the records before it are not copied."""

    group: str
    tp: TopicPartition
    source_offset: int
    expected: int | None
    target_offset: int | None

    @property
    def is_ahead(self) -> bool:
        """True if the group's offset at the target is after the expected offset."""
        return None not in (self.expected, self.target_offset) and (
            (self.target_offset or 0) > (self.expected or 0)
        )

    @property
    def differs(self) -> bool:
        """True if the offset at the target is not the expected one, and is not after it."""
        return self.target_offset != self.expected and not self.is_ahead


class SettingResult(NamedTuple):
    """The result for a setting of a group that was set at the source. `target_value`: the effective
    value at the target, None if the group has no such setting there."""

    group: str
    name: str
    source_value: str
    target_value: str | None

    @property
    def differs(self) -> bool:
        """True if another value is effective at the target."""
        return self.target_value != self.source_value


@dataclass(slots=True)
class SettingsComparison:
    """The settings of all compared groups. `errors`: the reasons why some settings were not
    compared."""

    results: list[SettingResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class _Ends(NamedTuple):
    start: int
    stable: int
    end: int


class Checker:
    """Compares two clusters. Call `prepare` first, and `close` at the end."""

    def __init__(
        self, source: Admin, target: Admin, selection: TopicSelection, mode: Mode | None, name: str
    ) -> None:
        self._admins = (source, target)
        self._selection = selection
        self._wanted_mode = mode
        self._name = name
        self.mode: Mode = mode or Mode.SAME_OFFSETS
        self._topics: tuple[dict[str, TopicDescription], dict[str, TopicDescription]] = ({}, {})
        self._ends: list[dict[TopicPartition, _Ends]] = [{}, {}]
        self._settings: list[dict[str, dict[str, str]]] = [{}, {}]
        self._maps: Mapping[TopicPartition, PartitionMap] = {}
        self._readers: list[SourceReader] = []
        #: The partitions whose source records are all at the target.
        self._complete: set[TopicPartition] = set()

    async def prepare(self) -> list[str]:
        """Get the facts for the comparison from both sides; returns the topics. Raises
        CannotCompare, and errors of the clusters."""
        source, target = self._admins
        if self._wanted_mode is None:
            node = await target.network.least_loaded_node()
            apis = (await target.describe_broker(node)).apis
            can = APIS[ApiKey.APPEND_MIRROR_RECORDS].name in apis
            self.mode = Mode.SAME_OFFSETS if can else Mode.EXACTLY_ONCE
        names = [name for name in await source.list_topics() if self._selection.has_topic(name)]
        if not names:
            raise CannotCompare(
                "no topic of the source is selected: `odradek topic list` there shows its topics"
            )
        for side in Side:
            admin = self._admins[side]
            there = await admin.list_topics()
            some = [name for name in names if name in there]
            if some:
                self._topics[side].update(await admin.describe_topics(some))
        self._ends[Side.TARGET] = await self._list_ends(Side.TARGET)
        if self.mode is Mode.EXACTLY_ONCE:
            if not await check_map_topic(target, self._name):
                raise CannotCompare(
                    f"the target has no topic {map_topic(self._name)!r}, in which a mirror notes"
                    " what it has copied: nothing was copied there in the mode exactly-once, or"
                    " under another --name"
                )
            self._maps = (await read_map(target, self._name)).partitions
        self._ends[Side.SOURCE] = await self._list_ends(Side.SOURCE)
        for side in Side:
            self._settings[side] = await self._read_settings(side)
        committed = self.mode is Mode.EXACTLY_ONCE
        self._readers = [
            SourceReader(admin, read_committed=committed, limits=_LIMITS, check_crcs=True)
            for admin in self._admins
        ]
        return sorted(names)

    async def close(self) -> None:
        """Close the readers. The admins stay open."""
        for reader in self._readers:
            await reader.close()

    async def _list_ends(self, side: Side) -> dict[TopicPartition, _Ends]:
        admin = self._admins[side]
        tps = [
            TopicPartition(topic.name, part.partition)
            for topic in self._topics[side].values()
            for part in topic.partitions
        ]
        if not tps:
            return {}
        stable = await admin.list_offsets(
            dict.fromkeys(tps, "latest"), read_committed=True, raise_errors=False
        )
        end = await admin.list_offsets(dict.fromkeys(tps, "latest"), raise_errors=False)
        first = await admin.list_offsets(dict.fromkeys(tps, "earliest"), raise_errors=False)
        return {
            tp: _Ends(a.offset, b.offset, c.offset)
            for tp in tps
            if (a := first.get(tp)) and (b := stable.get(tp)) and (c := end.get(tp))
        }

    async def _read_settings(self, side: Side) -> dict[str, dict[str, str]]:
        resources = [ConfigResource.topic(name) for name in self._topics[side]]
        if not resources:
            return {}
        found = await self._admins[side].describe_configs(resources, names=_SETTINGS)
        return {
            resource.name: {name: entry.value or "" for name, entry in entries.items()}
            for resource, entries in found.items()
        }

    # --- topics -----------------------------------------------------------------------------------

    async def check_topic(self, name: str) -> list[PartitionCheckResult]:
        """Compare the partitions of a topic."""
        numbers = [
            {part.partition for part in topics[name].partitions} if name in topics else set()
            for topics in self._topics
        ]
        results = []
        for number in sorted(numbers[0] | numbers[1]):
            tp = TopicPartition(name, number)
            result = PartitionCheckResult(tp)
            results.append(result)
            missing = [side.name.lower() for side in Side if number not in numbers[side]]
            if missing:
                text = f"the {missing[0]} has no such {'partition' if all(numbers) else 'topic'}"
                result.differences.append(Difference(text, 1, None, None))
                continue
            try:
                await self._check_partition(result)
            except (CannotCompare, SourceReadingEnded, BatchError) as error:
                result.error = str(error)
        return results

    async def _check_partition(self, result: PartitionCheckResult) -> None:
        tp = result.tp
        for side in Side:
            if tp not in self._ends[side]:
                raise CannotCompare(f"the {side.name.lower()} does not tell where its log ends")
        source, target = (ends[tp] for ends in self._ends)
        compacted = any("compact" in each[tp.topic]["cleanup.policy"] for each in self._settings)
        if self.mode is Mode.SAME_OFFSETS:
            self._compare_ends(result, source, target)
            start = max(source.start, target.start)
            comparison = PartitionComparison(
                SameOffsets(source.end, target.end),
                range(start, max(source.end, start)),
                range(start, max(target.end, start)),
                same_offsets=True,
                compacted=compacted,
            )
        else:
            comparison = PartitionComparison(
                self._mapped(tp),
                range(source.start, max(source.stable, source.start)),
                range(target.start, max(target.stable, target.start)),
                same_offsets=False,
                compacted=compacted,
            )
        await self._compare(tp, comparison)
        result.source_records, result.target_records = comparison.records
        result.differences += comparison.differences
        if not any(each.kind == "missing" for each in comparison.differences):
            self._complete.add(tp)
        if comparison.deleted_at_target:
            result.notes.append(
                f"{comparison.deleted_at_target} copied records were deleted at the target"
            )
        if comparison.compacted_records:
            result.notes.append(
                f"{comparison.compacted_records} records are on one side only: the topic is"
                " compacted, each side by itself"
            )

    def _mapped(self, tp: TopicPartition) -> MappedOffsets:
        """The offsets of a partition's records in both logs. Raises CannotCompare if its topic was
        created again."""
        copied = self._maps.get(tp)
        if copied is None:
            return MappedOffsets([])
        known = (copied.position.source_topic_id, copied.position.target_topic_id)
        for side in Side:
            found = topic_uuid(self._topics[side][tp.topic].topic_id)
            if known[side].int and found.int and known[side] != found:
                raise CannotCompare(
                    f"the topic was deleted and created again at the {side.name.lower()} since"
                    " it was copied"
                )
        return MappedOffsets(copied.runs())

    def _compare_ends(self, result: PartitionCheckResult, source: _Ends, target: _Ends) -> None:
        """Compare log starts and last stable offsets, which are equal in a copy with the same
        offsets. Records before the later log start are not compared."""
        settings = self._settings[Side.TARGET][result.tp.topic]
        retention = "delete" in settings["cleanup.policy"] and (
            settings["retention.ms"] != "-1" or settings["retention.bytes"] != "-1"
        )
        if target.start > source.start and not retention:
            result.differences.append(Difference("log start", 1, source.start, target.start))
        elif target.start != source.start:
            result.notes.append(
                f"the log starts at offset {source.start} of the source and {target.start} of the"
                " target: only the records that both have are compared"
            )
        if source.end == target.end and source.stable != target.stable:
            found = Difference("last stable offset", 1, source.stable, target.stable)
            result.differences.append(found)

    async def _compare(self, tp: TopicPartition, comparison: PartitionComparison) -> None:
        logs = [
            _Log(
                self._readers[side],
                tp,
                side,
                comparison.within(side),
                self._topics[side][tp.topic].topic_id,
                committed=self.mode is Mode.EXACTLY_ONCE,
            )
            for side in Side
        ]
        try:
            while not comparison.done:
                wanted = [side for side in Side if comparison.wants(side)]
                found = await all_done("a fetch", *(logs[side].read() for side in wanted))
                for side, batches in zip(wanted, found, strict=True):
                    if batches is None:
                        comparison.end(side)
                    else:
                        comparison.add(side, batches)
        finally:
            for reader in self._readers:
                reader.unassign(tp)

    # --- groups -----------------------------------------------------------------------------------

    async def check_groups(self) -> tuple[list[GroupResult], list[str]]:
        """Compare the committed offsets of the compared topics. Returns the results, and notes for
        the user."""
        source, target = self._admins
        results, notes = [], []
        for listed in await source.list_groups():
            group = listed.group_id
            if not self._has_group(listed):
                continue
            if listed.type == "share":
                notes.append(f"share group {group!r} is not compared: its state is not copied")
                continue
            committed = {
                tp: found.offset
                for tp, found in (await source.list_group_offsets(group)).items()
                if found is not None and self._is_compared(tp)
            }
            if not committed:
                continue
            there = await target.list_group_offsets(group, committed)
            for tp, offset in sorted(committed.items()):
                found = there.get(tp)
                result = GroupResult(
                    group, tp, offset, self._translated(tp, offset), found and found.offset
                )
                results.append(result)
                if result.is_ahead:
                    notes.append(
                        f"group {group!r} has gone on in {tp.topic}-{tp.partition} of the target:"
                        f" offset {result.target_offset}, and {result.expected} was copied"
                    )
        return results, notes

    async def check_group_settings(self) -> SettingsComparison:
        """Compare the settings of groups at the source with the effective settings of the groups at
        the target."""
        source, target = self._admins
        done = SettingsComparison()
        listed = [each for each in await source.list_groups() if self._has_group(each)]
        found, unread = await read_group_settings(source, self._selection, listed)
        if unread:
            done.notes.append(f"not all settings of groups at the source were read: {unread}")
        for group, copied in sorted(found.items()):
            settings, _ = copied_settings(copied, target_brokers=1)
            if not settings:
                continue
            resource = ConfigResource.group(group)
            there = await target.describe_configs(resource, raise_errors=False)
            error = there.errors.get(resource)
            if error is not None:
                done.errors.append(f"the settings of group {group!r} at the target: {error}")
                continue
            entries = there[resource]
            for name, value in sorted(settings.items()):
                held = entries[name].value if name in entries else None
                done.results.append(SettingResult(group, name, value, held))
            done.notes += [
                f"group {group!r} has the setting {name} at the target only"
                for name in sorted(own_values(entries).keys() - settings.keys())
            ]
        return done

    def _has_group(self, listed: GroupListing) -> bool:
        return self._selection.has_group(listed.group_id)

    def _is_compared(self, tp: TopicPartition) -> bool:
        """True if offsets of a partition can be compared, which needs a run map."""
        return tp.topic in self._topics[Side.SOURCE] and (
            self.mode is Mode.SAME_OFFSETS or tp in self._maps
        )

    def _translated(self, tp: TopicPartition, offset: int) -> int | None:
        if self.mode is Mode.SAME_OFFSETS:
            return offset
        copied = self._maps[tp]
        if tp in self._complete:
            # All records are copied. So if `offset` is after the copied position, only markers and
            # aborted records are between the two.
            offset = min(offset, copied.position.next)
        try:
            return copied.translate(offset)
        except NotCopied:
            return None


class _Log:
    """The batches of one side, up to an offset."""

    def __init__(
        self,
        reader: SourceReader,
        tp: TopicPartition,
        side: Side,
        within: range,
        topic_id: bytes,
        *,
        committed: bool,
    ) -> None:
        self._reader, self._tp, self._side, self._end = reader, tp, side, within.stop
        self._committed = committed
        if within:
            reader.assign(tp, within.start, topic_id=topic_id)

    async def read(self) -> list[ComparedBatch] | None:
        """The next batches; None after the last one. Raises CannotCompare."""
        silent = 0
        while (before := self._reader.positions.get(self._tp, self._end)) < self._end:
            try:
                fetched = await self._reader.poll(_POLL_MS)
            except SourceReadingEnded as error:
                # The reader's error text says "the source", even if it reads the target.
                text = str(error).removeprefix(f"{self._tp.topic}-{self._tp.partition} of the ")
                raise CannotCompare(
                    f"the {self._side.name.lower()}: {text.removeprefix('source: ')}"
                ) from error
            for piece in fetched:
                hidden = AbortedBatches(piece.aborted) if self._committed else None
                batches = [
                    ComparedBatch(header, piece.records[at : at + header.size_bytes])
                    for at, header in iter_batches(piece.records)
                    if hidden is None or not hidden.hides(piece.records, at, header)
                ]
                if batches:
                    return batches
            silent = 0 if self._reader.positions[self._tp] > before else silent + 1
            if silent > _POLLS_WITHOUT_PROGRESS_MAX:
                trouble = self._reader.troubles().get(self._tp)
                why = f": {trouble.error}" if trouble else ""
                raise CannotCompare(
                    f"the {self._side.name.lower()} gives no records from offset {before} on{why}"
                )
        return None
