"""SCRAM-SHA-256 and SCRAM-SHA-512 at a listener, with the credentials of the cluster metadata
(KIP-84), and with delegation tokens (KIP-48).

So that clients cannot find out which users exist, the broker invents a salt for an unknown user,
keeps the salt while it runs, and refuses the user only after the proof (A-45). The credential of a
token is computed in another thread when the token is first used, and is then kept (A-53).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

from odradek_broker.deferred import Deferred
from odradek_broker.security.delegation_tokens import DelegationTokens, TokenInformation
from odradek_broker.security.plain_users import Beside
from odradek_broker.security.sasl import (
    OTHER_USER,
    Authenticated,
    Challenge,
    SaslFailure,
    SaslServer,
    Step,
)
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.scram import (
    ITERATIONS_MIN,
    TOKEN_AUTHENTICATION,
    ClientFirst,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    ScramState,
    new_credential,
)

#: The length of an invented salt in bytes, which is that of the salts that Kafka's tools make.
_SALT_BYTES = 26

#: The maximum number of computed credentials of tokens that are kept.
_TOKEN_CREDENTIALS_MAX = 10_000

#: The credentials of a mechanism, by user.
Credentials = Callable[[ScramMechanism], Mapping[str, ScramCredential]]


class ScramTokens:
    """The delegation tokens of the cluster, and the SCRAM credentials of one mechanism that are
    computed from them. `tokens` returns the present tokens, `now_ms` the wall time; `hashing` runs
    work in another thread."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        tokens: Callable[[], DelegationTokens],
        secret: bytes,
        now_ms: Callable[[], int],
        hashing: Beside,
    ) -> None:
        self._mechanism = mechanism
        self._tokens = tokens
        self._secret = secret
        self._now_ms = now_ms
        self._hashing = hashing
        #: The credentials by token id, oldest first, including credentials that are still being
        #: computed.
        self._credentials: dict[str, Deferred[ScramCredential | None]] = {}

    def valid(self, token_id: str) -> TokenInformation | None:
        """The token with this id; None if no client can authenticate with the id."""
        tokens = self._tokens()
        token = tokens.get(token_id) if tokens.enabled else None
        return None if token is None or token.is_expired(self._now_ms()) else token

    def credential(self, token: TokenInformation) -> Deferred[ScramCredential | None]:
        """The credential of a token; None if it could not be computed."""
        token_id = token.token_id
        found = self._credentials.get(token_id)
        if found is not None:
            return found
        while len(self._credentials) >= _TOKEN_CREDENTIALS_MAX:
            del self._credentials[next(iter(self._credentials))]
        deferred = self._credentials[token_id] = Deferred()
        password = self._tokens().password_of(token_id)
        salt = hmac.digest(self._secret, b"token" + token_id.encode(), self._mechanism.hash_name)
        made: list[ScramCredential] = []

        def work() -> None:
            made.append(new_credential(self._mechanism, password, salt[:_SALT_BYTES]))

        def done(problem: Exception | None) -> None:
            if problem is not None:
                self._credentials.pop(token_id, None)
            deferred.resolve(made[0] if made else None)

        self._hashing(work, done)
        return deferred


class ScramUsers:
    """A SCRAM mechanism and the credentials of its users. `secret`: random bytes of this process.

    `new_nonce` returns a new nonce each time, printable and without commas.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        tokens: ScramTokens,
        secret: bytes,
        new_nonce: Callable[[], str],
    ) -> None:
        self.mechanism = mechanism
        self._credentials = credentials
        self.tokens = tokens
        self._secret = secret
        self.new_nonce = new_nonce

    def begin(self, host: str) -> SaslServer:
        return _ScramExchange(self)

    def credential(self, user: str) -> ScramCredential | None:
        """The user's credential; None if the user has none."""
        return self._credentials(self.mechanism).get(user)

    def made_up(self, user: str) -> ScramCredential:
        """An invented credential for an unknown user. No password fits it, and clients cannot
        distinguish it from a real credential."""
        name = self.mechanism.hash_name
        salt = hmac.digest(self._secret, b"salt" + user.encode(), name)
        key = hmac.digest(self._secret, b"key" + user.encode(), name)
        like = next(iter(self._credentials(self.mechanism).values()), None)
        if like is None:
            return ScramCredential(salt[:_SALT_BYTES], key, key, ITERATIONS_MIN)
        salt = (salt * (len(like.salt) // len(salt) + 1))[: len(like.salt)]
        return ScramCredential(salt, key, key, like.iterations)


class _ScramExchange:
    def __init__(self, users: ScramUsers) -> None:
        self._users = users
        self._server = ScramServer(users.mechanism)
        self._user = ""
        #: The credential of the user; None if the user has none.
        self._credential: ScramCredential | None = None
        #: True if the user name is the id of a delegation token.
        self._by_token = False

    def step(self, token: bytes) -> Step | Deferred[Step]:
        begins = self._server.state is ScramState.FIRST
        try:
            step = self._begin(token) if begins else self._end(token)
        except SaslMessageError as problem:
            step = SaslFailure(str(problem))
        return step.map(self._stepped) if isinstance(step, Deferred) else self._stepped(step)

    def _stepped(self, step: Step) -> Step:
        if isinstance(step, SaslFailure):
            self._server.end()
        return step

    def _begin(self, token: bytes) -> Step | Deferred[Step]:
        first = self._server.receive_first(token)
        self._user = first.username
        if first.extensions.get(TOKEN_AUTHENTICATION, "").lower() == "true":
            return self._begin_with_token(first)
        if _wants_other_user(first):
            return SaslFailure(OTHER_USER, OTHER_USER)
        self._credential = self._users.credential(self._user)
        return self._challenge(self._credential or self._users.made_up(self._user))

    def _begin_with_token(self, first: ClientFirst) -> Step | Deferred[Step]:
        self._by_token = True
        found = self._users.tokens.valid(self._user)
        if found is None:
            return SaslFailure(f"{self._users.mechanism.mechanism}: no such delegation token")
        if _wants_other_user(first):
            return SaslFailure(OTHER_USER, OTHER_USER)
        return self._users.tokens.credential(found).map(self._challenge_token)

    def _challenge_token(self, credential: ScramCredential | None) -> Step:
        self._credential = credential
        if credential is None:
            return SaslFailure("the credential of a delegation token could not be computed")
        return self._challenge(credential)

    def _challenge(self, shown: ScramCredential) -> Step:
        return Challenge(self._server.challenge(shown, self._users.new_nonce()))

    def _end(self, token: bytes) -> Step:
        right = self._server.receive_final(token)
        name, user = self._users.mechanism.mechanism, self._user
        if self._by_token:
            return self._end_with_token(right)
        if self._credential is None:
            # Unknown names are not logged, because a client may have sent a password as the name.
            return SaslFailure(f"{name}: no such user")
        if not right:
            return SaslFailure(f"{name}: a wrong password for user {user!r}")
        if self._users.credential(user) != self._credential:
            return SaslFailure(f"{name}: the credential of user {user!r} has changed meanwhile")
        return Authenticated(user, self._server.signature())

    def _end_with_token(self, right: bool) -> Step:
        name = self._users.mechanism.mechanism
        if not right:
            return SaslFailure(f"{name}: a wrong HMAC for delegation token {self._user!r}")
        # The token may have been removed or renewed during the exchange.
        found = self._users.tokens.valid(self._user)
        if found is None:
            return SaslFailure(f"{name}: delegation token {self._user!r} has ended meanwhile")
        return Authenticated(
            found.owner_name, self._server.signature(), found.expires_ms, by_token=True
        )


def _wants_other_user(first: ClientFirst) -> bool:
    return first.authorization_id not in ("", first.username)
