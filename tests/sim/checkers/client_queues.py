"""Resources of clients stay within their limits: memory of the accumulator, requests in flight,
fetches, commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from odradek_client.consumer.consumer import Consumer
from odradek_client.network.client import NetworkClient
from odradek_client.producer import producer as producers
from odradek_client.producer.producer import Producer

#: The limit of the requests of one consumer or admin that wait on one connection. The limit of the
#: callers that wait for metadata is the same.
_REQUESTS_MAX = 20
#: The limit of connections to one broker: one connection for each purpose.
_CHANNELS_MAX = 4


def check_clients(
    loop: asyncio.AbstractEventLoop,
    networks: Iterable[NetworkClient],
    consumers: Iterable[Consumer],
) -> Iterator[str]:
    """Check all started clients of a loop."""
    yield from check_producers(loop)
    for network in networks:
        yield from check_network(network)
    for consumer in consumers:
        yield from check_consumer(consumer)


def check_network(network: NetworkClient) -> Iterator[str]:
    """Check a client's network; may be called at any time."""
    name, connections = network.config.client_id, network.connections
    known = len(network.cluster.brokers) + len(connections._bootstrap)
    # The connection to a broker that has left the metadata is closed only after a long idle time.
    if len(connections.nodes) > (known + 1) * _CHANNELS_MAX:
        yield f"{name} has {len(connections.nodes)} connections to {known} brokers"
    for (node_id, channel), node in connections.nodes.items():
        connection = node.connection
        if connection is None:
            continue
        if len(connection.unanswered) > connection._settings.max_in_flight:
            yield (
                f"{name} has {len(connection.unanswered)} requests unanswered by {node_id}"
                f" ({channel}), of {connection._settings.max_in_flight}"
            )
        if len(connection.unanswered) + len(connection.queued) > _REQUESTS_MAX:
            yield f"{name} has {len(connection.queued)} requests waiting for {node_id} ({channel})"
    if len(network.metadata._waiters) > _REQUESTS_MAX:
        yield f"{name} has {len(network.metadata._waiters)} callers that wait for metadata"


def check_consumer(consumer: Consumer) -> Iterator[str]:
    """Check the requests and commits of a consumer; may be called at any time."""
    name, fetcher = consumer.config.client_id, consumer._fetcher
    fetches = len(consumer._loop._fetches)
    if fetches < len(fetcher._in_flight):
        yield f"{name} takes {len(fetcher._in_flight)} brokers for asked, and waits for {fetches} answers"
    # A completed fetch may stay in the list for a moment.
    if fetches > 2 * len(fetcher._sessions):
        yield f"{name} waits for {fetches} fetches of {len(fetcher._sessions)} brokers"
    if consumer._group is not None:
        pending = len(consumer._group.offsets._queue.pending())
        # One automatic commit in the background, and one that a caller awaits.
        if pending > len(consumer._commits) + 2:
            yield f"{name} has {pending} commits without an outcome"


def check_producers(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    """Check all producers of a loop that are not closed."""
    found = [each for each in producers._open if each.network._loop is loop]
    for producer in sorted(found, key=lambda each: each.config.client_id):
        yield from check_producer(producer)


def check_producer(producer: Producer) -> Iterator[str]:
    """Check a producer; may be called at any time."""
    config, name = producer.config, producer.config.client_id
    accumulator, sender = producer.accumulator, producer._sender
    if accumulator is None or sender is None:
        return
    reserved = sum(batch.reserved_bytes for batch in accumulator.incomplete)
    if accumulator.available_bytes + reserved != config.buffer_memory:
        yield (
            f"{name} has {accumulator.available_bytes} bytes left, and batches hold {reserved} of"
            f" {config.buffer_memory}"
        )
    if accumulator.available_bytes < 0:
        yield f"{name} has taken {-accumulator.available_bytes} bytes more than buffer_memory"
    most = config.max_in_flight_requests_per_connection
    for node_id, in_flight in sender._in_flight.items():
        if not 0 <= in_flight <= most:
            yield f"{name} has {in_flight} produce requests in flight to {node_id}, of {most}"
