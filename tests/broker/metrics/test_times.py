"""The times of the disk and the event loop that a running broker measures."""

from __future__ import annotations

import socket

from broker_in_loop import StartBroker
from odradek import Admin, NewTopic, Producer
from waiting import until


async def test_journal_writes_and_event_loop_delays_are_measured(start_broker: StartBroker) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    broker = await start_broker(http_listen=address)
    metrics, bootstrap = broker.server.metrics, f"{broker.host}:{broker.port}"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 1)])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        while not sum(metrics.journal_writes.counts):
            await producer.send_and_wait("t", b"x")
    journaled = sum(metrics.journal_writes.counts)
    assert metrics.flushes.count > journaled, "files are flushed too"
    assert broker.node.logs.directories[0].journal.used_bytes > 0
    await until(lambda: sum(metrics.loop_delays.counts) > 2)


async def test_the_event_loop_delay_is_not_measured_without_the_http_endpoint(
    start_broker: StartBroker,
) -> None:
    """Without the endpoint the broker sleeps while it has nothing to do."""
    broker = await start_broker()
    async with Admin(bootstrap_servers=f"{broker.host}:{broker.port}") as admin:
        await admin.create_topics([NewTopic("t", 1)])
    assert len(broker.server._tasks) == 3
    assert sum(broker.server.metrics.loop_delays.counts) == 0
