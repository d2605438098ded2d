"""Authentication of one connection, as frames: every mechanism, before and after the client is
authenticated.

An input is a conversation (`conversation.py`); its first byte chooses one of two SASL listeners.
The listener CLOSED never authenticates a client that does not know the password. The listener OPEN
accepts tokens without a signature, so that inputs reach the requests after an authentication.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from tests.adversity.fuzz.conversation import World, framed, request_frame, split
from tests.adversity.fuzz.target import Broken, Target

from counting_randomness import CountingRandomness
from odradek_broker.config.broker import parse_config
from odradek_broker.config.sasl_settings import UNSECURED_VALIDATOR
from odradek_broker.deferred import Deferred
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.request import CloseConnection, EncodedReply, Peer
from odradek_broker.security.delegation_tokens import DelegationTokens, TokenInformation
from odradek_broker.server.authentication import SaslServerAuthenticator, SaslState
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.server.sasl_listeners import SaslListeners
from odradek_protocol import codec
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.sasl.scram import ScramMechanism, new_credential
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest

#: A random password, which no input contains.
_PASSWORD = "h3p8-of-nobody-who-asks-here"
_LOGIN = "org.apache.kafka.common.security"
_MECHANISM = ScramMechanism.SHA_256
_CREDENTIALS = {_MECHANISM: {"alice": new_credential(_MECHANISM, _PASSWORD, b"salt" * 4)}}
#: A delegation token of alice.
_TOKENS = DelegationTokens("key")
_TOKENS.put(TokenInformation("t", "User:alice", "User:alice", (), 0, 1 << 62, 1 << 62))
#: The first byte of an input chooses the listener.
_CLOSED, _OPEN = 0, 1
_LISTENERS = ("CLOSED", "OPEN")
_SETTINGS = {
    "listeners": "CLOSED://127.0.0.1:9092,OPEN://127.0.0.1:9093",
    "listener.security.protocol.map": "CLOSED:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT",
    "listener.name.closed.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.closed.plain.sasl.jaas.config": (
        f'{_LOGIN}.plain.PlainLoginModule required user_alice="{_PASSWORD}";'
    ),
    "listener.name.closed.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    "listener.name.open.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.open.oauthbearer.sasl.jaas.config": (
        f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.open.oauthbearer.sasl.server.callback.handler.class": UNSECURED_VALIDATOR,
    "listener.name.open.oauthbearer.connections.max.reauth.ms": "5000",
}


class _Connection:
    """A connection with its own listener, to the node of the given world."""

    def __init__(self, world: World, number: int) -> None:
        config, _ = parse_config(dict(_SETTINGS))
        metrics = BrokerMetrics(lambda: 0)
        clock = world.clock
        listeners = SaslListeners(
            config,
            tokens=lambda: _TOKENS,
            credentials=lambda mechanism: _CREDENTIALS[mechanism],
            clock=clock,
            randomness=CountingRandomness(),
            peer_log=PeerLog(lambda: clock.monotonic_ms() / 1000),
            metrics=metrics,
            hashing=_at_once,
            fetching=_at_once,
        )
        listener = listeners.get(_LISTENERS[number])
        assert listener is not None
        self.world = world
        self.secret = number == _CLOSED
        dispatcher: Dispatcher = world.dispatcher
        self.peer = Peer("peer", 1, _LISTENERS[number])
        self.authentication = SaslServerAuthenticator(
            listener, self.peer, dispatcher.answer, lambda: None
        )
        self.over = False

    def send(self, frame: bytes) -> EncodedReply:
        """The answer; None if it does not come immediately."""
        try:
            reply: Any = self.authentication.answer(memoryview(bytearray(frame)))
        except CloseConnection:
            self.over = True
            return None
        self.world.settle()
        if isinstance(reply, Deferred):
            reply = reply.result() if reply.done else None
        self.over = self.over or isinstance(reply, CloseConnection)
        if self.secret and (self.authentication.known or self.peer.user != "ANONYMOUS"):
            raise Broken(f"{self.peer.user} is known without a password")
        if (self.authentication.state is SaslState.FAILED) and not self.over:
            raise Broken("a failed authentication does not end the connection")
        return None if self.over else reply


def _at_once(work: Any, done: Any) -> None:
    work()
    done(None)


_world: list[World] = []


def _check(data: bytes) -> None:
    if not data:
        return
    if not _world or _world[0].worn:
        _world[:] = [World()]
    world = _world[0]
    world.inputs += 1
    connection = _Connection(world, data[0] % 2)
    for step in split(data[1:]):
        if isinstance(step, int):
            world.pass_time(step)
        elif not connection.over:
            connection.send(step)


# --- Seeds ----------------------------------------------------------------------------------------


def _frame(request: Message, version: int) -> bytes:
    api = api_of(request)
    return request_frame(api, version, codec.encode_bytes(request, version))


def _said(number: int, *steps: bytes | int) -> bytes:
    return bytes((number,)) + b"".join(map(framed, steps))


def _handshake(mechanism: str, version: int = 1) -> bytes:
    return _frame(SaslHandshakeRequest(mechanism=mechanism), version)


def _token(token: bytes, version: int = 2) -> bytes:
    return _frame(SaslAuthenticateRequest(auth_bytes=token), version)


def _jwt(subject: str) -> bytes:
    parts = (b'{"alg":"none"}', f'{{"sub":"{subject}","exp":9999999999,"iat":1}}'.encode())
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts) + b"."


def _nonce(first: bytes) -> bytes:
    """The nonce of the listener. Every new `World` sends the same nonce, because its source of
    randomness is a counter."""
    connection = _Connection(World(), _CLOSED)
    connection.send(_handshake("SCRAM-SHA-256", 0))
    reply = connection.send(first)
    assert isinstance(reply, list)
    return b"".join(map(bytes, reply))[4:].partition(b",")[0].removeprefix(b"r=")


def _seeds() -> Iterator[bytes]:
    versions = _frame(ApiVersionsRequest(), 0)
    metadata = _frame(MetadataRequest(topics=None), 9)
    plain, wrong = b"\0alice\0wrong", b"n,,n=alice,r=abcdefgh"
    last = b"c=biws,r=" + _nonce(wrong) + b",p=" + base64.b64encode(bytes(32))
    bearer = b"n,,\x01auth=Bearer " + _jwt("alice") + b"\x01\x01"
    yield _said(_CLOSED, versions, _handshake("PLAIN"), _token(plain), metadata)
    yield _said(_CLOSED, _handshake("PLAIN", 0), plain, metadata)
    for version in range(3):
        yield _said(
            _CLOSED, _handshake("SCRAM-SHA-256"), _token(wrong, version), _token(last, version)
        )
    yield _said(_CLOSED, _handshake("SCRAM-SHA-256", 0), wrong, last)
    yield _said(_CLOSED, _handshake("SCRAM-SHA-512"), versions, metadata)
    yield _said(_CLOSED, metadata, _handshake("PLAIN"))
    yield _said(_OPEN, _handshake("OAUTHBEARER"), _token(bearer), metadata)
    again = (_handshake("OAUTHBEARER"), _token(bearer), metadata)
    yield _said(_OPEN, versions, *again, 2_000, *again, 6_000, metadata)
    other = b"n,a=bob,\x01auth=Bearer " + _jwt("bob") + b"\x01ext=1\x01\x01"
    yield _said(_OPEN, *again, 2_000, _handshake("OAUTHBEARER"), _token(other))
    yield _said(_OPEN, *again, 2_000, _handshake("PLAIN"), _token(plain))


TARGET = Target(_check, _seeds)
