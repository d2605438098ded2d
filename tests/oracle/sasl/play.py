"""Plays the cases with a broker, and returns the answers as plain values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.sasl.cases import CASES, METADATA, USERS, Ask, Case, Scram, Step, Together, Token

from odradek_protocol import frames
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS
from odradek_protocol.sasl.scram import (
    ClientFinal,
    ClientFirst,
    ScramMechanism,
    auth_message,
    client_proof,
    parse_server_first,
    salted_password,
)
from odradek_protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

_BY_NAME = {api.name: api for api in APIS.values()}
_PATIENCE_S = 30
_SALT = b"salt-of-the-oracle"
_SHOWN = (
    *("error_message", "mechanisms", "session_lifetime_ms"),
    *("principal_type", "principal_name", "token_requester_principal_name", "token_id", "hmac"),
    *("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "tokens"),
)
CLOSED = "closed"
Address = tuple[str, int]


class Connection:
    """A connection that exchanges frames. Methods return None if the broker has closed it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def exchange(self, data: bytes) -> bytes | None:
        """Send a frame and read the answer."""
        try:
            self.writer.write(len(data).to_bytes(4, "big") + data)
        except ConnectionError:
            return None
        return await self.read()

    async def read(self) -> bytes | None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, ask: Ask) -> Any:
        return _decoded(ask, await self.exchange(_frame(ask, 0)[4:]))

    async def ask_together(self, asks: Sequence[Ask]) -> list[Any]:
        """Send requests at the same time. Returns (API, answer) until the broker closes the
        connection."""
        self.writer.write(b"".join(_frame(ask, number) for number, ask in enumerate(asks)))
        answers: list[Any] = []
        for _ in asks:
            answer = await self.read()
            if answer is None:
                return [*answers, None]
            ask = asks[int.from_bytes(answer[:4], "big")]
            answers.append((ask.api, _decoded(ask, answer)))
        return answers


def _frame(ask: Ask, correlation_id: int) -> bytes:
    request = _BY_NAME[ask.api].request(**ask.fields)
    parts = frames.encode_request(request, ask.version, correlation_id, "raw")
    return b"".join(map(bytes, parts))


def _decoded(ask: Ask, answer: bytes | None) -> Any:
    if answer is None:
        return None
    return frames.decode_response(_BY_NAME[ask.api], ask.version, answer)


def _told(answer: Any) -> Any:
    """An answer as plain values, with placeholders for the random parts of tokens."""
    if answer is None:
        return CLOSED
    if isinstance(answer, bytes):
        return {"token": _token(answer)}
    if isinstance(answer, tuple):
        api, answer = answer
        return {"api": api, **_told(answer)}
    told: dict[str, Any] = {}
    if hasattr(answer, "error_code"):
        told["error"] = ErrorCode.of(answer.error_code).name
    for name in _SHOWN:
        if hasattr(answer, name):
            value = getattr(answer, name)
            told[name] = value.decode() if isinstance(value, bytes) else value
    if hasattr(answer, "auth_bytes"):
        told["token"] = _token(answer.auth_bytes)
    # The session ends with the token, whose remaining lifetime depends on the present time.
    if (told.get("session_lifetime_ms") or 0) > 1_000_000_000:
        told["session_lifetime_ms"] = "the token's"
    return told


def _token(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    text = re.sub(r"^r=[^,]+,s=[^,]+,", "r=<nonce>,s=<salt>,", text)
    return re.sub(r"^v=.*", "v=<signature>", text)


async def _scram(connection: Connection, step: Scram) -> list[Any]:
    mechanism = ScramMechanism.of_name(step.mechanism)
    assert mechanism is not None

    async def say(token: bytes) -> Any:
        if step.bare:
            return await connection.exchange(token)
        return await connection.ask(Ask("SaslAuthenticate", 2, {"auth_bytes": token}))

    first = ClientFirst(step.user, "nonce", step.authorization_id, step.extensions)
    answer = await say(first.encode())
    answers = [answer]
    token = answer if isinstance(answer, bytes) else getattr(answer, "auth_bytes", b"")
    if token:
        server = parse_server_first(token)
        salted = salted_password(mechanism, step.password, server.salt, server.iterations)
        final = ClientFinal(server.nonce + "x" * step.wrong_nonce, header=first.header)
        proof = client_proof(mechanism, salted, auth_message(first, server, final))
        answers.append(await say(ClientFinal(final.nonce, proof, first.header).encode()))
    return answers


async def _step(connection: Connection, step: Step) -> list[Any]:
    if isinstance(step, Scram):
        return await _scram(connection, step)
    if isinstance(step, Token):
        return [await connection.exchange(step.data)]
    if isinstance(step, Together):
        return await connection.ask_together(step.asks)
    return [await connection.ask(step)]


async def _case(address: Address, case: Case) -> list[Any]:
    reader, writer = await asyncio.open_connection(*address)
    connection = Connection(reader, writer)
    told: list[Any] = []
    try:
        for step in (*case.steps, METADATA):
            told += [_told(answer) for answer in await _step(connection, step)]
            if told[-1] == CLOSED:
                break
    finally:
        writer.close()
    return told


async def set_credentials(address: Address) -> None:
    """Set credentials of both mechanisms for all users, through a listener without
    authentication."""
    reader, writer = await asyncio.open_connection(*address)
    connection = Connection(reader, writer)
    for mechanism in ScramMechanism:
        request = AlterUserScramCredentialsRequest(
            upsertions=[
                ScramCredentialUpsertion(
                    name=user,
                    mechanism=mechanism.number,
                    iterations=4096,
                    salt=_SALT,
                    salted_password=salted_password(mechanism, password, _SALT, 4096),
                )
                for user, password in USERS.items()
            ]
        )
        fields = {"upsertions": request.upsertions}
        answer = await connection.ask(Ask("AlterUserScramCredentials", 0, fields))
        assert all(each.error_code == 0 for each in answer.results), answer
    writer.close()


async def play(addresses: Mapping[str, Address]) -> dict[str, list[Any]]:
    """Play all cases. Returns the answers by name of the case."""
    return {case.name: await _case(addresses[case.listener], case) for case in CASES}
