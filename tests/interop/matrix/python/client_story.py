"""The typical work of a client, done in the same way with each of the Python clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from checks import check, each_once, kill_the_broker, same, until

PARTITIONS = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OF_EACH_CODEC = 100
WHILE_KILLED = 300
_TOMBSTONE_EVERY = 25


class Record(NamedTuple):
    """A record, written or read."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Sender(Protocol):
    """An idempotent producer."""

    #: The values of records that the broker has acknowledged.
    acknowledged: list[str]

    def send(self, record: Record, partition: int | None = None) -> None: ...

    def close(self) -> None:
        """Wait for all acknowledgements."""


class Member(Protocol):
    """A member of a group. It commits automatically, and when it leaves; only one thread may use
    it."""

    def poll(self) -> list[Record]: ...

    def assigned(self) -> set[int]: ...

    def close(self) -> None: ...


class Client(Protocol):
    """The calls that the checks make to a client library."""

    deletes_groups: bool

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def partitions(self, topic: str) -> int:
        """The number of partitions; 0 if there is no such topic."""

    def sender(self, topic: str, codec: str = "none") -> Sender: ...

    def member(self, group: str, topic: str, committed: bool = False) -> Member: ...

    def transact(
        self, name: str, topic: str, value: str, position: tuple[str, str, int], commits: bool
    ) -> None:
        """Write a value and a group's position (group, topic, offset in partition 0) in a
        transaction."""

    def positions(self, group: str, topic: str) -> dict[int, int]: ...

    def ends(self, topic: str) -> dict[int, int]: ...

    def offset_by_time(self, topic: str, timestamp_ms: int) -> int: ...

    def groups(self) -> set[str]: ...

    def delete_group(self, group: str) -> None: ...

    def delete_topic(self, topic: str) -> None: ...


class Running:
    """A member that polls in a thread until it leaves."""

    def __init__(self, make: Callable[[], Member]) -> None:
        self.read: list[Record] = []
        self.assigned: set[int] = set()
        self._make = make
        self._leaving = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def values(self) -> list[str]:
        """The values that were read. Raises the error that ended the member."""
        if self._failures:
            raise self._failures[0]
        return [(record.value or b"").decode() for record in list(self.read)]

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(60)
        if self._failures:
            raise self._failures[0]

    def _run(self) -> None:
        try:
            member = self._make()
            try:
                while not self._leaving.is_set():
                    self.read.extend(member.poll())
                    self.assigned = member.assigned()
            finally:
                member.close()
        except BaseException as failure:  # noqa: BLE001  `values` and `leave` raise it
            self._failures.append(failure)


def _written(codec: str, number: int) -> Record:
    value = None if number % _TOMBSTONE_EVERY == 0 else f"{codec}-{number}".encode()
    headers = (("codec", codec.encode()), ("n", b""), ("n", str(number).encode()))
    return Record(f"key-{codec}-{number}".encode(), value, headers)


class Story:
    """The checks of a client, in order; later checks use what earlier ones have left."""

    def __init__(self, client: Client, name: str, codecs: tuple[str, ...] = CODECS) -> None:
        self._client, self._codecs = client, codecs
        self._topic, self._group = f"{name}-records", f"{name}-group"
        self._within, self._etl = f"{name}-transactions", f"{name}-etl"
        self._killed, self._name = f"{name}-killed", name

    def run(self) -> None:
        check("topics are made and described", self._topics)
        check("records of each codec, with keys, headers and tombstones, come back", self._records)
        check("two members share the partitions and read each record once", self._two_members)
        check("the group goes on where it was", self._goes_on)
        check("transactions commit and abort, with positions of a group", self._transactions)
        check("read_committed reads what was committed", self._committed)
        check("offsets by time, groups, and what is deleted", self._administration)
        check("a broker that is killed loses and doubles no acknowledged record", self._kill)

    def _topics(self) -> None:
        for topic in (self._topic, self._within, self._killed):
            count = 1 if topic == self._within else PARTITIONS
            self._client.create_topic(topic, count)
            until(lambda topic=topic: self._client.partitions(topic) > 0, topic)  # type: ignore[misc]
            same(self._client.partitions(topic), count)

    def _records(self) -> None:
        for codec in self._codecs:
            sender = self._client.sender(self._topic, codec)
            for number in range(OF_EACH_CODEC):
                sender.send(_written(codec, number))
            sender.close()
        expected = [_written(codec, n) for codec in self._codecs for n in range(OF_EACH_CODEC)]
        reader = Running(lambda: self._client.member(f"{self._name}-first", self._topic))
        until(lambda: len(reader.read) >= len(expected), "the records")
        reader.leave()
        same(sorted(reader.read, key=str), sorted(expected, key=str))

    def _two_members(self) -> None:
        count = OF_EACH_CODEC * len(self._codecs)
        first = Running(lambda: self._client.member(self._group, self._topic))
        until(lambda: len(first.read) >= count, "the first member's records")
        second = Running(lambda: self._client.member(self._group, self._topic))
        until(lambda: len(first.assigned) == len(second.assigned) == 2, "two partitions for each")
        sender = self._client.sender(self._topic)
        for number in range(80):
            sender.send(Record(None, f"more-{number}".encode()), number % PARTITIONS)
        sender.close()
        until(lambda: len(first.read) + len(second.read) >= count + 80, "more records")
        same(bool(second.read), True)
        for member in (first, second):
            member.leave()
        expected = [f"more-{number}" for number in range(80)]
        each_once([v for v in first.values() + second.values() if v.startswith("more-")], expected)

    def _goes_on(self) -> None:
        same(self._client.positions(self._group, self._topic), self._client.ends(self._topic))
        sender = self._client.sender(self._topic)
        sender.send(Record(b"k", b"last"))
        sender.close()
        member = Running(lambda: self._client.member(self._group, self._topic))
        until(lambda: bool(member.read), "the last record")
        member.leave()
        same(member.values(), ["last"])

    def _transactions(self) -> None:
        for value, commits in (("one", True), ("three", False), ("sixteen", True)):
            position = (self._etl, self._topic, len(value))
            self._client.transact(self._name, self._within, value, position, commits)
        # Kafka responds to EndTxn before the markers are written.
        expected = {0: len("sixteen")}
        until(lambda: self._client.positions(self._etl, self._topic) == expected, "the position")

    def _committed(self) -> None:
        reader = Running(lambda: self._client.member(f"{self._name}-rc", self._within, True))
        until(lambda: len(reader.read) >= 2, "two records")
        reader.leave()
        same(reader.values(), ["one", "sixteen"])

    def _administration(self) -> None:
        same(self._client.offset_by_time(self._within, 1), 0)
        same({self._group, self._etl} <= self._client.groups(), True)
        if self._client.deletes_groups:
            self._client.delete_group(self._group)
            same(self._group in self._client.groups(), False)
        self._client.delete_topic(self._within)
        until(lambda: self._client.partitions(self._within) == 0, "the topic is gone")

    def _kill(self) -> None:
        """Send records while the broker is killed and started again, and afterwards."""
        witness = Running(lambda: self._client.member(f"{self._name}-w", self._killed))
        until(lambda: len(witness.assigned) == PARTITIONS, "the partitions")
        sender = self._client.sender(self._killed)
        up = threading.Event()

        def kill() -> None:
            kill_the_broker()
            up.set()

        killer = threading.Thread(target=kill, daemon=True)
        sent: list[str] = []
        while not up.is_set() or len(sent) < WHILE_KILLED:
            sent.append(f"v-{len(sent)}")
            sender.send(Record(None, sent[-1].encode()), len(sent) % PARTITIONS)
            if len(sent) == WHILE_KILLED // 2:
                killer.start()
            if len(sent) >= WHILE_KILLED // 2:
                up.wait(0.01)
        sender.close()
        each_once(sender.acknowledged, sent)
        until(
            lambda: set(sent) <= set(witness.values()), "all records for the member that was there"
        )
        witness.leave()
        reader = Running(lambda: self._client.member(f"{self._name}-r", self._killed))
        until(lambda: len(reader.read) >= len(sent), "all records")
        reader.leave()
        each_once(reader.values(), sent)
