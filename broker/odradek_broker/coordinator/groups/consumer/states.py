"""The states of consumer groups and of their members, and the steps of a reconciliation, as tables
(rules G-120 to G-123)."""

from __future__ import annotations

from enum import Enum, IntEnum


class MemberState(IntEnum):
    """How far a member has come towards its target; the numbers are those in the records."""

    STABLE = 1
    """It has what its epoch gave it."""

    UNREVOKED_PARTITIONS = 2
    """It has been told to give partitions back and has not said that it did."""

    UNRELEASED_PARTITIONS = 3
    """It is at the target's epoch, but others still hold some of what it is to get."""


class ConsumerGroupState(Enum):
    """The names are those that Kafka's tools show (G-104)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Report(Enum):
    """The partitions to give back, as a heartbeat reports them."""

    SILENT = "it does not say what it owns"
    OWNING = "it owns some of them"
    RELEASED = "it owns none of them"


class Step(Enum):
    """The reaction to a report."""

    STAY = "nothing is left to be done"
    WAIT = "wait for the revocation"
    RECONCILE = "compute what it may have now, from its own epoch on"
    ADVANCE = "the revocation is done: the next epoch, and compute what it may have now"


_M, _R, _S = MemberState, Report, Step

#: (state, report, is the target newer than the member's epoch) -> step.
STEPS: dict[tuple[MemberState, Report, bool], Step] = {
    **{(_M.STABLE, report, False): _S.STAY for report in Report},
    **{(_M.STABLE, report, True): _S.RECONCILE for report in Report},
    **{(_M.UNREVOKED_PARTITIONS, _R.SILENT, newer): _S.WAIT for newer in (False, True)},
    **{(_M.UNREVOKED_PARTITIONS, _R.OWNING, newer): _S.WAIT for newer in (False, True)},
    **{(_M.UNREVOKED_PARTITIONS, _R.RELEASED, newer): _S.ADVANCE for newer in (False, True)},
    **{
        (_M.UNRELEASED_PARTITIONS, report, newer): _S.RECONCILE
        for report in Report
        for newer in (False, True)
    },
}
