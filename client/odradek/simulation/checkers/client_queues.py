"""What producers hold is within their limits: memory of the accumulator, requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from odradek_client.producer import producer as producers
from odradek_client.producer.producer import Producer


def check_producers(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    """Of all producers of a loop that nobody has closed."""
    found = [each for each in producers._open if each._network._loop is loop]
    for producer in sorted(found, key=lambda each: each.config.client_id):
        yield from check_producer(producer)


def check_producer(producer: Producer) -> Iterator[str]:
    """At any time."""
    config, name = producer.config, producer.config.client_id
    accumulator, sender = producer._accumulator, producer._sender
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
    for (node_id, channel), node in producer._network._nodes.items():
        unanswered = 0 if node.connection is None else len(node.connection._unanswered)
        if unanswered > most:
            yield f"{name} has {unanswered} requests unanswered by {node_id} ({channel}), of {most}"
