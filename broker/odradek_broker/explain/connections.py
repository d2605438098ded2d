"""The open connections, and the history of connections by client id (`odradek explain client`).

The subject of an event is the client id of the connection's first request, or, on a listener with
SASL, of the first request after authentication. Connections without such a request have no events.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.explain.history import LIST_MAX, History, SubjectState, left_out, remark
from odradek_broker.explain.sentences import EventKind, describe_client, duration_text
from odradek_broker.request import ANONYMOUS, Peer
from odradek_broker.slices import paced


class ConnectionPeers:
    """The peers of all open connections by connection id. `wall_ms` returns wall time."""

    def __init__(self, history: History, wall_ms: Callable[[], int]) -> None:
        self.history = history
        self._wall_ms = wall_ms
        self.peers: dict[int, Peer] = {}
        #: The client id under which a connection is recorded, by connection id. A connection
        #: without a request has no entry.
        self._subjects: dict[int, str] = {}

    def opened(self, peer: Peer) -> None:
        peer.opened_ms = self._wall_ms()
        self.peers[peer.connection_id] = peer

    def first_request(self, peer: Peer) -> None:
        """Record the connection under the client id of its first request after authentication."""
        if peer.connection_id not in self.peers:
            return
        subject = self._subjects[peer.connection_id] = peer.client_id or ""
        self.history.record(
            subject,
            EventKind.CLIENT_CONNECTED,
            connection=peer.connection_id,
            host=peer.host,
            listener=peer.listener or None,
            user=_user(peer),
            software=_software(peer),
        )

    def closed(self, peer: Peer) -> None:
        """Record the end of a connection; the reason is `peer.end`."""
        if self.peers.pop(peer.connection_id, None) is None:
            return
        subject = self._subjects.pop(peer.connection_id, None)
        if subject is not None:
            self.history.record(
                subject,
                EventKind.CLIENT_DISCONNECTED,
                connection=peer.connection_id,
                host=peer.host,
                user=_user(peer),
                age=duration_text(self._wall_ms() - peer.opened_ms),
                requests=peer.requests,
                reason=peer.end or "the client closed it",
            )

    async def end_of(self, client: str) -> str | None:
        """The time at which the last connection of a client ended, in words; None if the client
        has a connection, or the end is not remembered. `client`: as `describe_client` names it."""
        async for peer in paced(self.peers.values()):
            if describe_client(peer.client_id, peer.host) == client:
                return None
        name = client.removeprefix("client ").rpartition(" at ")[0]
        events = self.history.about("" if name == "(no id)" else name).events
        for event in reversed(events):
            same = describe_client(name, str(event.fields["host"])) == client
            if same and event.kind is EventKind.CLIENT_DISCONNECTED:
                return f"{duration_text(self._wall_ms() - event.last_ms)} ago"
        return None

    def states_of(self, client_id: str) -> list[SubjectState]:
        """The states of the first open connections of a client id, and the number of further
        connections."""
        now_ms = self._wall_ms()
        mine = [
            peer for number, peer in self.peers.items() if self._subjects.get(number) == client_id
        ]
        if not mine:
            return [remark("the client has no open connection")]
        return [*(_state(peer, now_ms) for peer in mine[:LIST_MAX]), *left_out(len(mine), "more")]


def matches(peer: Peer, text: str) -> bool:
    """True if the client id, host or user contains a text."""
    return text in (peer.client_id or "") or text in peer.host or text in peer.user


def _user(peer: Peer) -> str | None:
    return peer.user if peer.user != ANONYMOUS else None


def _software(peer: Peer) -> str | None:
    return f"{peer.software_name} {peer.software_version}".strip() or None


def _state(peer: Peer, now_ms: int) -> SubjectState:
    return SubjectState.of(
        EventKind.NOW_CONNECTED,
        connection=peer.connection_id,
        host=peer.host,
        listener=peer.listener or None,
        user=_user(peer),
        software=_software(peer),
        age=duration_text(now_ms - peer.opened_ms),
        requests=peer.requests,
        request=peer.api_name or None,
    )
