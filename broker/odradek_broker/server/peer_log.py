"""Log lines about peers that misbehave: each problem of each peer once in a while, however often it comes."""

from __future__ import annotations

from collections.abc import Callable

import structlog

log = structlog.get_logger("odradek.peers")

#: The same problem of the same peer is told again after so long, with how often it came meanwhile.
_AGAIN_S = 60.0
#: Lines about all peers in that time: there may be many of them, or one with many addresses.
_LINES_MAX = 200
#: Problems that are remembered; a reason may hold what a peer sent.
_REMEMBERED_MAX = 1_000


class PeerLog:
    """Tells what is wrong with peers. `now_s`: a clock that does not go back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        #: When a problem was told, and how often it came since.
        self._told: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._began_s = now_s()
        self._lines = 0
        self._left_out = 0

    def warn(self, event: str, peer: str, reason: str = "", *, listener: str = "") -> None:
        """A warning, unless it was said lately."""
        self._say("warning", event, peer, reason, listener)

    def tell(self, event: str, peer: str, reason: str = "", *, listener: str = "") -> None:
        """The same for what is no fault."""
        self._say("info", event, peer, reason, listener)

    def _say(self, level: str, event: str, peer: str, reason: str, listener: str) -> None:
        now_s = self._now_s()
        key = (event, peer, reason)
        told_s, more = self._told.pop(key, (now_s - _AGAIN_S, 0))
        if now_s - told_s < _AGAIN_S:
            self._told[key] = told_s, more + 1
            return
        if now_s - self._began_s >= _AGAIN_S:
            self._began_s, self._lines = now_s, 0
        if self._lines >= _LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        while len(self._told) >= _REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = now_s, 0
        details: dict[str, object] = {"peer": peer}
        if reason:
            details["reason"] = reason
        if listener:
            details["listener"] = listener
        if more:
            details["repeated"] = more
        if self._left_out:
            details["lines_left_out"], self._left_out = self._left_out, 0
        getattr(log, level)(event, **details)
