"""Our own client as a `TransactionalClient`: transactions of version 2."""

from __future__ import annotations

from typing import Any

from odradek import sync
from odradek_client.errors import Fatal
from transactional_clients import DEADLINE_S, TransactionalProducer, produce_with_offsets

_DEADLINE_MS = DEADLINE_S * 1000


class _OwnProducer:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self.held = sync.Producer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=round(_DEADLINE_MS),
        )
        self.held.start()
        self.held.init_transactions()

    def begin(self) -> None:
        self.held.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.held.send(topic, value, partition=partition).result(_DEADLINE_MS)

    def commit(self) -> None:
        self.held.commit_transaction()

    def abort(self) -> None:
        self.held.abort_transaction()

    def close(self) -> None:
        self.held.close()


class Own:
    name = "odradek"
    fenced: tuple[type[BaseException], ...] = (Fatal,)

    def producer(
        self, address: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        return _OwnProducer(address, transactional_id, timeout_ms)

    def read(self, address: str, topic: str, last: bytes, *, committed: bool = True) -> list[bytes]:
        with self._consumer(address, None, committed) as consumer:
            consumer.assign([(topic, 0)])
            values: list[bytes] = []
            while last not in values:
                values.append(bytes(consumer.getone().value))
            return values

    def transform(
        self, address: str, source: str, target: str, group: str, count: int, *, commit: bool
    ) -> list[bytes]:
        with self._consumer(address, group, True) as consumer:
            consumer.subscribe([source])
            values = [bytes(consumer.getone().value) for _ in range(count)]

            def send_offsets(producer: sync.Producer) -> None:
                producer.send_offsets_to_transaction(
                    {part: consumer.position(part) for part in consumer.assignment()},
                    consumer.group_metadata(),
                )

            produce_with_offsets(self, address, target, group, values, send_offsets, commit=commit)
            return values

    def _consumer(self, address: str, group: str | None, committed: bool) -> Any:
        return sync.Consumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if committed else "read_uncommitted",
            fetch_max_wait_ms=100,
        )
