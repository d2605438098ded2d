"""No queue of a broker grows without a limit, and all queues are empty after the clients have
ended."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.checkers.coordinator_queues import (
    check_coordinators,
    waiting_in_coordinators,
)

from odradek_broker.fetch.sessions import RequestedPartition
from odradek_broker.node import Node
from odradek_broker.partition import UpToDateSession
from odradek_broker.server.server import Server


def check_limits(server: Server) -> Iterator[str]:
    """Yield exceeded limits; may be called at any time."""
    limits = server.limits
    sessions = list(server.sessions)
    for session in sessions:
        if len(session._slots) > limits.in_flight_max:
            yield f"a connection has {len(session._slots)} requests in flight"
    held = sum(session._bytes_held for session in sessions)
    unsent = sum(session._unsent for session in sessions)
    if held + unsent != limits.bytes_held:
        yield f"connections hold {held} + {unsent} bytes, and {limits.bytes_held} are counted"
    unfinished = sum(session._unfinished_bytes for session in sessions)
    if unfinished != limits.unfinished_bytes:
        yield f"{unfinished} bytes of requests arrive, and {limits.unfinished_bytes} are counted"
    node = server.node
    parked_max = len(sessions) * limits.in_flight_max
    if len(node.parked_fetches) > parked_max:
        yield f"{len(node.parked_fetches)} fetches are parked by {len(sessions)} connections"
    slots_max = node.config.max_incremental_fetch_session_cache_slots
    if len(node.fetch_sessions.by_id) > slots_max:
        yield f"{len(node.fetch_sessions.by_id)} fetch sessions, of at most {slots_max}"
    for topic, index, partition in node.replicas.partitions():
        gone = [each for each in partition.up_to_date_sessions if not _is_kept(node, each)]
        if gone:
            yield f"{topic}-{index} would tell {len(gone)} sessions that are gone when it moves"
    yield from check_coordinators(node)


def _is_kept(node: Node, requested: UpToDateSession) -> bool:
    """True if the broker still has this fetch session."""
    if not isinstance(requested, RequestedPartition) or requested.session is None:
        return False
    session = requested.session
    return node.fetch_sessions.by_id.get(session.id) is session


def check_empty(server: Server) -> Iterator[str]:
    """Yield what still waits after all clients have ended and all deadlines have passed."""
    node = server.node
    waiting = {
        "connections": len(server.sessions),
        "bytes held by connections": server.limits.bytes_held,
        "bytes of unfinished requests": server.limits.unfinished_bytes,
        "connections that wait for memory": len(server.limits.waiting),
        "parked fetches": len(node.parked_fetches),
        "requests in slices": node.slices.unfinished,
        "share sessions": len(node.share_sessions),
        "share partitions without a session": len(node.share_partitions),
        "flushes": len(server.group_commit._asked) + len(server.group_commit._running),
        "producer ids asked for": len(node.producer_ids._waiting),
        "batches that wait for their transaction": len(node.verification._queues),
        "questions about transactions": len(node.verification._questions),
    }
    for topic, index, partition in node.replicas.partitions():
        waiting[f"waiters for data of {topic}-{index}"] = len(partition.data_waiters)
        waiting[f"waiters for the disk of {topic}-{index}"] = len(partition.durable_waiters)
    waiting |= waiting_in_coordinators(node)
    yield from (f"{count} {what} are left" for what, count in waiting.items() if count)
