"""The interface that tests of transactions use for every client, foreign or our own.

All waits end after DEADLINE_S.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

DEADLINE_S = 30.0


class TransactionalProducer(Protocol):
    """An initialized producer with a transactional id. `held`: the library's producer."""

    held: Any

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send a record and wait until it is acknowledged."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class TransactionalClient(Protocol):
    """The calls that tests make to a client library."""

    name: str
    #: The exception of a producer after another producer has taken over the transactional id.
    fenced: tuple[type[BaseException], ...]

    def producer(
        self, address: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        """Return an initialized producer; any open transaction of an earlier producer with this id
        has ended."""

    def read(self, address: str, topic: str, last: bytes, *, committed: bool = True) -> list[bytes]:
        """All values of partition 0 up to the value `last`."""

    def transform(
        self, address: str, source: str, target: str, group: str, count: int, *, commit: bool
    ) -> list[bytes]:
        """Read `count` values as a group, and write the values and the positions in one
        transaction.

        Commits or aborts the transaction, and returns the values.
        """


@contextlib.contextmanager
def transactional(
    client: TransactionalClient, address: str, transactional_id: str, timeout_ms: int = 60_000
) -> Iterator[TransactionalProducer]:
    """A producer that is closed at the end of the block, even if the test fails."""
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
    """The last part of `transform`: one transaction with these values, and with the offsets that
    `send_offsets` sends through the library's producer."""
    with transactional(client, address, f"transform-{group}") as producer:
        producer.begin()
        for value in values:
            producer.send(target, value)
        send_offsets(producer.held)
        (producer.commit if commit else producer.abort)()
