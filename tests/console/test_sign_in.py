"""Signing in as a user of the broker, the ends of sessions, and the effect of ACLs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from structlog.testing import capture_logs

import sasl_brokers
from odradek.broker import Broker
from odradek_client.admin import (
    AclBinding,
    AclOperation,
    Admin,
    NewTopic,
    UserScramCredentialUpsertion,
)
from odradek_client.errors import AuthenticationFailed, ConnectionLost
from odradek_console import sign_in
from odradek_console.answers import HttpProblem
from odradek_console.live import Feed
from odradek_console.server import Console, ConsoleOptions
from odradek_console.sessions import ConsoleSession
from odradek_console.sign_in import Visits, wants_sign_in

_WRITE = {"origin": "http://127.0.0.1:8080", "X-Odradek-Console": "1"}
_ALICE = {"mechanism": "SCRAM-SHA-512", "user": "alice", "password": "alice-secret"}


@pytest.fixture(scope="module")
def sasl_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with users and a super user, the only one who may do everything."""
    settings = {
        **sasl_brokers.LISTENER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    listen = settings.pop("listeners")
    with Broker.subprocess(
        data_dir=tmp_path_factory.mktemp("sasl"), settings={**settings, "listeners": listen}
    ) as broker:
        yield broker.bootstrap


@pytest.fixture
async def users(sasl_bootstrap: str) -> None:
    """Create the user `alice`, the topic `hers`, which she may describe, and the topic `other`,
    which she may not describe."""
    async with Admin(**sasl_brokers.as_admin(sasl_bootstrap)) as admin:
        await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", "alice-secret", "SCRAM-SHA-512")]
        )
        await admin.create_topics([NewTopic("hers", 1), NewTopic("other", 1)], raise_errors=False)
        await admin.create_acls([AclBinding.topic("hers", "User:alice", AclOperation.DESCRIBE)])


@asynccontextmanager
async def _console(bootstrap: str, *proxies: str, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "request_timeout_ms": 10_000,
        "default_api_timeout_ms": 10_000,
        **more,
    }
    clients = {"admin": settings, "consumer": settings, "producer": settings}
    app = Console(ConsoleOptions({"one": clients}, proxies=proxies)).app()
    assert isinstance(app, Starlette)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080", headers=_WRITE
        ) as client,
    ):
        yield client


async def test_no_data_is_shown_before_signing_in(sasl_bootstrap: str) -> None:
    async with _console(sasl_bootstrap) as client:
        about = (await client.get("/api/console")).json()
        assert (about["open"], about["user"]) == (False, None)
        assert "SCRAM-SHA-512" in about["mechanisms"]
        for path in ("/api/topics", "/api/overview", "/api/live?feed=overview"):
            assert (await client.get(path)).status_code == 401


async def test_a_user_sees_topics_allowed_by_acls_until_the_session_ends(
    sasl_bootstrap: str, users: None
) -> None:
    async with _console(sasl_bootstrap) as client:
        answer = await client.post("/api/sign-in", json=_ALICE)
        assert answer.status_code == 200, answer.text
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert (await client.get("/api/console")).json()["user"] == "alice"
        topics = (await client.get("/api/topics")).json()
        assert [row["name"] for row in topics["rows"]] == ["hers"]
        # The user lacks the right to see sizes, and the page says so.
        assert topics["missing"] == ["Sizes: this user lacks the right DESCRIBE on the cluster."]
        assert topics["rows"][0]["size_bytes"] is None
        await client.post("/api/sign-out", json={})
        assert (await client.get("/api/topics")).status_code == 401


async def test_wrong_passwords_are_refused_and_limited(sasl_bootstrap: str) -> None:
    async with _console(sasl_bootstrap) as client:
        for _ in range(sign_in.FAILURES_OF_HOST):
            answer = await client.post("/api/sign-in", json={**_ALICE, "password": "wrong"})
            assert answer.status_code == 403
        answer = await client.post("/api/sign-in", json=_ALICE)
        assert answer.status_code == 429
        assert (await client.get("/api/topics")).status_code == 401


async def test_forwarded_addresses_are_accepted_from_named_proxies_only(
    sasl_bootstrap: str, users: None
) -> None:
    wrong = {"mechanism": "none"}

    async def tried(client: httpx.AsyncClient, given: Any, address: str) -> httpx.Response:
        proxied = {"x-forwarded-proto": "https", "x-forwarded-for": address}
        return await client.post("/api/sign-in", json=given, headers=proxied)

    # In this process every request comes from the address 127.0.0.1.
    async with _console(sasl_bootstrap, "127.0.0.1", "10.0.0.0/8") as client:
        for _ in range(sign_in.FAILURES_OF_HOST):
            # A browser can send X-Forwarded-For with false addresses, but the proxy appends the
            # true address.
            assert (await tried(client, wrong, "9.9.9.9, 192.0.2.1, 10.1.1.1")).status_code == 400
        assert (await tried(client, _ALICE, "192.0.2.1")).status_code == 429
        answer = await tried(client, _ALICE, "192.0.2.2")
        assert answer.status_code == 200
        assert "Secure" in answer.headers["set-cookie"]
    async with _console(sasl_bootstrap, "192.0.2.77") as client:
        answer = await tried(client, _ALICE, "192.0.2.1")
        assert "Secure" not in answer.headers["set-cookie"]
        for number in range(sign_in.FAILURES_OF_HOST):
            assert (await tried(client, wrong, f"192.0.2.{number}")).status_code == 400
        assert (await tried(client, _ALICE, "192.0.2.200")).status_code == 429


@pytest.mark.parametrize("address", ["x" * 5_000, "\x7f", "fe80::1%" + "z" * 500, ""])
async def test_invalid_forwarded_addresses_are_not_logged(
    sasl_bootstrap: str, address: str
) -> None:
    async with _console(sasl_bootstrap, "127.0.0.1") as client:
        headers = {"x-forwarded-for": address}
        with capture_logs() as lines:
            await client.post("/api/sign-in", json={"mechanism": "no"}, headers=headers)
        (line,) = lines
        assert line["host"] in ("unknown", "fe80::1", "127.0.0.1")


@pytest.mark.parametrize(
    "given",
    [
        {"mechanism": "GSSAPI"},
        {"mechanism": "PLAIN", "user": "alice"},
        {"mechanism": "PLAIN", "user": "", "password": "x"},
        {"mechanism": "PLAIN", "user": "alice", "password": ["x"]},
        # The reference would be replaced by a secret of the console's machine.
        {"mechanism": "PLAIN", "user": "alice", "password": "${env:HOME}"},
        {"mechanism": "OAUTHBEARER", "user": "alice"},
        {"mechanism": ["PLAIN"]},
        {"mechanism": {}, "user": "alice", "password": "x"},
        # These texts cannot be encoded for a broker.
        {"mechanism": "PLAIN", "user": "al\ud800ice", "password": "x"},
        {"mechanism": "SCRAM-SHA-512", "user": "alice", "password": "\udfff"},
        {"mechanism": "OAUTHBEARER", "token": "a.b.\ud800"},
        {"mechanism": "OAUTHBEARER", "token": "a.b.ä"},
        {"mechanism": "PLAIN", "user": "alice", "password": "a\0b"},
        {"mechanism": "PLAIN", "user": "u" * 257, "password": "x"},
        {"mechanism": "PLAIN", "user": "alice", "password": "x" * 5_000},
        {"mechanism": "OAUTHBEARER", "token": "a" * 100_000},
    ],
)
async def test_malformed_sign_ins_are_refused_and_counted_without_asking_the_broker(
    given: dict[str, Any],
) -> None:
    visits = _visits(_Clock())
    for _ in range(sign_in.FAILURES_OF_HOST):
        with pytest.raises(HttpProblem) as refused:
            await visits.sign_in(given, "host")
        assert refused.value.status == 400
    with pytest.raises(HttpProblem, match="Too many failed"):
        await visits.sign_in(given, "host")


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, False),
        ({"security_protocol": "SSL"}, False),
        ({"security_protocol": "SASL_SSL"}, True),
        ({"security_protocol": "sasl_plaintext", "sasl_username": "a"}, False),
        ({"security_protocol": "SASL_SSL", "sasl_jaas_config": "x"}, False),
    ],
)
def test_sign_in_is_needed_at_sasl_listeners_without_a_console_user(
    settings: dict[str, Any], wanted: bool
) -> None:
    assert wants_sign_in(settings) is wanted


# --- Sessions in time -----------------------------------------------------------------------------


class _Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class _Admin:
    """An admin client that accepts every password except "wrong"."""

    def __init__(self, **settings: Any) -> None:
        self._right = settings.get("sasl_password") != "wrong"

    async def start(self) -> None:
        if not self._right:
            raise AuthenticationFailed("no")

    async def close(self) -> None:
        pass


def _visits(clock: _Clock) -> Visits:
    settings = {"bootstrap_servers": "b:1", "security_protocol": "SASL_SSL"}

    async def poll(*_: Any) -> dict[str, Any]:
        return {}

    return Visits({"admin": settings}, {"any": Feed(poll)}, clock)


@pytest.fixture
def anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek_console.sessions.Admin", _Admin)


@pytest.mark.usefixtures("anybody")
async def test_a_session_ends_when_it_is_idle_and_after_its_lifetime() -> None:
    clock = _Clock()
    visits = _visits(clock)
    token = await visits.sign_in(_ALICE, "host")
    for _ in range(3):
        clock.now_s += sign_in.IDLE_S - 1
        visit = visits.of(token)
    clock.now_s += sign_in.IDLE_S + 1
    with pytest.raises(HttpProblem, match="Sign in"):
        visits.of(token)
    token = await visits.sign_in(_ALICE, "host")
    visit = visits.of(token)
    events = visit.hub.events(["any"])
    await anext(events)
    # An open page keeps the session from being idle, but does not extend its lifetime.
    clock.now_s += sign_in.IDLE_S + 1
    assert visits.of(token) is visit
    await events.aclose()
    # A tail or a download also keeps the session from being idle.
    visit.session.streams += 1
    clock.now_s += sign_in.IDLE_S + 1
    assert visits.of(token) is visit
    events = visit.hub.events(["any"])
    await anext(events)
    clock.now_s += sign_in.LIFETIME_S
    visits.drop_ended()
    assert visits.count == 0
    assert [each async for each in events if b"data" not in each] == []
    await visits.close()


@pytest.mark.usefixtures("anybody")
async def test_failed_sign_ins_are_counted_by_host_for_a_while() -> None:
    clock = _Clock()
    visits = _visits(clock)
    wrong = {**_ALICE, "password": "wrong"}
    for _ in range(sign_in.FAILURES_OF_HOST):
        with pytest.raises(HttpProblem, match="does not accept"):
            await visits.sign_in(wrong, "host")
    with pytest.raises(HttpProblem, match="Too many failed"):
        await visits.sign_in(_ALICE, "host")
    await visits.sign_in(_ALICE, "another host")
    clock.now_s += 61
    await visits.sign_in(_ALICE, "host")
    await visits.close()


@pytest.mark.usefixtures("anybody")
async def test_failed_sign_ins_are_counted_by_user_too() -> None:
    """The failures of a user are counted together, whatever their addresses."""
    clock = _Clock()
    visits = _visits(clock)
    for number in range(sign_in.FAILURES_OF_USER):
        with pytest.raises(HttpProblem, match="does not accept this user"):
            await visits.sign_in({**_ALICE, "password": "wrong"}, f"host {number}")
    with pytest.raises(HttpProblem, match="Too many failed"):
        await visits.sign_in(_ALICE, "another host")
    await visits.sign_in({**_ALICE, "user": "bob"}, "another host")
    clock.now_s += 61
    await visits.sign_in(_ALICE, "another host")
    await visits.close()


@pytest.mark.parametrize("error", [ConnectionLost("gone"), ValueError("odd")])
async def test_a_sign_in_that_fails_for_any_reason_is_counted(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class _Failing(_Admin):
        async def start(self) -> None:
            raise error

    monkeypatch.setattr("odradek_console.sessions.Admin", _Failing)
    visits = _visits(_Clock())
    for _ in range(sign_in.FAILURES_OF_HOST):
        with pytest.raises(type(error)):
            await visits.sign_in(_ALICE, "host")
    with pytest.raises(HttpProblem, match="Too many failed"):
        await visits.sign_in(_ALICE, "host")


@pytest.mark.usefixtures("anybody")
async def test_the_audit_log_has_shortened_user_names_without_control_characters() -> None:
    visits = _visits(_Clock())
    odd = {**_ALICE, "user": "a\n\x1b[31m\u202e" + "b" * 200}
    with capture_logs() as lines:
        token = await visits.sign_in(odd, "host")
        with pytest.raises(HttpProblem):
            await visits.sign_in({**odd, "password": "wrong"}, "host")
        visits.sign_out(token)
        await visits.close()
    names = [line.get("user") or line["claimed"] for line in lines]
    assert [line["event"] for line in lines] == ["signed in", "sign-in refused", "signed out"]
    for name in names:
        assert name.startswith(r"a\n\x1b[31m\u202ebbb") and name.endswith("b...")
        assert len(name) < 150


def _jwt(claims: Any) -> str:
    parts = ({"alg": "none"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join(part.rstrip("=") for part in encoded) + ".c2ln"


@pytest.mark.usefixtures("anybody")
@pytest.mark.parametrize(
    ("token", "user"),
    [
        (_jwt({"sub": "alice"}), "alice"),
        (_jwt({"sub": ["alice"]}), "token"),
        (_jwt({"sub": "a" * 300}), "token"),
        (_jwt({}), "token"),
        (_jwt([1]), "token"),
        ("opaque", "token"),
    ],
)
async def test_the_user_of_a_signed_in_token_is_its_subject(token: str, user: str) -> None:
    visits = _visits(_Clock())
    with capture_logs() as lines:
        session = await visits.sign_in({"mechanism": "OAUTHBEARER", "token": token}, "host")
    assert visits.of(session).session.user == user
    assert [(line["event"], line["user"]) for line in lines] == [("signed in", user)]
    await visits.close()


@pytest.mark.usefixtures("anybody")
async def test_sessions_are_closed_in_the_background_though_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Clock()
    visits = _visits(clock)
    go_on, closed = asyncio.Event(), []
    tokens = [await visits.sign_in({**_ALICE, "user": user}, "host") for user in "abc"]

    async def close(session: ConsoleSession) -> None:
        await go_on.wait()
        closed.append(session.user)
        if session.user == "a":
            raise OSError("no")

    monkeypatch.setattr(ConsoleSession, "close", close)
    clock.now_s += sign_in.LIFETIME_S + 1
    # Requests do not wait until the ended sessions are closed.
    with pytest.raises(HttpProblem, match="Sign in"):
        visits.of(tokens[0])
    assert (visits.count, closed) == (0, [])
    go_on.set()
    with capture_logs() as lines:
        await visits.close()
    assert sorted(filter(None, closed)) == ["a", "b", "c"]
    assert [(line["event"], line["user"]) for line in lines] == [
        ("a session could not be closed", "a")
    ]


@pytest.mark.usefixtures("anybody")
async def test_the_number_of_open_sessions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "SESSIONS_MAX", 2)
    visits = _visits(_Clock())
    first = await visits.sign_in(_ALICE, "host")
    await visits.sign_in(_ALICE, "host")
    with pytest.raises(HttpProblem, match="Too many people"):
        await visits.sign_in(_ALICE, "host")
    visits.sign_out(first)
    await visits.sign_in(_ALICE, "host")
    await visits.close()
