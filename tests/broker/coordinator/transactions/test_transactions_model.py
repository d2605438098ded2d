"""Random producers, instances, lost answers, slow disks, refused markers and crashes, against a
small model that knows nothing of how the coordinator works.

The model has the identities and the outcomes that were answered. Invariants:

- No identity is ever given to two instances, and none has an epoch above 32766.
- An acknowledged outcome is kept: the partitions of the transaction get only markers of this
  outcome, with the epoch of the data or the next epoch.
- Once nothing is refused or held back any more, every decided transaction is complete.
- The stored state is the same before and after a reload.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import budget
from odradek_broker.coordinator.transactions.decisions import EndAnswer, InitAnswer
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.deferred import Deferred
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from transaction_world import ID, O0, T0, T1, TransactionWorld

E = ErrorCode
S = TransactionState

PARTS = [T0, T1, O0]
WHO = st.integers(0, 2)
Identity = tuple[int, int]


@dataclass
class Instance:
    """An instance of the application. It knows only the answers that it got, not those that were
    lost."""

    version: int
    identity: Identity | None = None
    parts: set[TopicPartition] = field(default_factory=set)
    #: The requested end (True: commit) until it is answered; None if no end was requested.
    ending: bool | None = None


class TransactionMachine(RuleBasedStateMachine):
    """Three instances that share a transactional id."""

    @initialize(epoch=st.sampled_from([None, 32_760]), versions=st.tuples(*[st.integers(1, 2)] * 3))
    def start(self, epoch: int | None, versions: tuple[int, int, int]) -> None:
        self.world = TransactionWorld()
        if epoch is not None:
            self.world.put(epoch=epoch)
        self.instances = [Instance(version) for version in versions]
        self.told: dict[Identity, Instance] = {}
        self.last_told: Instance | None = None
        #: The acknowledged ends: (identity of the data, partitions, commit).
        self.decided: list[tuple[Identity, frozenset[TopicPartition], bool]] = []

    # --- Events of instances ---

    @rule(at=WHO)
    def initialize_producer(self, at: int) -> None:
        """Replace an instance by a new instance, which sends InitProducerId."""
        version = self.instances[at].version
        self.instances[at] = Instance(version)
        answer = self.world.init_later()
        self._identity_given(at, answer)

    @rule(at=WHO)
    def recover(self, at: int) -> None:
        """The instance requests a new epoch with its own identity (KIP-360)."""
        instance = self.instances[at]
        if instance.identity is not None:
            self._identity_given(at, self.world.init_later(*instance.identity))

    def _identity_given(self, at: int, deferred: Deferred[InitAnswer]) -> None:
        if not deferred.done:
            return
        answer = deferred.result()
        if answer.error is not E.NONE:
            return
        identity = (answer.producer_id, answer.epoch)
        assert 0 <= answer.epoch <= 32_766
        self._tell(identity, at)
        self.instances[at].identity = identity
        self.instances[at].parts = set()
        self.instances[at].ending = None

    def _tell(self, identity: Identity, at: int) -> None:
        instance = self.last_told = self.instances[at]
        owner = self.told.setdefault(identity, instance)
        assert owner is instance, f"{identity} was given to another instance"

    def _not_fenced(self, instance: Instance) -> None:
        """Check that no instance acts after its successor got an identity (T-56)."""
        assert instance is self.last_told, "a fenced instance was let in"

    @rule(at=WHO, parts=st.sets(st.sampled_from(PARTS), min_size=1))
    def add(self, at: int, parts: set[TopicPartition]) -> None:
        instance = self.instances[at]
        if instance.identity is None or instance.ending is not None:
            return
        if instance.version == 1:
            added = self.world.add_later(instance.identity, *parts)
            ok = added.done and added.result() is E.NONE
        else:
            codes = self.world.verify(instance.identity, *parts, add=True)
            ok = codes.done and set(codes.result().values()) == {E.NONE}
        if ok:
            self._not_fenced(instance)
            instance.parts |= parts

    @rule(at=WHO, commit=st.booleans(), lost=st.sampled_from([False, False, True]))
    def end(self, at: int, commit: bool, lost: bool) -> None:
        """Request a commit or an abort. While an end is unanswered, later calls request the same
        end again."""
        instance = self.instances[at]
        if instance.identity is None:
            return
        if not instance.parts:
            if instance.version == 1:
                return
            commit = False  # An empty transaction can only be aborted (T-65).
        commit = commit if instance.ending is None else instance.ending
        instance.ending = commit
        deferred = self.world.end_later(instance.identity, commit, version=instance.version)
        if not deferred.done or lost:
            return
        self._ended(at, commit, deferred.result())

    def _ended(self, at: int, commit: bool, answer: EndAnswer) -> None:
        instance = self.instances[at]
        assert instance.identity is not None
        if answer.error is E.NONE:
            self._not_fenced(instance)
            # If the coordinator has aborted the transaction, a requested abort succeeds (T-65).
            self.decided.append((instance.identity, frozenset(instance.parts), commit))
            if instance.version == 2:
                assert 0 <= answer.epoch <= 32_766
                instance.identity = (answer.producer_id, answer.epoch)
                self._tell(instance.identity, at)
            instance.parts, instance.ending = set(), None
        elif answer.error in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING):
            instance.identity = None
        elif answer.error is E.INVALID_TXN_STATE:
            # A timeout or a successor has aborted the transaction that this instance wanted to
            # commit.
            instance.identity = None

    @rule(at=WHO, commit=st.booleans(), parts=st.sets(st.sampled_from(PARTS)))
    def whole_transaction(self, at: int, commit: bool, parts: set[TopicPartition]) -> None:
        """A whole transaction, while nothing is refused or held back."""
        self.nothing_in_the_way()
        if self.instances[at].identity is None:
            self.initialize_producer(at)
        if parts:
            self.add(at, parts)
        self.end(at, commit, False)

    @rule(first=WHO, second=WHO)
    def take_over(self, first: int, second: int) -> None:
        """An instance replaces another, while nothing is refused or held back."""
        self.nothing_in_the_way()
        for at in (first, second):
            self.initialize_producer(at)
            self.initialize_producer(at)  # The first answer may be CONCURRENT_TRANSACTIONS.

    @rule()
    def nothing_in_the_way(self) -> None:
        self.appends_become(E.NONE)
        self.disk_becomes(False)
        self.markers_become(False, T0, False)

    # --- Events of the environment ---

    @rule(ms=st.sampled_from([10, 200, 5_000, 30_000, 100_000]))
    def time_passes(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(hold=st.booleans())
    def disk_becomes(self, hold: bool) -> None:
        self.world.log.hold = hold
        if not hold:
            self.world.log.flush()

    @rule(refuse=st.sampled_from([E.NONE, E.NONE, E.NOT_ENOUGH_REPLICAS]))
    def appends_become(self, refuse: ErrorCode) -> None:
        self.world.log.refuse = refuse

    @rule(hold=st.booleans(), part=st.sampled_from(PARTS), refused=st.booleans())
    def markers_become(self, hold: bool, part: TopicPartition, refused: bool) -> None:
        markers = self.world.markers
        markers.hold = hold
        markers.codes = {part: E.NOT_LEADER_OR_FOLLOWER} if refused else {}
        if not hold:
            markers.release()

    @rule()
    def crash(self) -> None:
        self.world.restart()

    # --- Invariants ---

    @invariant()
    def nothing_is_stored_that_must_not_be(self) -> None:
        held = self.world.transactions.transaction(ID)
        if held is None:
            return
        assert held.state not in (S.DEAD, S.PREPARE_EPOCH_FENCE)
        assert held.epoch <= 32_766 or held.state.is_prepared
        assert not held.partitions or held.state not in (
            S.EMPTY,
            S.COMPLETE_COMMIT,
            S.COMPLETE_ABORT,
        )

    @invariant()
    def markers_of_one_epoch_agree(self) -> None:
        """The producer ids and epochs of the markers in a partition never decrease, even if a
        marker is repeated."""
        for written in self.world.markers.written.values():
            epochs = [(mark.producer_id, mark.epoch) for mark in written]
            assert epochs == sorted(epochs), "markers never go back"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.log.refuse, world.log.hold = E.NONE, False
        world.markers.hold, world.markers.codes = False, {}
        world.log.flush()
        world.markers.release()
        world.wait(100_000)
        held = world.transactions.transaction(ID)
        if held is None:
            assert not self.decided
            return
        assert held.state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        for (producer_id, epoch), parts, commit in self.decided:
            for part in parts:
                ends = [
                    mark
                    for mark in world.markers.written.get(part, [])
                    if mark.producer_id == producer_id and mark.epoch in (epoch, epoch + 1)
                ]
                assert any(mark.commit == commit for mark in ends), (producer_id, epoch, part)
        world.restart()
        assert world.held() == held


TransactionMachine.TestCase.settings = settings(
    max_examples=budget.examples(200), stateful_step_count=50, deadline=None
)
TestTransactions = TransactionMachine.TestCase
