"""The broker's side of SASL, as a script for `ScriptedBroker`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.sasl.oauthbearer import parse_oauthbearer
from odradek_protocol.sasl.plain import parse_plain
from odradek_protocol.sasl.scram import (
    ClientFirst,
    ScramMechanism,
    ServerFinal,
    ServerFirst,
    auth_message,
    new_credential,
    parse_client_final,
    parse_client_first,
    proof_is_right,
    server_signature,
)
from odradek_protocol.schemas.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from scripted_broker import HANG_UP, ScriptedBroker

SALT = b"some salt of sixteen"


class SaslScript:
    """Accepts one password for any user, or the tokens that `takes_token` accepts; on one
    connection at a time."""

    def __init__(
        self,
        broker: ScriptedBroker,
        password: str = "secret",
        *,
        mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"),
        takes_token: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.password = password
        self.lifetime_ms = 0
        self.iterations = 4096
        self.knows_password = True
        self.tokens: list[str] = []
        self.handshakes = 0
        self._mechanisms = mechanisms
        self._takes_token = takes_token
        self._mechanism = ""
        self._first: ClientFirst | None = None
        self._server = ServerFirst("", b"", 0)
        self._broker = broker
        broker.always(ApiKey.SASL_HANDSHAKE, self._handshake)
        broker.always(ApiKey.SASL_AUTHENTICATE, self._authenticate)

    def refuse_unauthenticated(self) -> None:
        """Close the connections of clients that do not authenticate, as a SASL listener does."""
        self._broker.always(ApiKey.METADATA, lambda *_: HANG_UP)

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> Any:
        self.handshakes += 1
        self._mechanism, self._first = request.mechanism, None
        known = request.mechanism in self._mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=list(self._mechanisms))

    def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> Any:
        if self._mechanism == "PLAIN":
            right = parse_plain(request.auth_bytes).password == self.password
            return self._accepted() if right else self._refused("Invalid username or password")
        if self._mechanism == "OAUTHBEARER":
            return self._bearer(request.auth_bytes)
        return self._scram(request.auth_bytes)

    def _bearer(self, token: bytes) -> Any:
        if token == b"\x01":
            return self._refused('{"status":"invalid_token"}')
        value = parse_oauthbearer(token).token
        self.tokens.append(value)
        if self._takes_token(value):
            return self._accepted()
        return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')

    def _scram(self, token: bytes) -> Any:
        scram = ScramMechanism.SHA_256
        if self._first is None:
            self._first = parse_client_first(token)
            self._server = ServerFirst(self._first.nonce + "server", SALT, self.iterations)
            return SaslAuthenticateResponse(auth_bytes=self._server.encode())
        final = parse_client_final(token)
        credential = new_credential(scram, self.password, SALT, self.iterations)
        signed = auth_message(self._first, self._server, final)
        if not self.knows_password:
            return self._accepted(ServerFinal(bytes(32)).encode())
        if not proof_is_right(scram, credential, signed, final.proof):
            return self._refused("invalid credentials")
        signature = server_signature(scram, credential.server_key, signed)
        return self._accepted(ServerFinal(signature).encode())

    def _accepted(self, data: bytes = b"") -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=self.lifetime_ms)

    def _refused(self, why: str) -> SaslAuthenticateResponse:
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(error_code=code, error_message=why)
