"""The rules for faults. A rule says which requests or disk operations get a fault, how often, and
for how long.

`DiskFaults` applies the rules for the disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from enum import Enum
from typing import Any

from odradek_broker.platform.seams import BlockFile, Buffer, Clock, File
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

#: The limit of rules; finished rules do not count.
RULES_MAX = 100


class FaultEffect(Enum):
    """The effect of a fault on a request or on the disk; the values are the names in orders."""

    #: The request is answered with an error, and not handled.
    FAIL = "fail"
    #: The request is handled, and its answer delayed.
    DELAY = "delay"
    #: The request is handled, and its answer dropped.
    DROP_REPLY = "drop_reply"
    #: The connection is closed, and no answer is sent.
    CUT = "cut"
    #: Every sync takes longer.
    SLOW_DISK = "slow_disk"
    #: Every write fails: no space left.
    FULL_DISK = "full_disk"

    @property
    def of_disk(self) -> bool:
        return self in (FaultEffect.SLOW_DISK, FaultEffect.FULL_DISK)


class TooManyRules(ValueError):
    """The error for a new rule when there are RULES_MAX unfinished rules."""


class Named(NamedTuple):
    """The names in a request or an answer. `partitions`: (topic, partition); partition -1 stands
    for a whole topic."""

    partitions: frozenset[tuple[str, int]] = frozenset()
    groups: frozenset[str] = frozenset()
    transactional_ids: frozenset[str] = frozenset()
    #: The partitions of which a share consumer acknowledges records.
    acknowledged: frozenset[tuple[str, int]] = frozenset()


@dataclass(slots=True)
class FaultRule:
    """A rule, which matches requests, writes to the disk, or syncs of the disk.

    If `apis`, `topic`, `partition`, `group`, `transactional_id` or `client_id` is None, the rule
    matches every API, topic and so on. `handled` (CUT): true to handle the request before the
    connection is closed. `acknowledging`: true for requests that acknowledge records of a share
    group, and for their partitions. `skip`: the number of matches to pass first. `left`: the number
    of matches that get the fault; None for all. `until_ms`: on the monotonic clock. `met`: the
    number of matches that got the fault. `order`: the JSON object of the order.
    """

    action: FaultEffect
    apis: frozenset[ApiKey] | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    code: ErrorCode = ErrorCode.NONE
    delay_ms: int = 0
    handled: bool = False
    acknowledging: bool = False
    skip: int = 0
    left: int | None = None
    until_ms: int | None = None
    order: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    met: int = 0

    def is_over(self, now_ms: int) -> bool:
        return self.left == 0 or (self.until_ms is not None and now_ms >= self.until_ms)

    def takes_next(self) -> bool:
        """Count a match. True if the match gets the fault; False if the rule skips it (`skip`)."""
        if self.skip:
            self.skip -= 1
            return False
        self.met += 1
        if self.left is not None:
            self.left -= 1
        return True

    def chooses(self, topic: str | None, partition: int | None) -> bool:
        """True if the rule applies to this partition. `partition` None: the request names only the
        topic, to which every rule for the topic applies."""
        if self.topic is not None and topic != self.topic:
            return False
        return self.partition is None or partition is None or partition == self.partition

    def matches(self, api: ApiKey, named: Named, client_id: str | None) -> bool:
        """True if the rule matches a request with these names."""
        partitions = named.acknowledged if self.acknowledging else named.partitions
        return (
            (bool(partitions) or not self.acknowledging)
            and (self.apis is None or api in self.apis)
            and (self.client_id is None or self.client_id == client_id)
            and (self.group is None or self.group in named.groups)
            and (self.transactional_id is None or self.transactional_id in named.transactional_ids)
            and (
                self.topic is None
                or any(
                    self.chooses(topic, None if partition < 0 else partition)
                    for topic, partition in partitions
                )
            )
        )


class FaultRules:
    """The rules of a broker, oldest first. The first rule that matches applies."""

    def __init__(self) -> None:
        self._rules: dict[int, FaultRule] = {}
        self._next_number = 1

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, rule: FaultRule, now_ms: int) -> FaultRule:
        """Add a rule. Returns the rule with its number. Raises TooManyRules."""
        if len(self._rules) >= RULES_MAX:
            over = next((n for n, each in self._rules.items() if each.is_over(now_ms)), None)
            if over is None:
                raise TooManyRules(f"there are {RULES_MAX} faults on order; clear some first")
            del self._rules[over]
        rule.number = self._next_number
        self._next_number += 1
        self._rules[rule.number] = rule
        return rule

    def meet(
        self, api: ApiKey, named: Named, client_id: str | None, now_ms: int
    ) -> FaultRule | None:
        """Find the rule that applies to a request with these names, and count the match; None if no
        rule applies."""
        for rule in self._rules.values():
            if (
                rule.action.of_disk
                or rule.is_over(now_ms)
                or not rule.matches(api, named, client_id)
            ):
                continue
            if rule.takes_next():
                return rule
        return None

    def meet_disk(self, action: FaultEffect, now_ms: int) -> FaultRule | None:
        """Find the rule that applies to a write or a sync of the disk, and count the match. Called
        by one thread at a time."""
        for rule in tuple(self._rules.values()):
            if rule.action is action and not rule.is_over(now_ms) and rule.takes_next():
                return rule
        return None

    def all(self) -> list[FaultRule]:
        """All rules that were not cleared, including finished rules."""
        return list(self._rules.values())

    def remove(self, number: int) -> bool:
        """Remove a rule; False if there is no rule with this number."""
        return self._rules.pop(number, None) is not None

    def clear(self) -> None:
        self._rules.clear()


class DiskFaults:
    """The faults of the disk. Several threads check the faults before every write and every sync,
    and `lock` serialises these threads. `sleep` takes seconds.
    """

    def __init__(
        self,
        rules: FaultRules,
        clock: Clock,
        sleep: Callable[[float], None],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._lock = lock

    def before_write(self) -> None:
        """Raise OSError (ENOSPC) while the disk is full."""
        if self._meet(FaultEffect.FULL_DISK) is not None:
            raise OSError(errno.ENOSPC, "No space left on device (ordered)")

    def before_sync(self) -> None:
        """Wait as long as the rules for a slow disk require."""
        slow = self._meet(FaultEffect.SLOW_DISK)
        if slow is not None:
            self._sleep(slow.delay_ms / 1000)

    def _meet(self, action: FaultEffect) -> FaultRule | None:
        with self._lock:
            return self._rules.meet_disk(action, self._clock.monotonic_ms())

    def wrap(self, file: File) -> File:
        """A wrapper around a file that adds the faults of this disk."""
        return _FaultyFile(file, self)

    def wrap_blocks(self, file: BlockFile) -> BlockFile:
        """A wrapper around a block file that delays writes as the rules for a slow disk require. A
        full disk does not affect the writes, because the blocks are already allocated."""
        return _FaultyBlockFile(file, self)


class _FaultyFile:
    """A `File` on a disk with faults. An append to a full disk writes nothing."""

    __slots__ = ("_disk", "_file", "close", "read_at", "size", "truncate")

    def __init__(self, file: File, disk: DiskFaults) -> None:
        self._file = file
        self._disk = disk
        self.read_at = file.read_at
        self.size = file.size
        self.truncate = file.truncate
        self.close = file.close

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._disk.before_write()
        return self._file.append(buffers)

    def sync(self) -> None:
        self._disk.before_sync()
        self._file.sync()


class _FaultyBlockFile:
    """A `BlockFile` of a slow disk."""

    __slots__ = ("_disk", "_file", "close")

    def __init__(self, file: BlockFile, disk: DiskFaults) -> None:
        self._file = file
        self._disk = disk
        self.close = file.close

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._disk.before_sync()
        self._file.write_at(position, buffers)
