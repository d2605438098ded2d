"""Signing in: who looks is who the broker says, and nobody else's clients are used.

Where the listener asks for SASL, a person gives a name and password, or a token; a client that
signs in with them is the proof. Passwords are kept in memory only, in the settings of the clients
of that person, for as long as the session lasts.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from odradek.console.answers import Json, Refusal
from odradek.console.live import Feed, Hub
from odradek.console.sessions import ClientSettings, Session
from odradek_client.errors import AuthenticationFailed, OdradekError

_audit = structlog.get_logger("odradek.console.audit")

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
SESSIONS_MAX = 200
#: A session without any request or open page for this long has ended.
IDLE_S = 1_800.0
#: A session ends after this time whatever happens in it.
LIFETIME_S = 43_200.0
#: Failed tries for an address, and for all of them, in the time of `_TRIES_S`.
FAILURES_OF_HOST = 5
FAILURES_OF_ALL = 50
_TRIES_S = 60.0
_AT_ONCE = 8
_HOSTS_MAX = 1_000
_TEXT_MAX = 65_536
_GIVEN = {"sasl_username", "sasl_jaas_config", "sasl_oauth_token_provider"}
_GIVEN_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"


def wants_sign_in(settings: Mapping[str, Any]) -> bool:
    """True if the listener asks for a user, and the console was given none to use for everybody."""
    protocol = str(settings.get("security_protocol", "PLAINTEXT")).strip().upper()
    return protocol.startswith("SASL_") and not ((_GIVEN | {_GIVEN_ENDPOINT}) & settings.keys())


@dataclass(eq=False)
class Visit:
    """A session with its feeds. Times are of a monotonic clock."""

    session: Session
    hub: Hub
    began_s: float
    used_s: float

    def ended(self, now_s: float) -> bool:
        """True if the session has lasted too long, or nobody has used it for too long."""
        watched = self.hub.listeners or self.session.streams
        idle = not watched and now_s - self.used_s > IDLE_S
        return idle or now_s - self.began_s > LIFETIME_S

    async def close(self) -> None:
        """End the feeds and the clients."""
        await self.hub.close()
        await self.session.close()


@dataclass
class _Tries:
    """Times of failed tries to sign in, by address."""

    of_host: dict[str, deque[float]] = field(default_factory=dict)
    of_all: deque[float] = field(default_factory=deque)

    def check(self, host: str, now_s: float) -> None:
        """Refusal if there were too many."""
        of_host = self.of_host.get(host, deque())
        for times, most in ((of_host, FAILURES_OF_HOST), (self.of_all, FAILURES_OF_ALL)):
            while times and now_s - times[0] > _TRIES_S:
                times.popleft()
            if len(times) >= most:
                raise Refusal(
                    429, "Too many failed tries to sign in", "", "Wait a minute, then try again."
                )

    def failed(self, host: str, now_s: float) -> None:
        self.of_host.setdefault(host, deque(maxlen=FAILURES_OF_HOST)).append(now_s)
        self.of_all.append(now_s)
        while len(self.of_host) > _HOSTS_MAX:
            self.of_host.pop(next(iter(self.of_host)))


class Visits:
    """The sessions of everybody who looks: one for all, or one for each sign-in."""

    def __init__(
        self,
        clients: ClientSettings,
        feeds: Mapping[str, Feed],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = clients
        self._feeds = feeds
        self._now_s = now_s
        self.signs_in = wants_sign_in(clients["admin"])
        self._everybody = None if self.signs_in else self._new(Session(clients))
        self._by_token: dict[str, Visit] = {}
        self._tries = _Tries()
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    def _new(self, session: Session) -> Visit:
        now_s = self._now_s()
        return Visit(session, Hub(session, self._feeds), now_s, now_s)

    @property
    def count(self) -> int:
        """The number of people who are signed in."""
        return len(self._by_token)

    async def of(self, token: str | None) -> Visit:
        """The session of a request. Refusal if there is none, or no longer."""
        if self._everybody is not None:
            return self._everybody
        await self.drop_ended()
        visit = self._by_token.get(token or "")
        if visit is None:
            raise Refusal(401, "Sign in to see this cluster")
        visit.used_s = self._now_s()
        return visit

    async def sign_in(self, given: Json, host: str) -> str:
        """Sign in, and return the token of the session. Refusal if the broker refuses."""
        if not self.signs_in:
            raise Refusal(400, "There is nothing to sign in to")
        mechanism, user, settings = _credentials(given)
        self._tries.check(host, self._now_s())
        await self.drop_ended()
        if len(self._by_token) >= SESSIONS_MAX or self._at_once.locked():
            raise Refusal(429, "Too many people are signed in, or sign in at the moment")
        clients = {kind: {**each, **settings} for kind, each in self._clients.items()}
        session = Session(clients, user)
        async with self._at_once:
            try:
                await session.admin()
            except AuthenticationFailed as error:
                await session.close()
                self._tries.failed(host, self._now_s())
                _audit.warning("sign-in refused", user=user, mechanism=mechanism, host=host)
                raise Refusal(
                    403, "The broker does not accept this user and password", str(error)
                ) from None
            except OdradekError:
                await session.close()
                raise
        token = secrets.token_urlsafe(32)
        self._by_token[token] = self._new(session)
        _audit.info("signed in", user=user, mechanism=mechanism, host=host)
        return token

    async def sign_out(self, token: str | None) -> None:
        """End the session of a token; nothing without one."""
        visit = self._by_token.pop(token or "", None)
        if visit is not None:
            _audit.info("signed out", user=visit.session.user)
            await visit.close()

    async def drop_ended(self) -> None:
        """Close the sessions that have lasted long enough."""
        now_s = self._now_s()
        for token, visit in list(self._by_token.items()):
            if visit.ended(now_s):
                self._by_token.pop(token, None)
                await visit.close()

    async def close(self) -> None:
        """End all sessions."""
        visits = [*self._by_token.values(), *([self._everybody] if self._everybody else [])]
        self._by_token.clear()
        for visit in visits:
            await visit.close()


def _credentials(given: Json) -> tuple[str, str, dict[str, Any]]:
    """(mechanism, user, settings of a client) of what was typed."""
    mechanism = given.get("mechanism")
    if mechanism not in MECHANISMS:
        raise Refusal(400, "There is no such mechanism", f"use one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        token = _text(given, "token")
        return (
            mechanism,
            "token",
            {
                "sasl_mechanism": mechanism,
                "sasl_oauth_token_provider": lambda: token,
            },
        )
    user = _text(given, "user")
    return (
        mechanism,
        user,
        {
            "sasl_mechanism": mechanism,
            "sasl_username": user,
            "sasl_password": _text(given, "password"),
        },
    )


def _text(given: Json, name: str) -> str:
    text = given.get(name)
    if not isinstance(text, str) or not text.strip() or len(text) > _TEXT_MAX:
        raise Refusal(400, f"Give a {name}")
    if "${" in text:
        # In settings that stands for a secret of the machine on which the console runs.
        raise Refusal(400, f"A {name} with ${{ in it cannot be used here")
    return text if name != "token" else text.strip()
