"""Log lines about peers that misbehave: each problem of each peer once in a while, however often it
comes."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek_broker.platform.repeated_lines import RepeatedLines

log = structlog.get_logger("odradek.peers")

#: Lines a minute about all peers: there may be many of them, or one with many addresses.
_LINES_MAX = 200
#: Reasons that are remembered for as long as the broker runs; further ones come again after a
#: while.
_ONCE_MAX = 100


class PeerLog:
    """Tells what is wrong with peers. `now_s`: a clock that does not go back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._lines = RepeatedLines(log, _LINES_MAX, now_s)
        self._once: set[tuple[str, str]] = set()

    def warn(self, event: str, peer: str, reason: str = "", *, listener: str = "") -> None:
        """A warning, unless it was said lately."""
        self._say("warning", event, peer, reason, listener)

    def warn_once(self, event: str, peer: str, reason: str) -> None:
        """A warning, unless it was said of any peer before."""
        if (event, reason) in self._once:
            return
        if len(self._once) < _ONCE_MAX:
            self._once.add((event, reason))
        self.warn(event, peer, reason)

    def tell(self, event: str, peer: str, reason: str = "", *, listener: str = "") -> None:
        """The same for what is no fault."""
        self._say("info", event, peer, reason, listener)

    def _say(self, level: str, event: str, peer: str, reason: str, listener: str) -> None:
        details = {"peer": peer}
        if reason:
            details["reason"] = reason
        if listener:
            details["listener"] = listener
        self._lines.say(level, event, (event, peer, reason), details)
