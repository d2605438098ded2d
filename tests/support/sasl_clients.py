"""A raw client that authenticates at a SASL listener, and the settings of brokers with such a
listener."""

from __future__ import annotations

from typing import Any

from broker_in_loop import RunningBroker
from odradek_protocol.sasl.plain import PlainMessage
from odradek_protocol.sasl.scram import (
    ClientFinal,
    ClientFirst,
    ScramMechanism,
    auth_message,
    client_proof,
    parse_server_final,
    parse_server_first,
    salted_password,
    server_signature_of_password,
)
from odradek_protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest
from raw_client import RawClient

LISTENER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "connection.failed.authentication.delay.ms": "0",
}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def plain_users(**passwords: str) -> dict[str, str]:
    """The setting for PLAIN with these users."""
    options = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_MODULE} required {options};",
    }


def plain_token(user: str, password: str, authorization_id: str = "") -> bytes:
    return PlainMessage(user, password, authorization_id).encode()


async def handshake(client: RawClient, mechanism: str, version: int = 1) -> Any:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(client: RawClient, token: bytes, version: int = 2) -> Any:
    return await client.call(SaslAuthenticateRequest(auth_bytes=token), version)


async def plain(client: RawClient, user: str, password: str, version: int = 2) -> Any:
    """Do the handshake for PLAIN and send the token. Returns the response to the token."""
    assert (await handshake(client, "PLAIN")).error_code == 0
    return await authenticate(client, plain_token(user, password), version)


async def scram(
    client: RawClient, mechanism: ScramMechanism, user: str, password: str, **more: Any
) -> Any:
    """Do the whole SCRAM exchange and check the broker's signature. Returns the last response."""
    assert (await handshake(client, mechanism.mechanism)).error_code == 0
    first = ClientFirst(user, "clientnonce", **more)
    answer = await authenticate(client, first.encode())
    if answer.error_code:
        return answer
    server = parse_server_first(answer.auth_bytes)
    salted = salted_password(mechanism, password, server.salt, server.iterations)
    final = ClientFinal(server.nonce, header=first.header)
    signed = auth_message(first, server, final)
    proof = client_proof(mechanism, salted, signed)
    final = ClientFinal(server.nonce, proof, first.header)
    answer = await authenticate(client, final.encode())
    if not answer.error_code:
        expected = server_signature_of_password(mechanism, salted, signed)
        assert parse_server_final(answer.auth_bytes).signature == expected
    return answer


async def user_of(client: RawClient, broker: RunningBroker) -> str:
    """The principal of the broker's only connection."""
    (session,) = broker.server.sessions
    return str(session.peer.user)
