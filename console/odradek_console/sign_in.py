"""Sign-in with credentials that the broker checks; each user has separate clients.

If the listener requires SASL, a user signs in with a name and password, or with a token. The
credentials are valid if a client can authenticate to the broker with them. Passwords are kept only
in memory, in the settings of the user's clients, until the session ends.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from odradek_client.errors import AuthenticationFailed
from odradek_client.sasl.tokens import claims_of
from odradek_console.answers import HttpProblem, Json
from odradek_console.live import Feed, Hub
from odradek_console.sessions import ClientSettings, ConsoleSession
from odradek_protocol.waiting_peers import counted_as

_log = structlog.get_logger("odradek.console")
_audit = structlog.get_logger("odradek.console.audit")

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
SESSIONS_MAX = 200
#: A session ends after this time without any request or open page.
IDLE_S = 1_800.0
#: A session ends after this time, even if it is used.
LIFETIME_S = 43_200.0
#: The maximum numbers of failed attempts to sign in within `_TRIES_S`: from one address, for one
#: user name, and in total.
FAILURES_OF_HOST = 5
FAILURES_OF_USER = 10
FAILURES_OF_ALL = 50
_TRIES_S = 60.0
_AT_ONCE = 8
_NAMES_MAX = 1_000
#: The maximum lengths of accepted texts, in characters.
_CHARACTERS_MAX = {"user": 256, "password": 4_096, "token": 65_536}
#: The time limit for closing a session, and the maximum length of a name in the audit log.
_CLOSE_S = 30.0
_AUDITED_CHARACTERS = 100
#: Characters that credentials cannot have: NUL separates the parts of a message of PLAIN, and a
#: lone surrogate is no UTF-8.
_NOT_SENT = re.compile(r"[\0\ud800-\udfff]")
_TOKEN = re.compile(r"[-_.~+/A-Za-z0-9]+=*")
_ADVICE = re.compile(r"[;:] check sasl[^;]*\Z")
_GIVEN = {"sasl_username", "sasl_jaas_config", "sasl_oauth_token_provider"}
_GIVEN_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"


def wants_sign_in(settings: Mapping[str, Any]) -> bool:
    """True if users have to sign in, because the listener requires a user and the console's
    settings have none."""
    protocol = str(settings.get("security_protocol", "PLAINTEXT")).strip().upper()
    return protocol.startswith("SASL_") and not ((_GIVEN | {_GIVEN_ENDPOINT}) & settings.keys())


@dataclass(eq=False)
class Visit:
    """A session with its feeds. Times are of a monotonic clock."""

    session: ConsoleSession
    hub: Hub
    began_s: float
    used_s: float

    def ended(self, now_s: float) -> bool:
        """True if the session has lasted too long, or was unused for too long."""
        watched = self.hub.listeners or self.session.streams
        idle = not watched and now_s - self.used_s > IDLE_S
        return idle or now_s - self.began_s > LIFETIME_S

    async def close(self) -> None:
        """End the feeds and the clients."""
        try:
            await self.hub.close()
        finally:
            await self.session.close()


class _Tries:
    """The times of failed sign-ins: by address, by user name, and in total."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], deque[float]] = {}

    def check(self, host: str, user: str | None, now_s: float) -> None:
        """Raise Refusal if there were too many failed attempts."""
        for key, most in self._limits(host, user):
            times = self._times.get(key, deque())
            while times and now_s - times[0] > _TRIES_S:
                times.popleft()
            if len(times) >= most:
                raise HttpProblem(
                    429, "Too many failed tries to sign in", "", "Wait a minute, then try again."
                )

    def failed(self, host: str, user: str | None, now_s: float) -> None:
        """Count a failed attempt."""
        for key, most in self._limits(host, user):
            # The key with the newest attempt comes last.
            times = self._times.pop(key, None) or deque(maxlen=most)
            times.append(now_s)
            self._times[key] = times
        while len(self._times) > _NAMES_MAX:
            self._times.pop(next(iter(self._times)))

    def _limits(self, host: str, user: str | None) -> list[tuple[tuple[str, str], int]]:
        limits = [(("host", counted_as(host)), FAILURES_OF_HOST), (("all", ""), FAILURES_OF_ALL)]
        if user is not None:
            limits.append((("user", user), FAILURES_OF_USER))
        return limits


@dataclass(frozen=True)
class _Credentials:
    """The credentials of a sign-in. `user`: the name; for a token the name in its claims, or
    "token".

    `guessed`: the name whose failed attempts are counted; None for a token. `settings`: the
    settings of the clients.
    """

    mechanism: str
    user: str
    guessed: str | None
    settings: Mapping[str, Any] = field(repr=False)


class Visits:
    """All sessions with one cluster: a single one for everybody, or one for each sign-in.
    `cluster`: the cluster's name, or "" in a console for one cluster."""

    def __init__(
        self,
        clients: ClientSettings,
        feeds: Mapping[str, Feed],
        now_s: Callable[[], float] = time.monotonic,
        cluster: str = "",
    ) -> None:
        self._clients = clients
        self._cluster = cluster
        self._feeds = feeds
        self._now_s = now_s
        self.signs_in = wants_sign_in(clients["admin"])
        self._everybody = (
            None if self.signs_in else self._new(ConsoleSession(clients, None, cluster))
        )
        self._by_token: dict[str, Visit] = {}
        self._tries = _Tries()
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._closing: set[asyncio.Task[None]] = set()

    def _new(self, session: ConsoleSession) -> Visit:
        now_s = self._now_s()
        return Visit(session, Hub(session, self._feeds), now_s, now_s)

    @property
    def _named(self) -> dict[str, str]:
        """The field of log lines that names the cluster, if there are several."""
        return {"cluster": self._cluster} if self._cluster else {}

    @property
    def count(self) -> int:
        """The number of people who are signed in."""
        return len(self._by_token)

    def of(self, token: str | None) -> Visit:
        """The session of the browser that sends `token`. Refusal if there is none or it has
        ended."""
        if self._everybody is not None:
            return self._everybody
        self.drop_ended()
        visit = self._by_token.get(token or "")
        if visit is None:
            raise HttpProblem(401, "Sign in to see this cluster")
        visit.used_s = self._now_s()
        return visit

    async def sign_in(self, given: Json, host: str) -> str:
        """Sign in, and return the token of the session. Refusal if the broker refuses.

        Every failed attempt counts, whatever the reason, except a refusal because of too many
        sessions.
        """
        if not self.signs_in:
            raise HttpProblem(400, "There is nothing to sign in to")
        self._tries.check(host, None, self._now_s())
        try:
            credentials = _credentials(given)
        except HttpProblem as refusal:
            self._tries.failed(host, None, self._now_s())
            _audit.warning("sign-in refused", why=str(refusal), host=host, **self._named)
            raise
        self._tries.check(host, credentials.guessed, self._now_s())
        self.drop_ended()
        most = max(len(self._by_token), len(self._closing))
        if most >= SESSIONS_MAX or self._at_once.locked():
            raise HttpProblem(429, "Too many people are signed in, or sign in at the moment")
        async with self._at_once:
            session = await self._proved(credentials, host)
        token = secrets.token_urlsafe(32)
        self._by_token[token] = self._new(session)
        about = _of(credentials, host) | self._named
        _audit.info("signed in", user=audited(credentials.user), **about)
        return token

    async def _proved(self, credentials: _Credentials, host: str) -> ConsoleSession:
        """A new session, with a client that has signed in to the broker."""
        clients = {kind: {**each, **credentials.settings} for kind, each in self._clients.items()}
        session = ConsoleSession(clients, credentials.user, self._cluster)
        try:
            await session.admin()
        except BaseException as error:
            self._tries.failed(host, credentials.guessed, self._now_s())
            # The broker has not accepted the token, so its claims may be false.
            claimed = audited(credentials.user)
            why = type(error).__name__
            about = _of(credentials, host) | self._named
            _audit.warning("sign-in refused", claimed=claimed, why=why, **about)
            await session.close()
            if not isinstance(error, AuthenticationFailed):
                raise
            raise _refused(credentials, error) from None
        return session

    def sign_out(self, token: str | None) -> None:
        """End the session of a token, if there is one."""
        visit = self._by_token.pop(token or "", None)
        if visit is not None:
            _audit.info("signed out", user=audited(visit.session.user), **self._named)
            self._close_soon(visit)

    def drop_ended(self) -> None:
        """Begin to close the sessions that have ended."""
        now_s = self._now_s()
        for token, visit in list(self._by_token.items()):
            if visit.ended(now_s):
                del self._by_token[token]
                self._close_soon(visit)

    def _close_soon(self, visit: Visit) -> None:
        task = asyncio.create_task(_close(visit))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all sessions."""
        visits = [*self._by_token.values(), *([self._everybody] if self._everybody else [])]
        self._by_token.clear()
        for visit in visits:
            self._close_soon(visit)
        await asyncio.gather(*self._closing)


async def _close(visit: Visit) -> None:
    """Close a session; a failure is logged, so that the other sessions can still be closed."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await visit.close()
    except Exception:  # noqa: BLE001 - logged, and the other sessions are closed
        _log.exception("a session could not be closed", user=audited(visit.session.user))


def audited(user: str | None) -> str | None:
    """A user's name for the log, cut and with escapes for characters that cannot be printed."""
    if user is None:
        return None
    more = "..." if len(user) > _AUDITED_CHARACTERS else ""
    return repr(user[:_AUDITED_CHARACTERS])[1:-1] + more


def _refused(credentials: _Credentials, error: AuthenticationFailed) -> HttpProblem:
    """The broker's refusal, without its advice about settings, because a browser's user cannot
    change settings."""
    detail = _ADVICE.sub("", str(error))
    if credentials.guessed is None:
        what, advice = "token", "Check its end, its audience and its scope."
    else:
        what = "user and password"
        advice = f"Check both, and that the broker knows the user by {credentials.mechanism}."
    return HttpProblem(403, f"The broker does not accept this {what}", detail, advice)


def _of(credentials: _Credentials, host: str) -> dict[str, str]:
    return {"mechanism": credentials.mechanism, "host": host}


def _credentials(given: Json) -> _Credentials:
    """The credentials that were typed. Refusal for those that cannot be sent to a broker."""
    mechanism = given.get("mechanism")
    if mechanism not in MECHANISMS:
        raise HttpProblem(400, "There is no such mechanism", f"use one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        token = _text(given, "token").strip()
        if not _TOKEN.fullmatch(token):
            raise HttpProblem(400, "The token has characters that no bearer token has")
        settings = {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": lambda: token}
        return _Credentials(mechanism, _subject_of(token), None, settings)
    user = _text(given, "user")
    settings = {
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": _text(given, "password"),
    }
    return _Credentials(mechanism, user, user, settings)


def _subject_of(token: str) -> str:
    """The user whom a JWT claims; "token" without such a claim."""
    subject = claims_of(token).get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _CHARACTERS_MAX["user"]:
        return "token"
    return subject


def _text(given: Json, name: str) -> str:
    text = given.get(name)
    if not isinstance(text, str) or not text.strip():
        raise HttpProblem(400, f"Give a {name}")
    most = _CHARACTERS_MAX[name]
    if len(text) > most:
        raise HttpProblem(400, f"The {name} is too long", f"{len(text):,} characters of {most:,}")
    if _NOT_SENT.search(text):
        raise HttpProblem(400, f"The {name} has characters that cannot be sent to a broker")
    if "${" in text:
        # In settings `${...}` would be resolved to a secret of the console's machine.
        raise HttpProblem(400, f"A {name} with ${{ in it cannot be used here")
    return text
