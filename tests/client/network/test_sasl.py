"""Clients with SASL: successful and refused authentications, and renewed sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek import Admin, Consumer, Producer, sync
from odradek_client.errors import AuthenticationFailed, MetadataTimeout
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeResponse
from sasl_script import SaslScript
from scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from waiting import until

SECRET = "secret"


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        yield broker


def settings(broker: ScriptedBroker, mechanism: str = "PLAIN", **more: Any) -> dict[str, Any]:
    who = {"sasl_username": "alice", "sasl_password": SECRET} if mechanism != "OAUTHBEARER" else {}
    return {
        "bootstrap_servers": broker.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **who,
        **more,
    }


async def failure(given: dict[str, Any]) -> str:
    """The error text of a refused client. Checks that the client fails before its timeout."""
    producer = Producer(**given, max_block_ms=2**31 - 1)
    try:
        with pytest.raises(AuthenticationFailed) as caught:
            async with asyncio.timeout(60):
                await producer.start()
    finally:
        await producer.close()
    if "refuses" in str(caught.value) and "signature" not in str(caught.value):
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    return str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_c71_no_request_is_sent_before_authentication_succeeds(
    mechanism: str, version: int
) -> None:
    async with ScriptedBroker(
        topics={"t": 1}, versions={ApiKey.SASL_AUTHENTICATE: (0, version)}
    ) as broker:
        SaslScript(broker)
        async with Producer(**settings(broker, mechanism)) as producer:
            await producer.send_and_wait("t", b"value")
        steps = 1 if mechanism == "PLAIN" else 2
        login = [
            ApiKey.API_VERSIONS,
            ApiKey.SASL_HANDSHAKE,
            *[ApiKey.SASL_AUTHENTICATE] * steps,
        ]
        keys = [key for key, _, _ in broker.requests]
        before = keys[: keys.index(ApiKey.METADATA)]
        assert before[: len(login)] == login
        # A second connection may have begun.
        assert set(before) == set(login)
        assert {v for key, v, _ in broker.requests if key is ApiKey.SASL_AUTHENTICATE} == {version}
        assert broker.log("t").values == [b"value"]


async def test_c71_a_broker_with_sasl_handshake_version_0_alone_is_too_old() -> None:
    async with ScriptedBroker(versions={ApiKey.SASL_HANDSHAKE: (0, 0)}) as broker:
        SaslScript(broker)
        assert "Kafka 1.0" in await failure(settings(broker))


async def test_c72_a_broker_with_a_wrong_scram_signature_is_refused(
    broker: ScriptedBroker,
) -> None:
    SaslScript(broker).knows_password = False
    assert "signature is wrong" in await failure(settings(broker, "SCRAM-SHA-256"))


@pytest.mark.parametrize(
    ("iterations", "words"), [(4095, "at least 4096"), (100_001, "at most 100000")]
)
async def test_c72_scram_iterations_outside_the_limits_are_refused(
    broker: ScriptedBroker, iterations: int, words: str
) -> None:
    SaslScript(broker).iterations = iterations
    assert words in await failure(settings(broker, "SCRAM-SHA-256"))
    assert len(broker.received(ApiKey.SASL_AUTHENTICATE)) == 1, "no proof is sent"


async def test_c73_a_session_is_renewed_between_requests(broker: ScriptedBroker) -> None:
    script = SaslScript(broker)
    script.lifetime_ms = 40
    async with Producer(**settings(broker)) as producer:
        await producer.send_and_wait("t", b"first")
        connections = broker.connections
        sent = 1
        while script.handshakes < connections + 3:
            await producer.send_and_wait("t", b"more")
            sent += 1
        assert broker.connections == connections
    assert len(broker.log("t").values) == sent


async def test_c73_re_authentication_follows_open_requests_and_delays_new_ones(
    broker: ScriptedBroker,
) -> None:
    script = SaslScript(broker)
    answer_now = asyncio.Event()

    async def held(request: Any, version: int) -> Any:
        await answer_now.wait()
        return broker._metadata(request, version)

    async with Admin(**settings(broker)) as admin:
        network = admin.network
        node_id = await network.least_loaded_node()
        connection = network.ready(node_id, "main")
        assert connection is not None
        broker.on(ApiKey.METADATA, held)
        before = len(broker.requests)
        first = asyncio.ensure_future(admin.list_topics())
        await until(lambda: len(broker.requests) > before)
        assert connection.in_flight == 1
        renewal = asyncio.ensure_future(connection._reauthenticate())
        await until(lambda: connection._authenticating)
        assert not connection.is_ready
        second = asyncio.ensure_future(admin.list_topics())
        await until(lambda: len(connection.queued) == 1)
        answer_now.set()
        await asyncio.gather(first, second, renewal)
        after = [key for key, _, _ in broker.requests[before:]]
        assert after[:4] == [
            ApiKey.METADATA,
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.METADATA,
        ]
        assert script.handshakes == broker.connections + 1


async def test_c73_c75_a_refused_re_authentication_is_raised_at_once(
    broker: ScriptedBroker,
) -> None:
    script = SaslScript(broker)
    producer = Producer(**settings(broker, delivery_timeout_ms=2**31 - 1))
    await producer.start()
    await producer.send_and_wait("t", b"first")
    script.password = "another"
    broker.hang_up()
    async with asyncio.timeout(60):
        with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
            await producer.send_and_wait("t", b"second")
        # With the correct password again, a producer without a transaction continues.
        script.password = SECRET
        while True:
            try:
                await producer.send_and_wait("t", b"third")
                break
            except AuthenticationFailed:
                await asyncio.sleep(0.01)
        await producer.close()
    assert broker.log("t").values[0] == b"first" and broker.log("t").values[-1] == b"third"


async def test_c75_a_refused_authentication_ends_a_transactional_producer(
    broker: ScriptedBroker,
) -> None:
    script = SaslScript(broker)
    script.password = "another"
    assert (
        "user 'alice' (PLAIN): Invalid username or password; check sasl.username"
        in await failure(settings(broker, transactional_id="x"))
    )


async def test_c75_polls_and_calls_raise_a_failed_authentication_at_once(
    broker: ScriptedBroker,
) -> None:
    script = SaslScript(broker)
    async with (
        Consumer(**settings(broker)) as consumer,
        Admin(**settings(broker)) as admin,
    ):
        consumer.assign([("t", 0)])
        broker.on(ApiKey.FETCH, SILENCE)
        script.password = "another"
        broker.hang_up()
        async with asyncio.timeout(60):
            with pytest.raises(AuthenticationFailed):
                await consumer.poll(2**31 - 1)
            with pytest.raises(AuthenticationFailed):
                await admin.list_topics()


async def test_c75_an_unsupported_mechanism_error_lists_the_brokers_mechanisms(
    broker: ScriptedBroker,
) -> None:
    SaslScript(broker, mechanisms=("SCRAM-SHA-256", "GSSAPI"))
    said = await failure(settings(broker, "PLAIN"))
    assert "sasl.mechanism=PLAIN: the broker has SCRAM-SHA-256, GSSAPI" in said


async def test_c74_c75_an_unreachable_token_endpoint_is_named_without_the_secret(
    broker: ScriptedBroker,
) -> None:
    SaslScript(broker)
    client = "sasl_oauthbearer_client_credentials_client_"
    endpoint = {
        "sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/token",
        f"{client}id": "me",
        f"{client}secret": "hidden-word",
    }
    said = await failure(settings(broker, "OAUTHBEARER", **endpoint))
    assert "no token from http://127.0.0.1:1/token: Connection refused" in said
    assert "hidden-word" not in said and not broker.received(ApiKey.SASL_HANDSHAKE)


async def test_c74_a_token_that_was_refused_is_not_used_again(broker: ScriptedBroker) -> None:
    revoked: set[str] = set()
    script = SaslScript(broker, takes_token=lambda token: token not in revoked)
    tokens = ["second", "first"]
    end_s = time.time() + 3600
    given = settings(broker, "OAUTHBEARER", sasl_oauth_token_provider=lambda: (tokens.pop(), end_s))
    async with Producer(**given) as producer:
        await producer.send_and_wait("t", b"value")
        assert set(script.tokens) == {"first"}
        revoked.add("first")
        broker.hang_up()
        async with asyncio.timeout(60):
            with pytest.raises(AuthenticationFailed, match="refuses the token as 'invalid_token'"):
                await producer.send_and_wait("t", b"more")
            while True:
                try:
                    await producer.send_and_wait("t", b"more")
                    break
                except AuthenticationFailed:
                    await asyncio.sleep(0.01)
    assert script.tokens[-1] == "second" and not tokens


async def test_c75_an_unanswered_authentication_is_retried(broker: ScriptedBroker) -> None:
    """Some brokers delay the answer to a wrong password, so the error names a wrong password as a
    possible reason."""
    SaslScript(broker)
    broker.on(ApiKey.SASL_AUTHENTICATE, SILENCE)
    async with Producer(**settings(broker, socket_connection_setup_timeout_ms=200)) as producer:
        assert len(broker.received(ApiKey.SASL_AUTHENTICATE)) >= 2
        await producer.send_and_wait("t", b"value")
    broker.always(ApiKey.SASL_AUTHENTICATE, lambda *_: SILENCE)
    with pytest.raises(MetadataTimeout, match="does not answer the authentication; it lets wait"):
        async with Producer(
            **settings(broker, socket_connection_setup_timeout_ms=50, max_block_ms=500)
        ):
            pass


async def test_c75_a_refused_authentication_is_not_delayed_by_an_unreachable_broker(
    broker: ScriptedBroker,
) -> None:
    SaslScript(broker).password = "another"
    given = settings(broker) | {"bootstrap_servers": f"{broker.address},127.0.0.1:1"}
    assert "Invalid username" in await failure(given)


async def test_c75_a_blocking_client_authenticates_or_fails_at_once(broker: ScriptedBroker) -> None:
    script = SaslScript(broker)

    def produce(password: str) -> None:
        with sync.Producer(**settings(broker, sasl_password=password)) as producer:
            producer.send("t", b"value").result(60_000)

    await asyncio.to_thread(produce, SECRET)
    assert broker.log("t").values == [b"value"] and script.handshakes
    with pytest.raises(AuthenticationFailed):
        await asyncio.to_thread(produce, "wrong")


async def test_c76_a_sasl_client_at_a_listener_without_sasl_names_the_setting(
    broker: ScriptedBroker,
) -> None:
    refusal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    broker.always(ApiKey.SASL_HANDSHAKE, lambda *_: refusal)
    assert "set security.protocol=PLAINTEXT" in await failure(settings(broker))
    async with ScriptedBroker(versions={ApiKey.SASL_HANDSHAKE: None}) as other:
        assert "set security.protocol=PLAINTEXT" in await failure(settings(other))


async def test_c76_a_plaintext_client_at_a_sasl_listener_names_the_settings(
    broker: ScriptedBroker,
) -> None:
    SaslScript(broker).refuse_unauthenticated()
    said = await failure({"bootstrap_servers": broker.address})
    assert "set security.protocol=SASL_PLAINTEXT and sasl.mechanism" in said
    assert "PLAIN, SCRAM-SHA-256, OAUTHBEARER" in said


async def test_c76_a_broker_that_hangs_up_without_sasl_is_retried(
    broker: ScriptedBroker,
) -> None:
    broker.on(ApiKey.METADATA, HANG_UP, HANG_UP)
    broker.always(ApiKey.SASL_HANDSHAKE, lambda *_: HANG_UP)
    async with Producer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait("t", b"value")


async def test_c77_errors_and_logs_show_no_secret(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "a-secret-word"
    line = f'x.PlainLoginModule required username="alice" password="{secret}";'
    for given in (
        settings(broker, sasl_password=secret),
        settings(broker, sasl_username="", sasl_password="", sasl_jaas_config=line),
        settings(broker, "SCRAM-SHA-256", sasl_password=secret),
    ):
        script = SaslScript(broker, secret)
        async with Admin(**given) as admin:
            config = admin.network.config
            login = admin.network.connections._login
            assert login is not None
            shown = repr(config) + repr(config.sasl) + repr(admin) + repr(login._credentials)
            shown += repr(await login(1000)) + repr(vars(login))
        script.password = "another"
        shown += await failure(given)
        assert secret not in shown
    shown = "".join(map(repr, broker.requests))
    assert secret not in shown and secret not in caplog.text
