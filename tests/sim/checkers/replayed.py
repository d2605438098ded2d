"""A replay of the logs gives the state that the broker has in memory: a second node reads a copy of
the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.storage.errors import DataDirectoryError
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.manager import LogManager
from odradek_testkit.simulation.broker import SeededRandomness
from odradek_testkit.simulation.clock import SimulatedClock, StoppedTimer
from odradek_testkit.simulation.disk import MemoryFiles

#: Durable state by name.
State = dict[str, object]

_COMPLETING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_STEPS_MAX = 1_000


class _LoadScheduler:
    """A scheduler that runs the steps of a load and ignores later timers."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> StoppedTimer:
        if delay_ms <= 0:
            self.due.append(callback)
        return StoppedTimer()


def load_node(config: BrokerConfig, files: MemoryFiles, wall_ms: int) -> Node:
    """Load a node completely from a disk, without starting a broker. Raises DataDirectoryError."""
    clock = SimulatedClock(wall_start_ms=wall_ms)
    randomness = SeededRandomness(Random(0))
    logs = LogManager(
        config.log_dirs,
        files,
        clock,
        randomness,
        config.default_log_config(),
        metadata_dir=config.data_dir,
        node_id=config.node_id,
        producer_expiration_ms=config.producer_id_expiration_ms,
    )
    asked: dict[LogDurability, None] = {}
    scheduler = _LoadScheduler()
    node = Node(
        config,
        clock=clock,
        randomness=randomness,
        logs=logs,
        scheduler=scheduler,
        request_flush=lambda log: asked.setdefault(log),
        metrics=BrokerMetrics(lambda: 0),
        on_fatal=lambda reason: None,
    )
    node.load()
    for log in logs:
        if not log.loaded and not log.offline:
            log.load(wall_ms)
    offline = [log.offline_reason for log in logs if log.offline]
    if offline:
        raise DataDirectoryError("; ".join(offline))
    for _ in range(_STEPS_MAX):
        if not asked and not scheduler.due:
            break
        flushed, asked = asked, {}
        for durability in flushed:
            durability.flush()
        due, scheduler.due = scheduler.due, []
        for callback in due:
            callback()
    return node


def durable_state(node: Node) -> State:
    """All state of a node that a restart must find again, except that of unopened logs."""
    return {
        **_metadata_state(node.metadata),
        **_log_states(node),
        **_group_states(node),
        **_transaction_states(node),
        **_share_states(node),
    }


def _metadata_state(metadata: ClusterMetadata) -> State:
    state: State = {"next producer id": metadata._next_producer_id}
    for topic in metadata.topics.values():
        state[f"topic {topic.name}"] = (topic.topic_id.hex(), sorted(topic.partitions))
    for resource_type, resources in metadata._configs.items():
        for name, settings in resources.items():
            if settings:
                state[f"settings of {resource_type} {name!r}"] = dict(sorted(settings.items()))
    for token in metadata.delegation_tokens.all():
        state[f"delegation token {token.token_id}"] = token
    for user, credentials in metadata.scram_credentials.items():
        state[f"credentials of {user}"] = dict(credentials)
    for acl in metadata.acls.by_id.values():
        state[f"ACL {acl}"] = acl
    return state


def _log_states(node: Node) -> State:
    state: State = {}
    now_ms = node.clock.wall_ms()
    for topic, _, partition in node.replicas.partitions():
        log = partition.log
        # Loading appends to internal topics: markers, leader epochs.
        if not log.loaded or log.offline or node.metadata.is_internal(topic):
            continue
        state[f"offsets of {log.name}"] = (
            log.topic_id.hex(),
            log.log_start_offset,
            log.last_stable_offset,
            log.log_end_offset,
        )
        for entry in log.producers.entries():
            # A restart may lose producers whose records were removed (P-25).
            left = tuple(
                batch for batch in entry.batches() if batch.base_offset >= log.log_start_offset
            )
            # An expired producer is in memory until the next check (P-24).
            expires_ms = entry.last_timestamp + log.producers.expiration_ms
            expired = entry.transaction_first_offset is None and expires_ms <= now_ms
            if not expired and (left or log.log_start_offset == 0):
                state[f"producer {entry.producer_id} in {log.name}"] = (
                    entry.epoch,
                    entry.coordinator_epoch if log.log_start_offset == 0 else None,
                    entry.transaction_first_offset,
                    left,
                )
    return state


def _group_states(node: Node) -> State:
    state: State = {}
    for runtime in node.groups.shards:
        if runtime.state is not RuntimeState.ACTIVE:
            continue
        core = runtime.core
        for name, classic in core.groups.items():
            if classic.stored is not None:
                state[f"classic group {name}"] = classic.stored
        for name, group in core.consumers.items():
            if not group.is_new:
                state[f"consumer group {name}"] = (
                    group.epoch,
                    group.assignment_epoch,
                    dict(sorted(group.members.items())),
                    dict(sorted(group.targets.items())),
                )
        for name, share in core.shares.items():
            state[f"share group {name}"] = (
                share.epoch,
                share.assignment_epoch,
                dict(sorted(share.members.items())),
                dict(sorted(share.targets.items())),
                share.states,
            )
        for name, streams in core.streams.items():
            state[f"streams group {name}"] = (
                streams.epoch,
                streams.validated_epoch,
                streams.assignment_epoch,
                streams.topology,
                dict(sorted(streams.members.items())),
                dict(sorted(streams.targets.items())),
            )
        for name in {**core.groups, **core.consumers, **core.streams}:
            for where, value in core.offsets.of_group(name).items():
                state[f"offset of {name} in {where[0]}-{where[1]}"] = value
    return state


def _transaction_states(node: Node) -> State:
    return {
        f"transactional id {name}": transaction
        for runtime in node.transactions.shards
        if runtime.state is RuntimeState.ACTIVE
        for name, transaction in runtime.core.transactions.items()
        # A restart completes these transactions while it loads them.
        if transaction.state not in _COMPLETING
    }


def _share_states(node: Node) -> State:
    return {
        f"share state of {key.group_id} in {key.topic_id.hex()}-{key.partition}": stored.state
        for runtime in node.share_state.shards
        if runtime.state is RuntimeState.ACTIVE
        for key, stored in runtime.core.partitions.items()
    }


def check_replayed(held: State, replayed: State) -> Iterator[str]:
    """Yield the differences between the state in memory and the state read from the disk."""
    for name in {**held, **replayed}:
        if held.get(name) != replayed.get(name):
            yield (
                f"{name}: {held.get(name, 'nothing')} in memory,"
                f" {replayed.get(name, 'nothing')} after a replay of the logs"
            )


def compare_with_disk(
    config: BrokerConfig, held: State, files: MemoryFiles, wall_ms: int
) -> Iterator[str]:
    """Yield the differences between `held` and the state that a start would read from the disk
    now."""
    try:
        replayed = durable_state(load_node(config, files.copy(), wall_ms))
    except DataDirectoryError as problem:
        yield f"the disk cannot be loaded: {problem}"
        return
    opened = {name.removeprefix("offsets of ") for name in held if name.startswith("offsets of ")}
    yield from check_replayed(
        held,
        {name: found for name, found in replayed.items() if _is_comparable(name, opened)},
    )


def _is_comparable(name: str, opened: set[str]) -> bool:
    """True if the state belongs to no log, or to a log that both nodes have opened."""
    if name.startswith("offsets of "):
        return name.removeprefix("offsets of ") in opened
    if name.startswith("producer "):
        return name.partition(" in ")[2] in opened
    return True
