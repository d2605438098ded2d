"""Log lines that peers cause: each problem of each peer once per interval."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek_protocol.repeated_lines import RepeatedLines
from odradek_protocol.waiting_peers import counted_as

log = structlog.get_logger("odradek.peers")

#: The maximum number of lines per minute about all peers together. A limit for each address would
#: not help, because one peer may have many addresses.
_LINES_MAX = 200
#: The maximum number of lines per minute about one peer: reasons may have what the peer has chosen,
#: and a peer that chooses another text each time must not use up the lines about others.
_LINES_PER_PEER_MAX = 20
_REASON_CHARACTERS = 200
#: The maximum number of pairs (event, reason) that `warn_once` remembers. It logs further pairs as
#: `warn` does: once per interval for each peer.
_ONCE_MAX = 100


class PeerLog:
    """Logs problems of peers. `now_s`: a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._lines = RepeatedLines(log, _LINES_MAX, now_s, _LINES_PER_PEER_MAX)
        self._once: set[tuple[str, str]] = set()

    def warn(self, event: str, peer: str, reason: str = "", *, listener: str = "") -> None:
        """Log a warning, unless it was logged recently."""
        self._say("warning", event, peer, reason, listener)

    def warn_once(self, event: str, peer: str, reason: str) -> None:
        """Log a warning, unless a warning with this event and reason was logged before, for this or
        any other peer.
        """
        if (event, reason) in self._once:
            return
        if len(self._once) < _ONCE_MAX:
            self._once.add((event, reason))
        self.warn(event, peer, reason)

    def tell(self, event: str, peer: str, reason: str = "", *, listener: str = "") -> None:
        """Log an event that is no fault of the peer, unless it was logged recently."""
        self._say("info", event, peer, reason, listener)

    def failed(self, peer: str, api: str, error: Exception) -> None:
        """Log an unexpected error in a request, with its traceback, unless it was logged recently.
        To be called where the error is handled. `peer` and `api` are empty if the work that failed
        belongs to no request."""
        event = "a request failed unexpectedly" if peer else "work failed unexpectedly"
        details = {"peer": peer, "api": api} if peer else {}
        same = (event, peer, api, repr(error)[:_REASON_CHARACTERS])
        self._lines.say("exception", event, same, details, counted_as(peer))

    def _say(self, level: str, event: str, peer: str, reason: str, listener: str) -> None:
        details = {"peer": peer}
        if reason:
            details["reason"] = reason
        if listener:
            details["listener"] = listener
        self._lines.say(level, event, (event, peer, reason), details, counted_as(peer))
