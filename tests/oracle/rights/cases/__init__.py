"""Every served API, with the rights that Kafka requires."""

from __future__ import annotations

from tests.oracle.rights.cases import (
    acls,
    administration,
    changed,
    groups,
    producing,
    reading,
    share_state,
    shares,
    transactions,
)
from tests.oracle.rights.cells import Case

CASES: list[Case] = [
    *producing.CASES,
    *transactions.CASES,
    *reading.CASES,
    *groups.CASES,
    *share_state.CASES,
    *shares.CASES,
    *administration.CASES,
    *acls.CASES,
    *changed.CASES,
]
