"""Random calls against a model that has one state for each offset (H-103 to H-107, H-109)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from budget import examples
from odradek_broker.share_state import ShareState, StateBatch, StateResult
from odradek_protocol.errors import ErrorCode
from share_state_world import KEY, ShareStateWorld

E = ErrorCode
_INTERVAL_MS = 10_000

Batch = tuple[int, int, int, int]

_EPOCHS = st.integers(-1, 4)
_STARTS = st.integers(-1, 25)
_BATCHES = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(0, 6), st.sampled_from([0, 2, 4]), st.integers(1, 3)
    ).map(lambda each: (each[0], each[0] + each[1], each[2], each[3])),
    max_size=3,
)
_CALLS = st.one_of(
    st.tuples(st.just("initialize"), _EPOCHS, _STARTS),
    st.tuples(st.just("read"), _EPOCHS),
    st.tuples(st.just("write"), _EPOCHS, _EPOCHS, _STARTS, st.integers(-1, 9), _BATCHES),
    st.tuples(st.just("write"), st.just(-1), st.just(-1), _STARTS, st.integers(0, 9), _BATCHES),
    st.tuples(st.just("delete")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("wait")),
)


@dataclass
class Model:
    """The state of one share partition; `states` maps offsets to (delivery count, state)."""

    state_epoch: int
    start: int
    complete: int
    state_epoch_max: int
    leader_epoch: int = 0
    leader_epoch_max: int = 0
    states: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, start: int, complete: int, batches: list[Batch]) -> None:
        if start != -1:
            self.start = start
        self.complete = complete
        for first, last, state, count in batches:
            for offset in range(first, last + 1):
                self.states[offset] = max(self.states.get(offset, (0, 0)), (count, state))
        self.states = {at: each for at, each in self.states.items() if at >= self.start}

    def agrees_with(self, found: ShareState) -> bool:
        by_offset: dict[int, tuple[int, int]] = {}
        for first, last, state, count in found.batches:
            for offset in range(first, last + 1):
                assert offset not in by_offset, "batches overlap"
                by_offset[offset] = (count, state)
        return (
            by_offset == self.states
            and found.start_offset == self.start
            and found.state_epoch == self.state_epoch
            and found.leader_epoch == self.leader_epoch
            and found.delivery_complete_count == self.complete
        )


class Player:
    """Calls the coordinator and the model, and compares the results."""

    def __init__(self) -> None:
        # The log is never pruned here: pruning would make a restart forget the highest epochs.
        self.world = ShareStateWorld(
            share_coordinator_snapshot_update_records_per_snapshot=2,
            share_coordinator_cold_partition_snapshot_interval_ms=_INTERVAL_MS,
        )
        self.model: Model | None = None

    def initialize(self, epoch: int, start: int) -> None:
        expected = E.NONE
        if self.model is not None and -1 < epoch < self.model.state_epoch_max:
            expected = E.FENCED_STATE_EPOCH
        assert self.world.share.initialize(KEY, epoch, start).result().error is expected
        if expected is not E.NONE:
            return
        complete = -1 if start == -1 else 0
        before = self.model
        self.model = Model(epoch, start, complete, epoch)
        if before is not None:
            self.model.state_epoch_max = max(epoch, before.state_epoch_max)
            self.model.leader_epoch_max = before.leader_epoch_max

    def read(self, epoch: int) -> None:
        result = self.world.share.read(KEY, epoch).result()
        model = self.model
        if model is None:
            assert result.error is E.INVALID_REQUEST
        elif epoch < model.leader_epoch_max:
            assert result.error is E.FENCED_LEADER_EPOCH
        else:
            assert result.state is not None and model.agrees_with(result.state)
            if epoch > model.leader_epoch_max:
                model.leader_epoch = model.leader_epoch_max = epoch

    def write(
        self, state_epoch: int, leader_epoch: int, start: int, complete: int, batches: list[Batch]
    ) -> None:
        given = tuple(StateBatch(*each) for each in batches)
        change = ShareState(0, state_epoch, leader_epoch, start, complete, given)
        result = self.world.share.write(KEY, change).result()
        model = self.model
        if model is None:
            assert result.error is E.INVALID_REQUEST
        elif -1 < leader_epoch < model.leader_epoch_max:
            assert result.error is E.FENCED_LEADER_EPOCH
        elif -1 < state_epoch < model.state_epoch_max:
            assert result.error is E.FENCED_STATE_EPOCH
        else:
            assert result == StateResult()
            model.write(start, complete, batches)

    def delete(self) -> None:
        assert self.world.share.delete(KEY).result() == StateResult()
        self.model = None

    def restart(self) -> None:
        self.world.restart()

    def wait(self) -> None:
        self.world.wait(_INTERVAL_MS)

    def compare(self) -> None:
        found = self.world.share.read_summary(KEY, 0).result().state
        assert found is not None
        if self.model is None:
            assert found == ShareState(0, 0, 0, -1)
        else:
            assert self.model.agrees_with(found)


@given(st.lists(_CALLS, max_size=30))
@settings(max_examples=examples(400))
def test_h103_h104_h105_h109_every_answer_agrees_with_the_model(
    calls: list[tuple[object, ...]],
) -> None:
    player = Player()
    for name, *arguments in calls:
        getattr(player, str(name))(*arguments)
        player.compare()
