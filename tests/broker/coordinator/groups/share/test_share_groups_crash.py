"""Share groups survive power cuts between any two steps (H-04, H-20).

The tests run a whole node over files in memory, with the coordinators of groups and share states.
"""

from __future__ import annotations

import random

import pytest

import budget
from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.share_state import ShareKey
from odradek_protocol.errors import ErrorCode as E
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

GROUP = "g"
PARTITIONS = 3


class ShareNode(NodeWorld):
    """A node with a topic, and a share group of one member."""

    def __init__(self) -> None:
        super().__init__(
            log_durability="fsync",
            offsets_topic_num_partitions="1",
            share_coordinator_state_topic_num_partitions="2",
        )
        self.create("topic", PARTITIONS)
        self.node.ensure_internal_topic(OFFSETS_TOPIC)
        self.finish()

    def finish(self) -> None:
        """Flush until everything that was begun is durable."""
        for _ in range(20):
            self.flush()
            self.soon.run()

    def beat_later(self, epoch: int) -> Deferred[ShareGroupHeartbeatResponse]:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="m",
            member_epoch=epoch,
            subscribed_topic_names=["topic"] if epoch == 0 else None,
        )
        return self.node.groups.share.heartbeat(request, "client", "/host")

    def beat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        deferred = self.beat_later(epoch)
        self.finish()
        return deferred.result()

    @property
    def epoch(self) -> int:
        group = self.node.groups.share_group(GROUP)
        member = None if group is None else group.members.get("m")
        return 0 if member is None else member.epoch

    def state_epochs(self) -> set[int]:
        """The state epochs of the partitions that the group has recorded as initialized."""
        found = self.node.groups.share.initialized_partitions(GROUP)
        self.finish()
        epochs = set()
        for topic_id, indexes in found.result()[1].items():
            for index in indexes:
                key = ShareKey(GROUP, topic_id, index)
                result = self.node.share_state.read_summary(key, 0)
                self.finish()
                state = result.result().state
                assert state is not None
                epochs.add(state.state_epoch)
        return epochs

    def settle(self) -> int:
        """Send heartbeats until the member has all partitions; returns the number of its
        partitions."""
        for _ in range(4):
            self.clock.now_ms += 31_000
            answer = self.beat(self.epoch)
            assert answer.error_code == E.NONE
        group = self.node.groups.share_group(GROUP)
        assert group is not None
        return sum(len(indexes) for indexes in group.members["m"].assigned.values())


@pytest.mark.parametrize("seed", range(budget.examples(60)))
def test_h04_h20_a_power_cut_between_any_two_steps_loses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    world = ShareNode()
    shown = 0
    waiting: list[Deferred[ShareGroupHeartbeatResponse]] = []
    for _ in range(rng.randint(1, 25)):
        action = rng.random()
        if action < 0.4:
            waiting.append(world.beat_later(world.epoch))
            world.clock.now_ms += rng.choice((0, 1_000, 31_000))
        elif action < 0.7:
            world.flush()
        elif action < 0.9:
            world.soon.turn()
        else:
            world.crash(keep_page_cache=rng.random() < 0.5, rng=rng)
            assert world.epoch >= shown, "an answer showed what was not durable"
            waiting.clear()
        for answer in [each.result() for each in waiting if each.done]:
            if not answer.error_code:
                shown = max(shown, answer.member_epoch)
        waiting = [each for each in waiting if not each.done]
    world.crash(keep_page_cache=rng.random() < 0.5, rng=rng)
    assert world.epoch >= shown
    assert world.settle() == PARTITIONS
    assert min(world.state_epochs()) >= 2, "a partition was assigned before it had a state"


def test_h28_a_power_cut_during_a_deletion_leaves_a_group_that_can_be_deleted() -> None:
    for steps in range(12):
        world = ShareNode()
        world.beat(0)
        assert world.settle() == PARTITIONS
        world.beat(-1)
        deferred = world.node.groups.delete_group(GROUP)
        for _ in range(steps):
            world.flush()
        answered = deferred.done
        world.crash(keep_page_cache=False)
        if answered:
            assert world.node.groups.share_group(GROUP) is None
            continue
        again = world.node.groups.delete_group(GROUP)
        world.finish()
        assert again.result() in (E.NONE, E.GROUP_ID_NOT_FOUND)
        assert world.node.groups.share_group(GROUP) is None
