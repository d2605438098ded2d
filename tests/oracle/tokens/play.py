"""Plays the cases with a broker, and returns the answers as plain values."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.sasl import cases as sasl
from tests.oracle.sasl.play import CLOSED, Address, Connection
from tests.oracle.tokens.cases import (
    PASSWORD,
    PLAINTEXT,
    SASL,
    Case,
    Login,
    Step,
    Wait,
    rights,
    user,
)

from odradek_protocol.acls import AclPermission, PatternType
from odradek_protocol.common_structs import TokenPrincipal
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
from odradek_protocol.schemas.create_acls import AclCreation

_APIS = {api.name: api for api in APIS.values()}
#: Times are shown as numbers of steps of this length since the case began; a case takes only
#: seconds.
_STEP_MS = 600_000
_TIMES = ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")
_DESCRIBED_TIMES = ("issue_timestamp", "expiry_timestamp", "max_timestamp")
_PRINCIPALS = (
    *("principal_type", "principal_name"),
    *("token_requester_principal_type", "token_requester_principal_name"),
)
_CHANGES = ("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken")
#: The classes of the elements of lists in requests.
_STRUCTS: dict[str, Any] = {
    "renewers": TokenPrincipal,
    "owners": TokenPrincipal,
}


class _Play:
    """Plays one case. `number`: the number of the case; the names of the case's users contain
    it."""

    def __init__(
        self, addresses: Mapping[str, Address], number: int, case: Case, settle_s: float
    ) -> None:
        self._addresses = addresses
        self._settle_s = settle_s
        self._number = number
        self._case = case
        self._began_ms = time.time() * 1000
        self._connections: dict[str, Connection] = {}
        self._writers: list[asyncio.StreamWriter] = []
        #: Name of a token -> (token id, HMAC).
        self._tokens: dict[str, tuple[str, bytes]] = {}

    async def answers(self) -> list[Any]:
        told = []
        try:
            for step in self._case.steps:
                answer = await self._step(step)
                if answer is not None:
                    told.append(answer)
        finally:
            for each in self._writers:
                each.close()
        return told

    async def _step(self, step: Step) -> Any:
        if isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
            return None
        if isinstance(step, Login):
            return {"login": step.connection, "answers": await self._log_in(step)}
        connection = await self._connection(step.who)
        fields = {name: self._resolve(name, value) for name, value in step.fields.items()}
        answer = await connection.ask(sasl.Ask(step.api, step.version, fields))
        if step.token and answer is not None and not answer.error_code:
            self._tokens[step.token] = answer.token_id, bytes(answer.hmac)
        if step.api in _CHANGES:
            await asyncio.sleep(self._settle_s)
        return {"api": step.api, "who": step.who, **self._told(answer)}

    async def _open(self, listener: str = SASL) -> Connection:
        reader, writer = await asyncio.open_connection(*self._addresses[listener])
        self._writers.append(writer)
        return Connection(reader, writer)

    async def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            connection = self._connections[name] = await self._open()
            who = user(self._number, name.removeprefix("@"))
            await connection.ask(sasl.handshake())
            answer = await connection.ask(sasl.authenticate(sasl.plain(who, PASSWORD)))
            assert answer.error_code == 0, (name, answer)
        return self._connections[name]

    async def _log_in(self, step: Login) -> list[Any]:
        if not step.again:
            self._connections[step.connection] = await self._open()
        connection = self._connections[step.connection]
        answer = await connection.ask(sasl.handshake(step.mechanism))
        if answer is None or answer.error_code:
            return [self._told(answer)]
        mechanism = ScramMechanism.of_name(step.mechanism)
        assert mechanism is not None
        token_id, hmac = self._tokens.get(step.token, (step.token, b""))
        password = base64.b64encode(self._hmac(step.hmac) if step.hmac else hmac).decode()
        wanted = step.authorization_id
        wanted = token_id if wanted.startswith("<id") else self._name(wanted)
        first = ClientFirst(token_id, "nonce", wanted, {"tokenauth": step.word})
        answer = await connection.ask(sasl.authenticate(first.encode()))
        answers = [self._told(answer)]
        if answer is not None and answer.auth_bytes:
            server = parse_server_first(bytes(answer.auth_bytes))
            assert server.iterations == 4096
            salted = salted_password(mechanism, password, server.salt, server.iterations)
            final = ClientFinal(server.nonce, header=first.header)
            proof = client_proof(mechanism, salted, auth_message(first, server, final))
            answer = await connection.ask(
                sasl.authenticate(ClientFinal(final.nonce, proof, first.header).encode())
            )
            answers.append(self._told(answer))
        return answers

    # --- Names in requests ---

    def _name(self, text: str) -> str:
        return user(self._number, text[1:]) if text.startswith("@") else text

    def _hmac(self, text: str) -> bytes:
        name = text[1:-1] if text.startswith("<") else ""
        return self._tokens[name][1] if name in self._tokens else text.encode()

    def _resolve(self, name: str, value: Any) -> Any:
        if name == "hmac":
            return self._hmac(value)
        if isinstance(value, str):
            return self._name(value)
        if isinstance(value, Sequence) and name in _STRUCTS:
            return [
                _STRUCTS[name](**{key: self._name(each) for key, each in entry.items()})
                for entry in value
            ]
        return value

    # --- Values in answers ---

    def _told(self, answer: Any) -> Any:
        if answer is None:
            return {"answer": CLOSED}
        told: dict[str, Any] = {}
        if hasattr(answer, "error_code"):
            told["error"] = ErrorCode.of(answer.error_code).name
        if getattr(answer, "error_message", None):
            told["message"] = self._plain(answer.error_message)
        if hasattr(answer, "session_lifetime_ms"):
            told["session"] = self._span(answer.session_lifetime_ms)
        told |= self._token(answer, _TIMES)
        if hasattr(answer, "tokens"):
            told["tokens"] = sorted(
                (self._token(each, _DESCRIBED_TIMES) for each in answer.tokens),
                key=lambda each: (each["token"], str(each)),
            )
        return told

    def _token(self, answer: Any, times: Sequence[str]) -> dict[str, Any]:
        told: dict[str, Any] = {
            name: self._plain(getattr(answer, name))
            for name in _PRINCIPALS
            if hasattr(answer, name)
        }
        told |= {name: self._time(getattr(answer, name)) for name in times if hasattr(answer, name)}
        if hasattr(answer, "token_id"):
            known = {token_id: name for name, (token_id, _) in self._tokens.items()}
            hmacs = {hmac: name for name, (_, hmac) in self._tokens.items()}
            told["token"] = known.get(answer.token_id, answer.token_id)
            told["hmac"] = hmacs.get(bytes(answer.hmac), len(answer.hmac))
        if hasattr(answer, "renewers"):
            told["renewers"] = [
                f"{each.principal_type}:{self._plain(each.principal_name)}"
                for each in answer.renewers
            ]
        return told

    def _plain(self, text: str) -> str:
        return text.replace(f"c{self._number}-", "@")

    def _time(self, value_ms: int) -> str:
        if value_ms < self._began_ms / 2 or value_ms > self._began_ms * 2:
            return str(value_ms)
        return self._span(value_ms - int(self._began_ms))

    def _span(self, span_ms: int) -> str:
        steps = round(span_ms / _STEP_MS)
        return f"{steps * _STEP_MS // 60_000} min"


async def _set_rights(address: Address, cases: int) -> None:
    reader, writer = await asyncio.open_connection(*address)
    creations = [
        AclCreation(
            resource_type=kind,
            resource_name=resource,
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{name}",
            host="*",
            operation=operation,
            permission_type=AclPermission.ALLOW,
        )
        for number in range(cases)
        for name, kind, resource, operation in rights(number)
    ]
    answer = await Connection(reader, writer).ask(
        sasl.Ask("CreateAcls", 3, {"creations": creations})
    )
    assert not any(each.error_code for each in answer.results), answer
    writer.close()


async def play(
    addresses: Mapping[str, Address],
    cases: Sequence[Case],
    *,
    authorizer: bool = True,
    settle_s: float = 0.0,
) -> dict[str, list[Any]]:
    """Play all cases. Returns the answers by name of the case.

    `authorizer`: the broker has an authorizer. `settle_s`: the time from the answer to a change
    until the change is in force.
    """
    if authorizer:
        await _set_rights(addresses[PLAINTEXT], len(cases))
    await asyncio.sleep(settle_s)
    return {
        case.name: await _Play(addresses, number, case, settle_s).answers()
        for number, case in enumerate(cases)
    }
