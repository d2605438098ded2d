"""SCRAM-SHA-256 and SCRAM-SHA-512 at a listener, with the credentials of the cluster metadata
(KIP-84).

A user that there is not gets a salt all the same, always the same one while the broker runs, and is
refused only with its proof: who asks does not learn which users there are (A-45).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from enum import Enum

from odradek_broker.security.sasl import (
    OTHER_USER,
    Authenticated,
    Challenge,
    Exchange,
    Refused,
    Step,
)
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    proof_is_right,
    server_signature,
)
from odradek_protocol.sasl.scram_messages import (
    TOKEN_AUTHENTICATION,
    ClientFirst,
    ServerFinal,
    ServerFirst,
    auth_message,
    parse_client_final,
    parse_client_first,
)

#: Of a salt that is made up: as long as those that Kafka's tools make.
_SALT_BYTES = 26

Credentials = Callable[[], Mapping[str, Mapping[ScramMechanism, ScramCredential]]]


class _State(Enum):
    FIRST = "waits for the first message"
    FINAL = "waits for the final message"
    ENDED = "is over"


_NEXT = {_State.FIRST: _State.FINAL, _State.FINAL: _State.ENDED}


class ScramUsers:
    """SCRAM with one hash function. `credentials`: those there are. `secret`: random bytes of this
    process.

    `new_nonce`: printable, without commas, another one each time.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        secret: bytes,
        new_nonce: Callable[[], str],
    ) -> None:
        self.mechanism = mechanism
        self._credentials = credentials
        self._secret = secret
        self.new_nonce = new_nonce

    def begin(self, host: str) -> Exchange:
        """A client begins."""
        return _ScramExchange(self)

    def credential(self, user: str) -> ScramCredential | None:
        """The user's, if it has one."""
        return self._credentials().get(user, {}).get(self.mechanism)

    def made_up(self, user: str) -> ScramCredential:
        """A credential that no password fits, for a user who has none. It looks like those of other
        users."""
        name = self.mechanism.hash_name
        salt = hmac.digest(self._secret, b"salt" + user.encode(), name)
        key = hmac.digest(self._secret, b"key" + user.encode(), name)
        held = (each.get(self.mechanism) for each in self._credentials().values())
        like = next((each for each in held if each is not None), None)
        if like is None:
            return ScramCredential(salt[:_SALT_BYTES], key, key, ITERATIONS_MIN)
        salt = (salt * (len(like.salt) // len(salt) + 1))[: len(like.salt)]
        return ScramCredential(salt, key, key, like.iterations)


class _ScramExchange:
    def __init__(self, users: ScramUsers) -> None:
        self._users = users
        self._state = _State.FIRST
        self._first: ClientFirst
        self._server: ServerFirst
        self._credential: ScramCredential
        self._real = False

    def step(self, token: bytes) -> Step:
        state = self._state
        if state not in _NEXT:
            raise RuntimeError(f"this exchange {state.value}")
        self._state = _NEXT[state]
        try:
            return self._begun(token) if state is _State.FIRST else self._ended(token)
        except SaslMessageError as problem:
            self._state = _State.ENDED
            return Refused(str(problem))

    def _begun(self, token: bytes) -> Step:
        first = parse_client_first(token)
        if first.authorization_id not in ("", first.username):
            self._state = _State.ENDED
            return Refused(OTHER_USER, OTHER_USER)
        held = None
        # There are no delegation tokens.
        if first.extensions.get(TOKEN_AUTHENTICATION, "").lower() != "true":
            held = self._users.credential(first.username)
        self._real = held is not None
        self._credential = held or self._users.made_up(first.username)
        self._first = first
        self._server = ServerFirst(
            first.nonce + self._users.new_nonce(),
            self._credential.salt,
            self._credential.iterations,
        )
        return Challenge(self._server.encode())

    def _ended(self, token: bytes) -> Step:
        final = parse_client_final(token)
        name = self._users.mechanism.mechanism
        if final.nonce != self._server.nonce:
            return Refused(f"{name}: another nonce in the final message")
        if final.header != self._first.header:
            return Refused(f"{name}: another header in the final message")
        signed = auth_message(self._first, self._server, final)
        mechanism, credential = self._users.mechanism, self._credential
        right = proof_is_right(mechanism, credential, signed, final.proof)
        user = self._first.username
        if not right or not self._real:
            # Whatever a stranger sends as a name may be a password.
            who = f"a wrong password for user {user!r}" if self._real else "no such user"
            return Refused(f"{name}: {who}")
        if self._users.credential(user) != credential:
            return Refused(f"{name}: the credential of user {user!r} has changed meanwhile")
        signature = server_signature(mechanism, credential.server_key, signed)
        return Authenticated(user, ServerFinal(signature).encode())
