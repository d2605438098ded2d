"""The listeners with SASL: the mechanisms of each and their users, from the settings and from files
(A-43, A-44)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from odradek_broker.config.sasl import SaslListenerSettings, SignedTokens, sasl_settings
from odradek_broker.config.types import ConfigError
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.security.oauthbearer import (
    OAuthBearerMechanism,
    SignedValidator,
    UnsecuredValidator,
)
from odradek_broker.security.passwords import PasswordHash
from odradek_broker.security.plain_users import (
    Beside,
    PlainMechanism,
    PlainUsers,
    UsersFileError,
    parse_users,
)
from odradek_broker.security.sasl import Mechanism
from odradek_broker.security.scram import Credentials, ScramUsers
from odradek_broker.server.host import StartError
from odradek_broker.server.jwks import JwksKeys
from odradek_broker.server.peer_log import PeerLog
from odradek_broker.server.sasl_listener import SaslListener, UnauthenticatedConnections
from odradek_protocol.sasl.scram import ScramMechanism
from odradek_protocol.tls import files
from odradek_protocol.tls.settings import TlsError

if TYPE_CHECKING:
    from odradek_broker.config.broker import BrokerConfig
    from odradek_broker.platform.seams import Clock, Randomness

log = structlog.get_logger("odradek.sasl")

_SECRET_BYTES = 32
_NONCE_BYTES = 18


def random_bytes(randomness: Randomness, count: int) -> bytes:
    """So many of them."""
    return randomness.below(1 << 8 * count).to_bytes(count, "big")


class UsersFile:
    """The file of a listener's users of PLAIN, read again when it changes. StartError if it cannot
    be used."""

    def __init__(self, listener: str, path: str, users: PlainUsers) -> None:
        self._listener = listener
        self._path = path
        self._users = users
        self._seen = files.fingerprint((path,))
        try:
            users.use_hashes(self._read())
        except (TlsError, UsersFileError) as problem:
            raise StartError(f"sasl.plain.users.file {path}: {problem}") from None

    def refresh(self) -> None:
        """Use what the file has now, if that can be used."""
        found = files.fingerprint((self._path,))
        if found == self._seen:
            return
        self._seen = found
        try:
            users = self._read()
        except (TlsError, UsersFileError) as problem:
            log.error(
                "the new users of PLAIN cannot be used; the old ones stay",
                listener=self._listener,
                problem=str(problem),
            )
        else:
            self._users.use_hashes(users)
            log.info("new users of PLAIN are in use", listener=self._listener, users=len(users))

    def _read(self) -> dict[str, PasswordHash]:
        try:
            return parse_users(files.read(self._path).decode())
        except UnicodeDecodeError:
            raise UsersFileError("it is no UTF-8") from None


class SaslListeners:
    """All of them, by name. `hashing` and `fetching`: threads beside the loop. StartError."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        credentials: Credentials,
        clock: Clock,
        randomness: Randomness,
        peer_log: PeerLog,
        metrics: BrokerMetrics,
        hashing: Beside,
        fetching: Beside,
    ) -> None:
        self._clock, self._randomness = clock, randomness
        self._credentials, self._hashing, self._fetching = credentials, hashing, fetching
        self._files: list[UsersFile] = []
        self._secret = random_bytes(randomness, _SECRET_BYTES)
        unauthenticated = UnauthenticatedConnections(
            config.max_sasl_authentications_per_ip,
            config.max_sasl_authentications,
            lambda: int(clock.monotonic_ms()),
        )
        self._listeners: dict[str, SaslListener] = {}
        for each in config.broker_listeners:
            if not each.protocol.is_sasl:
                continue
            try:
                settings = sasl_settings(config, each.name, files.resolve)
            except ConfigError as problem:
                raise StartError(str(problem)) from None
            mechanisms = {name: self._mechanism(settings, name) for name in settings.mechanisms}
            self._listeners[each.name] = SaslListener(
                settings, mechanisms, config, unauthenticated, clock, peer_log, metrics
            )

    def get(self, name: str) -> SaslListener | None:
        """The listener with this name, if it has SASL."""
        return self._listeners.get(name)

    def refresh(self) -> None:
        """Use files that have changed."""
        for each in self._files:
            each.refresh()

    def _mechanism(self, settings: SaslListenerSettings, name: str) -> Mechanism:
        if name == "PLAIN":
            users = PlainUsers(settings.plain_users, self._secret, self._hashing)
            if settings.plain_users_file:
                self._files.append(UsersFile(settings.name, settings.plain_users_file, users))
            return PlainMechanism(users)
        if name == "OAUTHBEARER":
            return self._oauthbearer(settings)
        scram = ScramMechanism.of_name(name)
        assert scram is not None, name
        return ScramUsers(scram, self._credentials, self._secret, self._nonce)

    def _oauthbearer(self, settings: SaslListenerSettings) -> Mechanism:
        tokens = settings.tokens
        assert tokens is not None
        if not isinstance(tokens, SignedTokens):
            return OAuthBearerMechanism(UnsecuredValidator(tokens, self._clock.wall_ms))
        keys = JwksKeys(tokens, self._fetching, lambda: int(self._clock.monotonic_ms()))
        return OAuthBearerMechanism(SignedValidator(tokens, keys, self._clock.wall_ms))

    def _nonce(self) -> str:
        return random_bytes(self._randomness, _NONCE_BYTES).hex()
