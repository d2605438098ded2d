"""SCRAM-SHA-256 and SCRAM-SHA-512 at a listener, with the credentials of the cluster metadata
(KIP-84).

An unknown user gets an invented salt, the same one while the broker runs, and is refused only after
the proof, so that clients do not learn which users exist (A-45).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

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
    TOKEN_AUTHENTICATION,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    ScramState,
)

#: The bytes of an invented salt: as many as in those of Kafka's tools.
_SALT_BYTES = 26

Credentials = Callable[[], Mapping[str, Mapping[ScramMechanism, ScramCredential]]]


class ScramUsers:
    """A SCRAM mechanism and the credentials of its users. `secret`: random bytes of this process.

    `new_nonce` returns a new nonce each time, printable and without commas.
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
        """Begin the exchange of one client."""
        return _ScramExchange(self)

    def credential(self, user: str) -> ScramCredential | None:
        """The user's credential; None without one."""
        return self._credentials().get(user, {}).get(self.mechanism)

    def made_up(self, user: str) -> ScramCredential:
        """A credential with no valid password, for an unknown user. It looks like those of other
        users."""
        name = self.mechanism.hash_name
        salt = hmac.digest(self._secret, b"salt" + user.encode(), name)
        key = hmac.digest(self._secret, b"key" + user.encode(), name)
        found = (each.get(self.mechanism) for each in self._credentials().values())
        like = next((each for each in found if each is not None), None)
        if like is None:
            return ScramCredential(salt[:_SALT_BYTES], key, key, ITERATIONS_MIN)
        salt = (salt * (len(like.salt) // len(salt) + 1))[: len(like.salt)]
        return ScramCredential(salt, key, key, like.iterations)


class _ScramExchange:
    def __init__(self, users: ScramUsers) -> None:
        self._users = users
        self._server = ScramServer(users.mechanism)
        self._user = ""
        #: None: the user has no credential, or requests one of a delegation token.
        self._credential: ScramCredential | None = None

    def step(self, token: bytes) -> Step:
        begins = self._server.state is ScramState.FIRST
        try:
            step = self._begin(token) if begins else self._end(token)
        except SaslMessageError as problem:
            step = Refused(str(problem))
        if isinstance(step, Refused):
            self._server.end()
        return step

    def _begin(self, token: bytes) -> Step:
        first = self._server.receive_first(token)
        if first.authorization_id not in ("", first.username):
            return Refused(OTHER_USER, OTHER_USER)
        self._user = first.username
        # Delegation tokens do not exist here.
        if first.extensions.get(TOKEN_AUTHENTICATION, "").lower() != "true":
            self._credential = self._users.credential(self._user)
        shown = self._credential or self._users.made_up(self._user)
        return Challenge(self._server.challenge(shown, self._users.new_nonce()))

    def _end(self, token: bytes) -> Step:
        right = self._server.receive_final(token)
        name, user = self._users.mechanism.mechanism, self._user
        if self._credential is None:
            # Any text that an unauthenticated client sends as a name may be a password.
            return Refused(f"{name}: no such user")
        if not right:
            return Refused(f"{name}: a wrong password for user {user!r}")
        if self._users.credential(user) != self._credential:
            return Refused(f"{name}: the credential of user {user!r} has changed meanwhile")
        return Authenticated(user, self._server.signature())
