"""The sources of tokens: functions, endpoints and files; and the errors if there is no token."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from certificates import Authority
from odradek_client.errors import AuthenticationFailed
from odradek_client.sasl.exchanges import OAuthBearerExchange, ScramExchange
from odradek_client.sasl.login import Login
from odradek_client.sasl.settings import SaslSettings

HOUR_MS = 3_600_000
CA = Authority()


class Clock:
    now_ms = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now_ms


class Endpoint:
    """An HTTP server with prepared answers, which records its requests."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/token?tenant=a"
        self.answers: list[tuple[str, Any]] = []
        self.requests: list[tuple[str, dict[str, str], str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        exact = dict(line.split(": ", 1) for line in lines)
        body = (await reader.readexactly(int(headers["content-length"]))).decode()
        self.requests.append((head, exact, body))
        status, said = self.answers.pop(0)
        text = said if isinstance(said, str) else json.dumps(said)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        writer.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    served: list[Endpoint] = []
    server = await asyncio.start_server(lambda r, w: served[0].serve(r, w), "127.0.0.1", 0)
    async with server:
        served.append(Endpoint(server.sockets[0].getsockname()[1]))
        yield served[0]


def login(clock: Clock | None = None, **settings: Any) -> Login:
    given = SaslSettings(mechanism="OAUTHBEARER", **settings)
    if given.token_endpoint_url.startswith("http"):
        given = replace(given, client_id="me", client_secret="a=secret,word")
    return Login(given, Random(1), clock or Clock())


async def token(of: Login, timeout_ms: float = 30_000) -> str:
    exchange = await of(timeout_ms)
    assert isinstance(exchange, OAuthBearerExchange)
    return exchange._token.value


async def test_c74_a_token_request_is_that_of_kafka(endpoint: Endpoint) -> None:
    endpoint.answers += [("200 OK", {"access_token": "one", "expires_in": 3600})]
    clock = Clock()
    asked = login(clock, token_endpoint_url=endpoint.url, scope="a b")
    assert await token(asked) == "one"
    [(head, headers, body)] = endpoint.requests
    assert (
        head == "POST /token?tenant=a HTTP/1.1"
        and body == "grant_type=client_credentials&scope=a+b"
    )
    basic = base64.b64encode(b"me:a=secret,word").decode()
    assert headers["Authorization"] == f"Basic {basic}"
    clock.now_ms += 0.79 * HOUR_MS
    assert await token(asked) == "one"
    clock.now_ms += 0.07 * HOUR_MS
    endpoint.answers += [("200 OK", {"access_token": "two", "expires_in": 3600})]
    assert await token(asked) == "two"


@pytest.mark.parametrize("lasts", [10**400, float("inf"), float("nan"), True, "3600", None])
async def test_c74_a_lifetime_that_is_no_number_of_seconds_is_ignored(
    endpoint: Endpoint, lasts: object
) -> None:
    endpoint.answers += [("200 OK", {"access_token": "one", "expires_in": lasts})]
    assert await token(login(Clock(), token_endpoint_url=endpoint.url)) == "one"


async def test_c74_many_connections_share_one_token_request() -> None:
    calls = 0
    release = asyncio.Event()

    async def provider() -> tuple[str, float]:
        nonlocal calls
        calls += 1
        await release.wait()
        return "one", Clock.now_ms / 1000 + 3600

    asked = login(token_provider=provider)
    waiting = [asyncio.ensure_future(token(asked)) for _ in range(5)]
    release.set()
    assert await asyncio.gather(*waiting) == ["one"] * 5 and calls == 1
    asked.refused()
    assert await token(asked) == "one" and calls == 2


async def test_c74_an_old_token_is_used_until_it_expires_if_renewal_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    clock = Clock()
    answers: list[Any] = [("one", clock.now_ms / 1000 + 3600), OSError("down"), OSError("down")]

    def provider() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    asked = login(clock, token_provider=provider)
    assert await token(asked) == "one"
    clock.now_ms += 0.9 * HOUR_MS
    assert await token(asked) == "one" and "is used until it expires" in caplog.text
    assert await token(asked) == "one" and len(answers) == 1, "not asked again so soon"
    clock.now_ms += 0.2 * HOUR_MS
    with pytest.raises(AuthenticationFailed, match="failed with OSError: down"):
        await token(asked)


async def test_c74_an_overloaded_token_endpoint_is_retried(endpoint: Endpoint) -> None:
    busy = ("503 Service Unavailable", "")
    endpoint.answers += [busy, busy, ("200 OK", {"access_token": "one"})]
    assert await token(login(token_endpoint_url=endpoint.url, login_retry_backoff_ms=1)) == "one"
    endpoint.answers += [busy] * 100
    impatient = login(
        token_endpoint_url=endpoint.url, login_retry_backoff_ms=1, login_retry_backoff_max_ms=500
    )
    with pytest.raises(AuthenticationFailed, match="answers 503 Service Unavailable"):
        await token(impatient)
    assert len(endpoint.requests) > 4


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            ("401 Unauthorized", {"error": "invalid_client"}),
            r"401 Unauthorized \(invalid_client\); check",
        ),
        (("400 Bad Request", {"error": "x", "error_description": "y"}), r"\(x: y\)"),
        (("302 Found", ""), "answers 302 Found"),
        (("200 OK", {"token": "secret"}), "has no access_token"),
        (("200 OK", "no JSON"), "has no access_token"),
        (("200 OK", "[" * 100_000), "has no access_token"),
        (("200 OK", {"access_token": 7}), "has no access_token"),
        (("200 OK", " " * 1_100_000), "more than 1048576 bytes"),
        (("200 OK", {"access_token": " "}), "the token is empty"),
    ],
)
async def test_c74_c75_other_endpoint_errors_are_raised_at_once(
    endpoint: Endpoint, answer: tuple[str, Any], words: str
) -> None:
    endpoint.answers.append(answer)
    with pytest.raises(AuthenticationFailed, match=words) as caught:
        await token(login(token_endpoint_url=endpoint.url))
    assert "secret,word" not in str(caught.value) and len(endpoint.requests) == 1


async def test_c75_an_unreachable_token_endpoint_is_named() -> None:
    with pytest.raises(AuthenticationFailed, match=r"http://127.0.0.1:1/t: Connection refused"):
        await token(login(token_endpoint_url="http://127.0.0.1:1/t"))
    with pytest.raises(AuthenticationFailed, match="cannot be resolved"):
        await token(login(token_endpoint_url="http://no-such-host.invalid/t"))


async def test_c75_a_token_endpoint_that_does_not_answer_times_out(endpoint: Endpoint) -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/t"
        asked = login(
            token_endpoint_url=url, login_read_timeout_ms=10, login_retry_backoff_max_ms=10_000_000
        )
        with pytest.raises(AuthenticationFailed, match=r"no token within 500 ms: .*in time"):
            await token(asked, 500)
        server.close()


async def test_a_token_endpoint_may_use_tls(tmp_path: Path) -> None:
    CA.write(tmp_path / "ca.pem")
    CA.issue().write(tmp_path / "idp.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "idp.pem")
    served: list[Endpoint] = []
    server = await asyncio.start_server(
        lambda r, w: served[0].serve(r, w), "127.0.0.1", 0, ssl=context
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        served.append(Endpoint(port))
        served[0].answers.append(("200 OK", {"access_token": "one"}))
        url = f"https://localhost:{port}/t"
        with pytest.raises(AuthenticationFailed, match="not from a CA that is trusted here"):
            await token(login(token_endpoint_url=url))
        line = (
            f'x.OAuthBearerLoginModule required ssl.truststore.location="{tmp_path}/ca.pem"'
            " ssl.truststore.type=PEM;"
        )
        assert await token(login(token_endpoint_url=url, jaas_config=line)) == "one"


async def test_a_token_in_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("one\n", "utf-8")
    asked = login(token_endpoint_url=path.as_uri())
    assert await token(asked) == "one"
    path.write_text("two\n", "utf-8")
    assert await token(asked) == "two"
    path.unlink()
    with pytest.raises(AuthenticationFailed, match=r"cannot read .*a token"):
        await token(asked)


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (lambda: None, r"must return \(token, end.*returned a NoneType"),
        (lambda: ("x", "soon"), "returned a tuple"),
        (lambda: 1 / 0, "failed with ZeroDivisionError"),
        (lambda: "", "the token is empty"),
    ],
)
async def test_c75_wrong_results_of_a_token_function_are_refused(
    provider: Callable[[], Any], words: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=words):
        await token(login(token_provider=provider))


async def test_a_token_function_may_be_plain_or_async() -> None:
    async def coroutine() -> str:
        return "one"

    for provider in (coroutine, lambda: coroutine(), lambda: "one", lambda: ("one", None)):
        assert await token(login(token_provider=provider)) == "one"


async def test_c75_a_token_function_that_never_returns_times_out() -> None:
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(
        AuthenticationFailed, match="no token within 10 ms: sasl_oauth_token_provider"
    ):
        await token(login(token_provider=never), 10)


@pytest.mark.parametrize("as_jaas", [False, True])
async def test_c77_a_password_in_a_file_is_read_for_each_authentication(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, as_jaas: bool
) -> None:
    file = tmp_path / "secrets"
    name, password = f"${{file:{file}:id}}", f"${{file:{file}:hmac}}"
    line = f'ScramLoginModule required username="{name}" password="{password}" tokenauth="true";'
    given: dict[str, Any] = (
        {"jaas_config": line} if as_jaas else {"username": name, "password": password}
    )
    file.write_text("id=one\nhmac=first\n", "utf-8")
    asked = Login(
        SaslSettings(mechanism="SCRAM-SHA-256", token_auth=not as_jaas, **given), Random(1), Clock()
    )

    async def who() -> tuple[str, str]:
        exchange = await asked(1_000)
        assert isinstance(exchange, ScramExchange)
        return exchange.who, exchange._password

    assert await who() == ("delegation token 'one'", "first")
    file.write_text("id=two\nhmac=second\n", "utf-8")
    assert await who() == ("delegation token 'two'", "second")
    assert not caplog.records
    file.unlink()
    assert await who() == ("delegation token 'two'", "second")
    (record,) = caplog.records
    assert "the password cannot be read again" in record.getMessage()
    assert "second" not in record.getMessage()
