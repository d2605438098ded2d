"""Authentication at the listeners: accepted requests, failures, and the lifetime of sessions."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

import golden
from broker_in_loop import RunningBroker, StartBroker
from odradek_broker.explain.sentences import EventKind
from odradek_broker.metadata.delegation_tokens import create_token, expire_token
from odradek_broker.metadata.scram import credential_record
from odradek_broker.security.passwords import PasswordHash, hash_password
from odradek_broker.security.plain_users import parse_users
from odradek_broker.security.sasl import OTHER_USER
from odradek_broker.server import sasl_listeners
from odradek_broker.server.authentication import TRANSITIONS, SaslEvent, SaslState
from odradek_broker.server.host import StartError
from odradek_broker.server.sasl_listeners import UnauthenticatedConnections
from odradek_broker.server.session import SessionState
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.sasl.scram import ScramMechanism, new_credential
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.describe_delegation_token import DescribeDelegationTokenRequest
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest
from raw_client import RawClient
from sasl_clients import (
    LISTENER,
    authenticate,
    handshake,
    plain,
    plain_token,
    plain_users,
    scram,
    user_of,
)
from waiting import until

USERS = plain_users(alice="secret", bob="geheim")
SOFTWARE = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
SCRAM = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


async def serves(client: RawClient) -> bool:
    return (await client.call(MetadataRequest(topics=[]), 9)).cluster_id is not None


async def with_users(start_broker: StartBroker, **more: str) -> RunningBroker:
    keys = LISTENER | USERS | {key.replace("_", "."): value for key, value in more.items()}
    return await start_broker(keys=keys)


# --- The order ------------------------------------------------------------------------------------


def test_n25_every_state_is_reachable_and_the_failed_state_is_final() -> None:
    assert not any(state is SaslState.FAILED for state, _ in TRANSITIONS)
    for state in SaslState:
        if state is not SaslState.FAILED:
            assert TRANSITIONS[state, SaslEvent.FAILED] is SaslState.FAILED
    known = {SaslState.INITIAL}
    for _ in SaslState:
        known |= {TRANSITIONS[each] for each in product(known, SaslEvent) if each in TRANSITIONS}
    assert known == set(SaslState)


@pytest.mark.parametrize("versions_first", [False, True])
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a43_n25_a_client_authenticates_with_plain(
    start_broker: StartBroker, versions_first: bool, version: int
) -> None:
    broker = await with_users(start_broker)
    client = await broker.client()
    if versions_first:
        assert (await client.call(SOFTWARE)).error_code == 0
    answer = await plain(client, "alice", "secret", version)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
    assert await user_of(client, broker) == "alice"
    assert await serves(client)


async def test_n25_a_refused_api_versions_request_does_not_end_authentication(
    start_broker: StartBroker,
) -> None:
    client = await (await with_users(start_broker)).client()
    refused = await client.call(ApiVersionsRequest(client_software_name="!"))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    client.writer.write(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    unsupported = await client.receive_frame()
    assert unsupported[4:6] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
    assert (await client.call(SOFTWARE)).error_code == 0
    assert (await plain(client, "alice", "secret")).error_code == 0


async def test_n25_a_handshake_of_version_0_is_followed_by_a_bare_token(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker)
    client = await broker.client()
    assert (await handshake(client, "PLAIN", 0)).error_code == 0
    token = plain_token("bob", "geheim")
    client.writer.write(len(token).to_bytes(4, "big") + token)
    assert await client.receive_frame() == b""
    assert await user_of(client, broker) == "bob"
    assert await serves(client)


async def test_n26_a_wrong_bare_token_closes_the_connection_without_an_answer(
    start_broker: StartBroker,
) -> None:
    client = await (await with_users(start_broker)).client()
    await handshake(client, "PLAIN", 0)
    token = plain_token("bob", "secret")
    client.writer.write(len(token).to_bytes(4, "big") + token)
    assert await client.closed()


async def test_n25_a_mechanism_that_is_not_enabled_is_refused(start_broker: StartBroker) -> None:
    client = await (await with_users(start_broker)).client()
    answer = await handshake(client, "SCRAM-SHA-256")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN"]
    assert await client.closed()


@pytest.mark.parametrize(
    "requests",
    [
        [MetadataRequest(topics=[])],
        [SaslAuthenticateRequest(auth_bytes=plain_token("alice", "secret"))],
        [SOFTWARE, MetadataRequest(topics=[])],
        [SOFTWARE, SOFTWARE],
        [SaslHandshakeRequest(mechanism="PLAIN"), MetadataRequest(topics=[])],
    ],
)
async def test_n13_n25_a_request_out_of_order_closes_the_connection(
    start_broker: StartBroker, requests: list[Any]
) -> None:
    broker = await with_users(start_broker)
    client = await broker.client()
    for request in requests[:-1]:
        assert (await client.call(request)).error_code == 0
    client.send(requests[-1])
    assert await client.closed()
    assert sum(broker.server.metrics.authentications.values()) == 1
    assert await serves_others(broker)


@pytest.mark.parametrize("request_", [SOFTWARE, SaslHandshakeRequest(mechanism="PLAIN")])
async def test_n25_a_request_out_of_place_after_the_handshake_is_answered(
    start_broker: StartBroker, request_: Any
) -> None:
    client = await (await with_users(start_broker)).client()
    await handshake(client, "PLAIN")
    assert (await client.call(request_)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.closed()


async def serves_others(broker: RunningBroker) -> bool:
    other = await broker.client()
    return (await plain(other, "bob", "geheim")).error_code == 0 and await serves(other)


# --- Failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (plain_token("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (plain_token("nobody", "secret"), "Authentication failed: Invalid username or password"),
        (
            plain_token("alice", "secret", "bob"),
            OTHER_USER,
        ),
    ],
)
async def test_n13_n26_a_failed_authentication_is_answered_and_ends_the_connection(
    start_broker: StartBroker, token: bytes, told: str
) -> None:
    broker = await with_users(start_broker)
    client = await broker.client()
    await handshake(client, "PLAIN")
    answer = await authenticate(client, token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (answer.error_message, answer.auth_bytes) == (told, b"")
    assert await client.closed()
    assert await serves_others(broker)


async def test_n26_a_failed_authentication_is_answered_after_the_delay(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, connection_failed_authentication_delay_ms="600000")
    client = await broker.client()
    await handshake(client, "PLAIN")
    client.send(SaslAuthenticateRequest(auth_bytes=plain_token("alice", "wrong")))
    metrics = broker.server.metrics
    await until(lambda: bool(metrics.authentications))
    client.send(MetadataRequest(topics=[]))
    assert await serves_others(broker)
    assert metrics.authentications == {
        ("SASL_PLAINTEXT", "PLAIN", False, True): 1,
        ("SASL_PLAINTEXT", "PLAIN", False, False): 1,
    }
    assert not client.reader._buffer  # type: ignore[attr-defined]


async def test_n26_the_log_has_no_unknown_user_name(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = await with_users(start_broker)
    for user in ("hunter2", "alice"):
        await plain(await broker.client(), user, "wrong-password")
    logged = capsys.readouterr()
    text = logged.out + logged.err
    assert "no such user" in text
    assert "a wrong password for user 'alice'" in text
    assert "hunter2" not in text
    assert "wrong-password" not in text


# --- Limits of unauthenticated connections --------------------------------------------------------


async def test_n27_a_large_frame_before_authentication_closes_the_connection(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, sasl_server_max_receive_size="200")
    client = await broker.client()
    client.writer.write((201).to_bytes(4, "big"))
    assert await client.closed()
    client = await broker.client()
    assert (await plain(client, "alice", "secret")).error_code == 0
    # An authenticated connection may send large requests.
    await client.create_topic("t" * 200)


async def test_n27_a_connection_that_does_not_authenticate_in_time_is_closed(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, sasl_authentication_timeout_ms="100")
    known, slow = await broker.client(), await broker.client()
    assert (await plain(known, "alice", "secret")).error_code == 0
    assert await slow.closed()
    assert await serves(known)


async def test_n27_silent_connections_of_an_address_keep_none_of_its_clients_out(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, max_sasl_authentications_per_ip="2")
    silent = [await broker.client() for _ in range(2)]
    for each in silent:
        await each.call(SOFTWARE)
    known = await broker.client()
    assert (await plain(known, "alice", "secret")).error_code == 0
    assert await silent[0].closed()
    assert (await plain(silent[1], "bob", "geheim")).error_code == 0
    assert await serves(known)


async def test_n27_failed_authentications_are_not_cut_short_by_further_ones(
    start_broker: StartBroker,
) -> None:
    """Otherwise a peer that opens many connections would try passwords without any delay."""
    broker = await with_users(
        start_broker,
        max_sasl_authentications_per_ip="2",
        connection_failed_authentication_delay_ms="600000",
    )
    failing = [await broker.client() for _ in range(2)]
    for each in failing:
        await handshake(each, "PLAIN")
        each.send(SaslAuthenticateRequest(auth_bytes=plain_token("alice", "wrong")))
    failed = SessionState.AUTHENTICATION_FAILED
    await until(lambda: {each._state for each in broker.server.sessions} == {failed})
    assert await (await broker.client()).closed()
    assert {each._state for each in broker.server.sessions} == {failed}


async def test_n27_the_oldest_of_too_many_unauthenticated_connections_is_closed(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, max_sasl_authentications="2")
    known = await broker.client()
    await plain(known, "alice", "secret")
    others = [await broker.client() for _ in range(3)]
    for each in others[1:]:
        await each.call(SOFTWARE)
    assert await others[0].closed()
    for each in others[1:]:
        assert (await plain(each, "bob", "geheim")).error_code == 0
    assert await serves(known)


def test_n27_repeated_failures_of_an_address_lengthen_the_delay() -> None:
    now_ms = 0
    connections = UnauthenticatedConnections(1, 1, lambda: now_ms)
    waits = [connections.failed("a", 100) for _ in range(14)]
    assert waits[:5] == [100] * 5
    assert waits[5:8] == [300, 500, 900]
    assert waits[-1] == 5_100
    assert connections.failed("b", 100) == 100
    several = [connections.failed(f"2001:db8::{number}", 100) for number in range(8)]
    assert several == waits[:8]
    now_ms = 60_000
    assert connections.failed("a", 100) == 100


# --- Sessions -------------------------------------------------------------------------------------


async def test_n28_reauthentication_prolongs_the_session(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, connections_max_reauth_ms="60000")
    client = await broker.client()
    answer = await plain(client, "alice", "secret")
    assert answer.session_lifetime_ms == 60_000
    session: Any = next(iter(broker.server.sessions))
    first_ms = session._authentication._expires_at_ms
    answer = await plain(client, "alice", "secret")
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    assert session._authentication._expires_at_ms >= first_ms
    # A client may re-authenticate at most once a second.
    assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await serves(client)
    assert broker.server.metrics.authentications["SASL_PLAINTEXT", "PLAIN", True, False] == 1


async def test_n28_reauthentication_as_another_user_is_refused(start_broker: StartBroker) -> None:
    broker = await with_users(start_broker, connections_max_reauth_ms="60000")
    client = await broker.client()
    await plain(client, "alice", "secret")
    answer = await plain(client, "bob", "geheim")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert await client.closed()


async def test_n28_reauthentication_with_another_mechanism_is_refused(
    start_broker: StartBroker,
) -> None:
    keys = LISTENER | USERS | {"connections.max.reauth.ms": "60000"}
    keys["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
    broker = await start_broker(keys=keys)
    client = await broker.client()
    await plain(client, "alice", "secret")
    assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0
    client.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"))
    assert await client.closed()


async def test_n28_reauthentication_with_a_wrong_password_closes_the_connection(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, connections_max_reauth_ms="60000")
    client = await broker.client()
    await plain(client, "alice", "secret")
    answer = await plain(client, "alice", "wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.closed()


async def test_n28_a_request_on_an_expired_session_closes_the_connection(
    start_broker: StartBroker,
) -> None:
    broker = await with_users(start_broker, connections_max_reauth_ms="60000")
    late, again = await broker.client(), await broker.client()
    for client in (late, again):
        await plain(client, "alice", "secret")
    sessions: list[Any] = list(broker.server.sessions)
    for session in sessions:
        session._authentication._expires_at_ms = 0
    late.send(MetadataRequest(topics=[]))
    assert await late.closed()
    assert broker.server.metrics.sessions_expired_total == 1
    assert (await plain(again, "alice", "secret")).error_code == 0
    assert await serves(again)


async def test_n24_n28_reauthentication_without_a_session_lifetime_is_refused(
    start_broker: StartBroker,
) -> None:
    client = await (await with_users(start_broker)).client()
    await plain(client, "alice", "secret")
    assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = await authenticate(client, plain_token("alice", "secret"))
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await serves(client)


# --- SCRAM ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_a45_scram_authenticates_with_the_credentials_of_the_metadata(
    start_broker: StartBroker, mechanism: ScramMechanism
) -> None:
    broker = await start_broker(keys=LISTENER | SCRAM)
    client = await broker.client()
    refused = await scram(client, mechanism, "a,b=c", "secret")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism"
        f" {mechanism.mechanism}"
    )
    assert await client.closed()
    credential = new_credential(mechanism, "secret", b"0123456789", 8192)
    broker.node.metadata_log.commit([credential_record("a,b=c", mechanism, credential)])
    client = await broker.client()
    assert (await scram(client, mechanism, "a,b=c", "secret")).error_code == 0
    assert await user_of(client, broker) == "a,b=c"
    assert await serves(client)
    client.close()
    for user, password, more in (
        ("a,b=c", "Secret", {}),
        ("a,b=c", "secret", {"authorization_id": "other"}),
        ("a,b=c", "secret", {"extensions": {"tokenauth": "true"}}),
        ("nobody", "secret", {}),
    ):
        answer = await scram(await broker.client(), mechanism, user, password, **more)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_a53_a_token_authenticates_its_owner_until_it_expires(
    start_broker: StartBroker, mechanism: ScramMechanism
) -> None:
    broker = await start_broker(keys=LISTENER | SCRAM | {"delegation.token.secret.key": "a key"})
    metadata = broker.node.metadata
    now_ms = broker.node.clock.wall_ms()
    change = create_token(metadata, "User:alice", "User:bob", [], 60_000, now_ms)
    broker.node.metadata_log.commit(change.records)
    assert change.token is not None
    token_id = change.token.token_id
    password = metadata.delegation_tokens.password_of(token_id)
    as_token: Any = {"extensions": {"tokenauth": "true"}}
    # Without the extension `tokenauth`, the HMAC of a token is no password.
    wrong = await scram(await broker.client(), mechanism, token_id, password)
    assert wrong.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client = await broker.client()
    answer = await scram(client, mechanism, token_id, password, **as_token)
    assert answer.error_code == 0
    assert 0 < answer.session_lifetime_ms <= 60_000
    session = next(each for each in broker.server.sessions if each.peer.user == "alice")
    assert session.peer.by_token
    refused = await client.call(DescribeDelegationTokenRequest(owners=None))
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    hmac = metadata.delegation_tokens.hmac_of(token_id)
    ended = expire_token(metadata, "User:alice", hmac, 0, now_ms)
    broker.node.metadata_log.commit(ended.records)
    answer = await scram(await broker.client(), mechanism, token_id, password, **as_token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# --- The users file -------------------------------------------------------------------------------


async def test_a44_n57_a_changed_users_file_adds_and_removes_users(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(name: str, password: str) -> str:
        return f"{name}:{hash_password(password, b'0123456789abcdef')}\n"

    path = tmp_path / "users"
    path.write_text(line("carol", "secret"))
    keys = LISTENER | {"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users.file": str(path)}
    broker = await start_broker(keys=keys)
    assert broker.server._sasl is not None
    (file,) = broker.server._sasl._files
    threads: list[int] = []

    def read(text: str) -> dict[str, PasswordHash]:
        threads.append(get_ident())
        return parse_users(text)

    monkeypatch.setattr(sasl_listeners, "parse_users", read)

    async def read_again() -> None:
        """Have the file read, which takes too long for the loop (N-57)."""
        file.refresh()
        await until(lambda: not file._reading)

    for _ in range(2):
        assert (await plain(await broker.client(), "carol", "secret")).error_code == 0
    hashed = line("", "secret")
    more = "".join(f"user-{number}{hashed}" for number in range(12_000))
    path.write_text("# nobody else\n\n" + line("dave:x", "other") + more)
    await read_again()
    assert (await plain(await broker.client(), "carol", "secret")).error_code
    assert (await plain(await broker.client(), "dave:x", "other")).error_code == 0
    path.write_text("dave:plain text\n")
    await read_again()
    assert (await plain(await broker.client(), "dave:x", "other")).error_code == 0
    assert len(threads) == 2 and get_ident() not in threads


async def test_a44_a_broker_with_an_unusable_users_file_does_not_start(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    path = tmp_path / "users"
    path.write_text("carol:secret\n")
    keys = LISTENER | {"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users.file": str(path)}
    with pytest.raises(StartError, match="line 1") as raised:
        await start_broker(keys=keys)
    assert "secret" not in str(raised.value)
    keys["sasl.plain.users.file"] = str(tmp_path / "none")
    with pytest.raises(StartError, match="cannot read"):
        await start_broker(keys=keys)


async def test_n27_wrong_passwords_do_not_delay_known_users(
    start_broker: StartBroker, tmp_path: Path
) -> None:

    path = tmp_path / "users"
    path.write_text(f"carol:{hash_password('secret', b'0123456789abcdef')}\n")
    keys = LISTENER | {"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.users.file": str(path)}
    broker = await start_broker(keys=keys)
    assert (await plain(await broker.client(), "carol", "secret")).error_code == 0
    guesses = [await broker.client() for _ in range(10)]
    for number, each in enumerate(guesses):
        await handshake(each, "PLAIN")
        each.send(SaslAuthenticateRequest(auth_bytes=plain_token("carol", str(number))))
    known = await broker.client()
    assert (await plain(known, "carol", "secret")).error_code == 0
    assert await serves(known)
    answer = await guesses[0].receive()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# --- Every API ------------------------------------------------------------------------------------

_BEFORE = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}


def _requests() -> list[tuple[ApiKey, bytes]]:
    """A frame of each served API, in its newest version."""
    newest: dict[ApiKey, bytes] = {}
    for api, line in golden.bodies():
        version = line["version"]
        if (line["direction"], line["variant"]) == ("request", "full") and (
            version == api.versions.last
        ):
            tags = b"\0" if api.request_header_version(version) == 2 else b""
            header = struct.pack(">hhih", api.key, version, 7, 1) + b"x" + tags
            body = header + bytes.fromhex(line["hex"])
            newest[api.key] = len(body).to_bytes(4, "big") + body
    assert set(newest) == set(APIS)
    return list(newest.items())


def ends_of_logs(broker: RunningBroker) -> dict[tuple[str, int], int]:
    logs = broker.server.node.logs
    return {(log.topic, log.partition): log.log_end_offset for log in logs}


@pytest.mark.parametrize("credentials", ["none", "a wrong password", "an unknown user"])
async def test_a20_n25_no_api_is_served_before_authentication(
    start_broker: StartBroker, credentials: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has no answer and no effect: neither topics nor groups nor users are created."""
    monkeypatch.setattr(sasl_listeners, "_FREE_FAILURES", 1_000)
    broker = await start_broker(
        keys=LISTENER
        | USERS
        | {
            "connection.failed.authentication.delay.ms": "0",
            "auto.create.topics.enable": "true",
        }
    )
    before = ends_of_logs(broker)
    handled: list[ApiKey] = []
    for key, request in _requests():
        client = await broker.client()
        if credentials != "none":
            name = "alice" if credentials == "a wrong password" else "nobody"
            answer = await plain(client, name, "wrong")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        client.writer.write(request)
        if credentials == "none" and key in _BEFORE:
            await client.receive_frame()
            handled.append(key)
        else:
            assert await client.closed(), key.name
        client.close()
    assert set(handled) == (_BEFORE if credentials == "none" else set())
    assert ends_of_logs(broker) == before


async def test_a23_the_history_has_authenticated_connections_only(
    start_broker: StartBroker,
) -> None:
    """Unauthenticated connections are not in the history. Its events name the user."""
    broker = await with_users(start_broker)
    history = broker.node.connections.history
    stranger = await broker.client()
    assert (await stranger.call(SOFTWARE)).error_code == 0
    wrong = await broker.client()
    assert (await plain(wrong, "alice", "wrong")).error_code
    stranger.close()
    assert await wrong.closed()
    await until(lambda: not broker.node.connections.peers)
    assert list(history.newest(-1)) == []
    client = await broker.client()
    assert (await plain(client, "alice", "secret")).error_code == 0
    assert list(history.newest(-1)) == []
    assert await serves(client)
    assert await serves(client)
    client.close()
    await until(lambda: not broker.node.connections.peers)
    events = [event for _, _, event in history.newest(-1)][::-1]
    assert [event.kind for event in events] == [
        EventKind.CLIENT_CONNECTED,
        EventKind.CLIENT_DISCONNECTED,
    ]
    assert {event.fields["user"] for event in events} == {"alice"}


@pytest.mark.parametrize("version", [0, 1])
async def test_a23_a_reauthenticated_connection_is_recorded_once(
    start_broker: StartBroker, version: int
) -> None:
    broker = await with_users(start_broker, connections_max_reauth_ms="3600000")
    history = broker.node.connections.history
    client = await broker.client()
    assert (await plain(client, "alice", "secret", version)).error_code == 0
    assert await serves(client)
    assert (await plain(client, "alice", "secret", version)).error_code == 0
    assert await serves(client)
    (kind,) = [event.kind for _, _, event in history.newest(-1)]
    assert kind is EventKind.CLIENT_CONNECTED
