"""The interface of tests of transactions to every client, foreign or our own. All waits are bounded
by DEADLINE_S."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

DEADLINE_S = 30.0


class TransactionalProducer(Protocol):
    """A producer with a transactional id, initialized. `held`: the library's own object."""

    held: Any

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send a record and wait until it is acknowledged."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class TransactionalClient(Protocol):
    """The calls that the tests make to every library."""

    name: str
    #: The exception of a producer whose transactional id has been taken over.
    fenced: tuple[type[BaseException], ...]

    def producer(
        self, address: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        """A producer; an earlier producer's open transaction with this id has ended by then."""

    def read(self, address: str, topic: str, last: bytes, *, committed: bool = True) -> list[bytes]:
        """All values of partition 0 up to `last`."""

    def transform(
        self, address: str, source: str, target: str, group: str, count: int, *, commit: bool
    ) -> list[bytes]:
        """Read `count` values as a group, write them and the positions in one transaction.

        Commits or aborts the transaction; returns the values.
        """


@contextlib.contextmanager
def transactional(
    client: TransactionalClient, address: str, transactional_id: str, timeout_ms: int = 60_000
) -> Iterator[TransactionalProducer]:
    """A producer that is closed at the end, even if the test fails."""
    producer = client.producer(address, transactional_id, timeout_ms)
    try:
        yield producer
    finally:
        producer.close()


def produce_with_offsets(
    client: TransactionalClient,
    address: str,
    target: str,
    group: str,
    values: Sequence[bytes],
    send_offsets: Callable[[Any], object],
    *,
    commit: bool,
) -> None:
    """The end of `transform`: one transaction of these values and of the offsets that
    `send_offsets` sends through the library's own producer."""
    with transactional(client, address, f"transform-{group}") as producer:
        producer.begin()
        for value in values:
            producer.send(target, value)
        send_offsets(producer.held)
        (producer.commit if commit else producer.abort)()
