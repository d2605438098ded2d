"""A share coordinator in a `CoordinatorWorld`, with a topic of ten partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordinator_world import CoordinatorWorld, Topics
from odradek_broker.coordinator.shards import Shards
from odradek_broker.coordinator.share.coordinator import ShareCoordinator
from odradek_broker.coordinator.share.shard import ShareShard
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.share_state import ShareKey, ShareState, StateBatch, StateResult
from odradek_protocol.errors import ErrorCode

TOPIC_ID = bytes(range(16))
KEY = ShareKey("g", TOPIC_ID, 0)


@dataclass(frozen=True)
class Settings:
    """The broker's settings."""

    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_state_topic_prune_interval_ms: int = 300_000
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000
    share_coordinator_write_timeout_ms: int = 5_000


class ShareStateWorld(CoordinatorWorld):
    """The node of a share coordinator. `pruned`: every deletion of old records."""

    def __init__(self, *, partitions: int = 1, topic: bool = True, **settings: Any) -> None:
        metadata = Topics({"topic": 10}, {"topic": TOPIC_ID})
        super().__init__(metadata, SHARE_STATE_TOPIC, partitions=partitions, topic_exists=topic)
        self.settings = replace(Settings(), **settings)
        self.pruned: list[dict[int, int]] = []
        self.start()

    def _new_coordinator(self) -> Shards[Any]:
        self.share = ShareCoordinator(
            self.settings,
            metadata=self.metadata,
            internal_partition=self.internal_partition,
            ensure_topic=self.ensure_internal_topic,
            prune=self.prune,
            state_changed=lambda key: None,
            clock=self.clock,
            scheduler=self,
            slices=self.slices,
        )
        return self.share.shards

    @property
    def share_state(self) -> ShareCoordinator:
        return self.share

    def prune(self, offsets: dict[int, int]) -> None:
        self.pruned.append(offsets)
        for index, offset in offsets.items():
            self.topic_partitions[index].start = offset

    def delete_topic(self) -> None:
        self.metadata.counts.pop("topic")
        self.metadata.ids.pop("topic")

    # --- Calls ---

    def initialize(self, state_epoch: int = 1, start_offset: int = 0, key: ShareKey = KEY) -> None:
        """Initialize a share partition, which must succeed."""
        result = self.share.initialize(key, state_epoch, start_offset).result()
        assert result == StateResult()

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete: int = 0,
        key: ShareKey = KEY,
    ) -> ErrorCode:
        return (
            self.write_later(
                batches,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                complete=complete,
                key=key,
            )
            .result()
            .error
        )

    def write_later(
        self,
        batches: Sequence[tuple[int, int, int, int]] = (),
        *,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete: int = 0,
        key: ShareKey = KEY,
    ) -> Deferred[StateResult]:
        given = tuple(StateBatch(*each) for each in batches)
        change = ShareState(0, state_epoch, leader_epoch, start_offset, complete, given)
        return self.share.write(key, change)

    def read(self, leader_epoch: int = 0, key: ShareKey = KEY) -> ShareState:
        """Read the state of a share partition, which must succeed."""
        result = self.share.read(key, leader_epoch).result()
        assert result.error is ErrorCode.NONE and result.state is not None, result
        return result.state

    def batches(self, key: ShareKey = KEY) -> list[tuple[int, ...]]:
        """The state batches in memory, whether they are durable or not."""
        return [tuple(each) for each in self.stored(key).batches]

    def stored(self, key: ShareKey = KEY) -> ShareState:
        """The state in memory, whether it is durable or not."""
        (state,) = [shard.partitions[key].state for shard in self.cores if key in shard.partitions]
        return state

    @property
    def cores(self) -> list[ShareShard]:
        return self.share.shards.cores

    def run_scheduled(self) -> None:
        """Run what was scheduled for the next turn of the loop."""
        due = [callback for at_ms, callback in self.timers if at_ms <= self.clock.monotonic_ms()]
        self.timers = [each for each in self.timers if each[0] > self.clock.monotonic_ms()]
        for callback in due:
            callback()
