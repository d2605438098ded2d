"""Every served API, with the rights that Kafka requires."""

from __future__ import annotations

from tests.oracle.rights.cases import (
    acls,
    administration,
    changed,
    groups,
    producing,
    reading,
    transactions,
)
from tests.oracle.rights.cells import Case

CASES: list[Case] = [
    *producing.CASES,
    *transactions.CASES,
    *reading.CASES,
    *groups.CASES,
    *administration.CASES,
    *acls.CASES,
    *changed.CASES,
]
