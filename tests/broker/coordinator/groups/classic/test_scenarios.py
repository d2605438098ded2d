"""The three scenarios of a growing group, and lost answers, step by step (G-95 to G-99).

Each test ends with the journal of all events in order: `>` is a request, `<` its answer, `=` a new
state of the group.
"""

from __future__ import annotations

from itertools import groupby

import pytest

from group_world import GroupWorld
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import JoinGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupResponse

E = ErrorCode
PARTITIONS = 3
INITIAL_DELAY_MS = 3_000


class Stage:
    """A world, its consumers by name, and the journal."""

    def __init__(self, delay_ms: int = 0) -> None:
        self.world = GroupWorld(group_initial_rebalance_delay_ms=delay_ms)
        self.delay_ms = delay_ms
        self.names: dict[str, str] = {}
        self._journal: list[str] = []
        self._states = 0

    def consumer(self, name: str) -> Consumer:
        made = Consumer(self, name)
        self.names[made.member_id] = name
        return made

    def note(self, line: str) -> None:
        self._catch_up()
        self._journal.append(line)

    def _catch_up(self) -> None:
        for state in self.world.states[self._states :]:
            self._journal.append(f"= {state.value}")
        self._states = len(self.world.states)

    def journal(self) -> list[str]:
        """The events since the last call.

        Answers that are sent together on different connections are sorted by the names of the
        consumers.
        """
        self._catch_up()
        journal, self._journal = self._journal, []
        ordered: list[str] = []
        for answers, lines in groupby(journal, key=lambda line: line.startswith("<")):
            together = list(lines)
            ordered += sorted(together) if answers else together
        return ordered

    @property
    def generation(self) -> int:
        return self.world.group().generation


class Consumer:
    """A client that follows the protocol, one step at a time."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.member_id = stage.world.new_id()
        self.generation = -1
        self.revoked = 0
        self.assigned: list[bytes] = []
        self.members: list[str] = []
        # a new consumer has no partitions, but calls its listener at the first join too (K-31)
        self._holds = True

    def join(self, *, lost: bool = False) -> Consumer:
        """Join the group. `lost`: the answer is lost."""
        if self._holds:
            self.revoked += 1
            self._holds = False
        self.stage.note(f"> join {self.name}")
        answer = self.stage.world.join(self.member_id)
        # `note` lists the states that the group entered before it sent the answer, then the answer.
        answer.then(lambda response: self._joined(response, lost))
        return self

    def _joined(self, answer: JoinGroupResponse, lost: bool) -> None:
        names = self.stage.names
        error = ErrorCode(answer.error_code)
        line = f"< join {self.name} {error.name}"
        if error is E.NONE:
            assert answer.member_id == self.member_id
            line += f" {answer.generation_id} led by {names[answer.leader]}"
            leads = answer.leader == self.member_id
            assert bool(answer.members) == leads
            if leads:
                line += ": " + " ".join(names[member.member_id] for member in answer.members)
        self.stage.note(line + (" (lost)" if lost else ""))
        if error is E.NONE and not lost:
            self.generation = answer.generation_id
            self.members = [member.member_id for member in answer.members]

    def sync(self) -> Consumer:
        """Send SyncGroup. The leader's request assigns the partitions to the members in turn; a
        follower's request has no assignment."""
        given = {
            member_id: bytes(range(PARTITIONS)[at :: len(self.members)])
            for at, member_id in enumerate(self.members)
        }
        self.stage.note(f"> sync {self.name} {self.generation}")
        answer = self.stage.world.sync(self.member_id, self.generation, given)
        answer.then(self._synced)
        return self

    def _synced(self, answer: SyncGroupResponse) -> None:
        error = ErrorCode(answer.error_code)
        line = f"< sync {self.name} {error.name}"
        if error is E.NONE:
            self.assigned.append(answer.assignment)
            self._holds = True
            line += f" {list(answer.assignment)}"
        self.stage.note(line)

    def heartbeat(self) -> Consumer:
        error = self.stage.world.heartbeat(self.member_id, self.generation)
        self.stage.note(f"heartbeat {self.name} {error.name}")
        return self

    def leave(self) -> None:
        self.stage.note(f"> leave {self.name}")
        assert self.stage.world.leave(self.member_id) == [E.NONE]


@pytest.fixture(params=[0, INITIAL_DELAY_MS], ids=["no delay", "3 s"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


def _all_leave(stage: Stage, *consumers: Consumer) -> None:
    """All consumers leave, one after the other; the group is then Empty."""
    stage.journal()
    for consumer in consumers:
        consumer.leave()
    first, *others = [f"> leave {consumer.name}" for consumer in consumers]
    assert stage.journal() == [first, "= PreparingRebalance", *others, "= Empty"]
    assert not stage.world.group().members


def _first_alone(stage: Stage) -> Consumer:
    """A consumer that is alone in its group and has all partitions."""
    one = stage.consumer("1").join()
    stage.world.wait(stage.delay_ms)
    one.sync()
    assert stage.journal() == [
        "> join 1",
        "= PreparingRebalance",
        "= CompletingRebalance",
        "< join 1 NONE 1 led by 1: 1",
        "> sync 1 1",
        "= Stable",
        "< sync 1 NONE [0, 1, 2]",
    ]
    return one


def test_g95_three_consumers_that_join_at_once_see_one_rebalance_each() -> None:
    stage = Stage()
    three = stage.consumer("3").join()
    two, one = stage.consumer("2").join(), stage.consumer("1").join()
    three.sync()
    three.join()
    three.sync()
    two.sync()
    one.sync()
    assert stage.journal() == [
        "> join 3",
        "= PreparingRebalance",
        "= CompletingRebalance",
        "< join 3 NONE 1 led by 3: 3",
        "> join 2",
        "= PreparingRebalance",
        "> join 1",
        "> sync 3 1",
        "< sync 3 REBALANCE_IN_PROGRESS",
        "> join 3",
        "= CompletingRebalance",
        "< join 1 NONE 2 led by 3",
        "< join 2 NONE 2 led by 3",
        "< join 3 NONE 2 led by 3: 3 2 1",
        "> sync 3 2",
        "= Stable",
        "< sync 3 NONE [0]",
        "> sync 2 2",
        "< sync 2 NONE [1]",
        "> sync 1 2",
        "< sync 1 NONE [2]",
    ]
    for consumer in (one, two, three):
        assert (consumer.revoked, len(consumer.assigned)) == (1, 1)
    _all_leave(stage, one, two, three)
    assert stage.generation == 3


def test_g98_three_consumers_join_once_each_within_the_initial_delay() -> None:
    stage = Stage(INITIAL_DELAY_MS)
    consumers = [stage.consumer(name).join() for name in "321"]
    stage.world.wait(INITIAL_DELAY_MS)
    # Two consumers joined during the delay, so the delay is extended by another 3 s (G-44).
    stage.world.wait(INITIAL_DELAY_MS - 1)
    assert stage.journal() == ["> join 3", "= PreparingRebalance", "> join 2", "> join 1"]
    stage.world.wait(1)
    for consumer in consumers:
        consumer.sync()
    assert stage.journal() == [
        "= CompletingRebalance",
        "< join 1 NONE 1 led by 3",
        "< join 2 NONE 1 led by 3",
        "< join 3 NONE 1 led by 3: 3 2 1",
        "> sync 3 1",
        "= Stable",
        "< sync 3 NONE [0]",
        "> sync 2 1",
        "< sync 2 NONE [1]",
        "> sync 1 1",
        "< sync 1 NONE [2]",
    ]
    for consumer in consumers:
        assert (consumer.revoked, len(consumer.assigned)) == (1, 1)
    _all_leave(stage, *consumers)


def test_g96_one_consumer_and_then_two_more_cause_two_rebalances(stage: Stage) -> None:
    one = _first_alone(stage)
    stage.world.wait(1_000)
    two, three = stage.consumer("2").join(), stage.consumer("3").join()
    one.heartbeat().join()
    one.sync()
    two.sync()
    three.sync()
    assert stage.journal() == [
        "> join 2",
        "= PreparingRebalance",
        "> join 3",
        "heartbeat 1 REBALANCE_IN_PROGRESS",
        "> join 1",
        "= CompletingRebalance",
        "< join 1 NONE 2 led by 1: 1 2 3",
        "< join 2 NONE 2 led by 1",
        "< join 3 NONE 2 led by 1",
        "> sync 1 2",
        "= Stable",
        "< sync 1 NONE [0]",
        "> sync 2 2",
        "< sync 2 NONE [1]",
        "> sync 3 2",
        "< sync 3 NONE [2]",
    ]
    assert one.assigned == [bytes([0, 1, 2]), bytes([0])]
    assert (one.revoked, two.revoked, three.revoked) == (2, 1, 1)
    assert (len(two.assigned), len(three.assigned)) == (1, 1)
    _all_leave(stage, one, two, three)


def test_g97_three_consumers_one_after_the_other_cause_three_rebalances(stage: Stage) -> None:
    one = _first_alone(stage)
    stage.world.wait(1_000)
    two = stage.consumer("2").join()
    one.heartbeat().join()
    one.sync()
    two.sync()
    assert stage.journal() == [
        "> join 2",
        "= PreparingRebalance",
        "heartbeat 1 REBALANCE_IN_PROGRESS",
        "> join 1",
        "= CompletingRebalance",
        "< join 1 NONE 2 led by 1: 1 2",
        "< join 2 NONE 2 led by 1",
        "> sync 1 2",
        "= Stable",
        "< sync 1 NONE [0, 2]",
        "> sync 2 2",
        "< sync 2 NONE [1]",
    ]
    stage.world.wait(2_000)
    three = stage.consumer("3").join()
    one.heartbeat().join()
    two.heartbeat().join()
    for consumer in (one, two, three):
        consumer.sync()
    assert stage.journal() == [
        "> join 3",
        "= PreparingRebalance",
        "heartbeat 1 REBALANCE_IN_PROGRESS",
        "> join 1",
        "heartbeat 2 REBALANCE_IN_PROGRESS",
        "> join 2",
        "= CompletingRebalance",
        "< join 1 NONE 3 led by 1: 1 2 3",
        "< join 2 NONE 3 led by 1",
        "< join 3 NONE 3 led by 1",
        "> sync 1 3",
        "= Stable",
        "< sync 1 NONE [0]",
        "> sync 2 3",
        "< sync 2 NONE [1]",
        "> sync 3 3",
        "< sync 3 NONE [2]",
    ]
    assert (one.revoked, two.revoked, three.revoked) == (3, 2, 1)
    assert [len(part) for part in one.assigned] == [3, 2, 1]
    assert [len(part) for part in two.assigned] == [1, 1]
    _all_leave(stage, one, two, three)


def _three_join(stage: Stage, lost: str = "") -> list[Consumer]:
    """Three members, of which the first is the leader. `lost`: the member whose answer is lost."""
    consumers = [stage.consumer(name) for name in "123"]
    one, *others = consumers
    if stage.delay_ms:
        for consumer in consumers:
            consumer.join(lost=consumer.name == lost)
        stage.world.wait(2 * stage.delay_ms)
    else:
        one.join().sync()
        for consumer in others:
            consumer.join(lost=consumer.name == lost)
        one.join(lost=lost == "1")
    stage.journal()
    assert stage.world.state() is GroupState.COMPLETING_REBALANCE
    return consumers


def test_g99_a_follower_whose_join_answer_was_lost_gets_it_again(stage: Stage) -> None:
    one, two, three = _three_join(stage, lost="3")
    generation = stage.generation
    two.sync()
    one.sync()
    three.join()
    three.sync()
    assert stage.journal() == [
        f"> sync 2 {generation}",
        f"> sync 1 {generation}",
        "= Stable",
        "< sync 1 NONE [0]",
        "< sync 2 NONE [1]",
        "> join 3",
        f"< join 3 NONE {generation} led by 1",
        f"> sync 3 {generation}",
        "< sync 3 NONE [2]",
    ]
    assert stage.generation == generation


def test_g99_the_group_waits_for_a_leader_whose_join_answer_was_lost(stage: Stage) -> None:
    one, two, three = _three_join(stage, lost="1")
    generation = stage.generation
    two.sync()
    three.sync()
    one.join()
    one.sync()
    assert stage.journal() == [
        f"> sync 2 {generation}",
        f"> sync 3 {generation}",
        "> join 1",
        f"< join 1 NONE {generation} led by 1: 1 2 3",
        f"> sync 1 {generation}",
        "= Stable",
        "< sync 1 NONE [0]",
        "< sync 2 NONE [1]",
        "< sync 3 NONE [2]",
    ]
    assert stage.generation == generation


def test_g99_followers_may_sync_before_or_after_the_leader(stage: Stage) -> None:
    one, two, three = _three_join(stage)
    generation = stage.generation
    two.sync()
    one.sync()
    three.sync()
    assert stage.journal() == [
        f"> sync 2 {generation}",
        f"> sync 1 {generation}",
        "= Stable",
        "< sync 1 NONE [0]",
        "< sync 2 NONE [1]",
        f"> sync 3 {generation}",
        "< sync 3 NONE [2]",
    ]


@pytest.mark.parametrize("lost", ["join", "sync"])
def test_g99_a_lost_answer_across_a_restart_costs_at_most_one_rebalance(
    stage: Stage, lost: str
) -> None:
    consumers = _three_join(stage)
    generation = stage.generation
    if lost == "sync":
        for consumer in consumers:
            consumer.sync()
    stage.world.restart()
    if lost == "sync":
        assert stage.world.state() is GroupState.STABLE
        stage.journal()
        for consumer in consumers:
            consumer.sync()
        assert [line for line in stage.journal() if line.startswith("<")] == [
            "< sync 1 NONE [0]",
            "< sync 2 NONE [1]",
            "< sync 3 NONE [2]",
        ]
        assert stage.generation == generation
    else:
        for consumer in consumers:
            consumer.join()
        for consumer in consumers:
            consumer.sync()
        assert stage.generation == generation + 1
        assert [list(consumer.assigned[-1]) for consumer in consumers] == [[0], [1], [2]]
