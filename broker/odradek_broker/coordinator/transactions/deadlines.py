"""The deadlines of a shard of transactions."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Deadline(Enum):
    """The purpose of a timer."""

    TIMEOUTS = "look for transactions that ran out of time"
    EXPIRY = "look for ids that nobody uses"
    MARKERS = "write the markers that are left"
    PARKED = "give up waiting for the end of the last transaction"


class TimerName(NamedTuple):
    """One deadline; `number` tells the parked calls of an id apart."""

    kind: Deadline
    transactional_id: str = ""
    number: int = 0
