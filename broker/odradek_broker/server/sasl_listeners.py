"""The listeners with SASL: the mechanisms and users of each, and the limits of unauthenticated
clients.

Mechanisms and users come from the settings and from files (A-43, A-44). All listeners share the
limits of an address (N-27): `UnauthenticatedConnections` counts the unauthenticated connections and
the failed authentications of each address. After some failures of an address, the answer to each
further failure is delayed longer. Successful authentications are never delayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog

from odradek_broker.config.sasl import SaslListenerSettings, SignedTokens, sasl_settings
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.security.delegation_tokens import DelegationTokens
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
from odradek_broker.security.scram import Credentials, ScramTokens, ScramUsers
from odradek_broker.server.host import StartError
from odradek_broker.server.jwks import JwksKeys
from odradek_protocol.sasl.scram import ScramMechanism
from odradek_protocol.tls import files
from odradek_protocol.tls.settings import TlsError
from odradek_protocol.waiting_peers import Close, WaitingPeers, counted_as

if TYPE_CHECKING:
    from odradek_broker.config.broker import BrokerConfig
    from odradek_broker.platform.seams import Clock, Randomness

log = structlog.get_logger("odradek.sasl")

_SECRET_BYTES = 32
_NONCE_BYTES = 18
#: The limit of the size of a file of users. A line usually has about a hundred bytes.
_USERS_BYTES_MAX = 32 * 1024 * 1024
#: The number of failures of an address that cause no additional delay.
_FREE_FAILURES = 5
#: The time for which a failure is counted.
_FAILURES_MS = 60_000
#: The first additional delay. The additional delay doubles with each further failure.
_LONGER_MS = 200
#: The maximum additional delay. It must stay below the ten seconds that clients wait for a
#: connection.
_LONGEST_MS = 5_000
#: The maximum number of addresses whose failures are kept.
_ADDRESSES_MAX = 10_000


class UnauthenticatedConnections:
    """The unauthenticated connections and the failed authentications of all addresses. `now_ms`: a
    monotonic clock."""

    def __init__(self, most_per_address: int, most: int, now_ms: Callable[[], int]) -> None:
        self.waiting = WaitingPeers(most_per_address, most)
        self._now_ms = now_ms
        #: The number of failures of each address, and the time of its last failure.
        self._failures: dict[str, tuple[int, int]] = {}

    def failed(self, host: str, delay_ms: int) -> int:
        """Count a failure; returns the delay of its answer, in ms."""
        host, now_ms = counted_as(host), self._now_ms()
        times, last_ms = self._failures.pop(host, (0, now_ms))
        times = times + 1 if now_ms - last_ms < _FAILURES_MS else 1
        while len(self._failures) >= _ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[host] = times, now_ms
        if times <= _FREE_FAILURES:
            return delay_ms
        longer_ms = _LONGER_MS << min(times - _FREE_FAILURES - 1, 10)
        return delay_ms + min(longer_ms, _LONGEST_MS)


class SaslListener:
    """A listener with SASL: its mechanisms by name, in the order of the setting."""

    def __init__(
        self,
        settings: SaslListenerSettings,
        mechanisms: Mapping[str, Mechanism],
        config: BrokerConfig,
        unauthenticated: UnauthenticatedConnections,
        clock: Clock,
        peer_log: PeerLog,
        metrics: BrokerMetrics,
    ) -> None:
        self.name = settings.name
        #: The security.protocol that clients must use.
        self.protocol = next(
            each.protocol for each in config.broker_listeners if each.name == self.name
        )
        self.mechanisms = mechanisms
        self._unauthenticated = unauthenticated
        #: The maximum size of a frame before authentication.
        self.receive_bytes_max = config.sasl_server_max_receive_size
        #: The maximum duration of an authentication, in seconds.
        self.timeout_s = config.sasl_authentication_timeout_ms / 1000
        self._max_reauth_ms = settings.max_reauth_ms
        self._delay_ms = config.connection_failed_authentication_delay_ms
        self._clock = clock
        self._peer_log = peer_log
        self._metrics = metrics

    def now_ms(self) -> int:
        """The time by the monotonic clock."""
        return int(self._clock.monotonic_ms())

    def session_lifetime_ms(self, mechanism: str, expires_at_ms: int | None) -> int | None:
        """The duration of a session that begins now, in ms; None: unlimited (N-28).
        `expires_at_ms`: the wall time at which the client's credentials expire; None if they do
        not."""
        most_ms = self._max_reauth_ms[mechanism]
        found = [most_ms] if most_ms > 0 else []
        if expires_at_ms is not None:
            found.append(max(expires_at_ms - self._clock.wall_ms(), 0))
        return min(found, default=None)

    def succeeded(self, mechanism: str, *, again: bool) -> None:
        """Count a successful authentication."""
        self._metrics.authenticated(self.name, mechanism, again=again)

    def failed(self, host: str, mechanism: str, reason: str, *, again: bool) -> int:
        """Count and log a failed authentication; returns the delay of its answer, in ms."""
        self._metrics.authentication_failed(self.name, mechanism, again=again)
        self._peer_log.warn("refused an authentication", host, reason, listener=self.name)
        return self._unauthenticated.failed(host, self._delay_ms)

    def begin(self, host: str, close: Close) -> bool:
        """Count an unauthenticated connection. If its address, or all, have too many, the oldest is
        closed; False if all of them have failed to authenticate, and wait for the answer. `close`
        is called if this connection has to be closed to make room for a later connection. The
        caller has to call `ended` when the client has authenticated or the connection is closed."""
        if self._unauthenticated.waiting.begin(host, close):
            return True
        self._peer_log.warn(
            "refused a connection",
            host,
            "too many connections wait for the answer to a failed authentication"
            " (max.sasl.authentications.per.ip, max.sasl.authentications)",
            listener=self.name,
        )
        return False

    def keep(self, close: Close) -> None:
        """Close this connection for no other one: its authentication has failed. Otherwise a peer
        could try passwords faster than it gets answers."""
        self._unauthenticated.waiting.keep(close)

    def cut(self, host: str) -> None:
        """Log a connection that was closed to make room for a later one."""
        self._peer_log.warn(
            "closed a connection",
            host,
            "it was the oldest of too many that have not authenticated"
            " (max.sasl.authentications.per.ip, max.sasl.authentications)",
            listener=self.name,
        )

    def ended(self, close: Close) -> None:
        """Called when a connection has authenticated or is closed, and so is no longer
        unauthenticated."""
        self._unauthenticated.waiting.ended(close)

    def late(self, host: str) -> None:
        """Log an authentication that took too long."""
        self._metrics.authentication_failed(self.name, "", again=False)
        self._peer_log.tell(
            "closed a connection",
            host,
            f"it did not authenticate within {self.timeout_s:g} s (sasl.authentication.timeout.ms)",
            listener=self.name,
        )

    def expired(self) -> None:
        """Count a connection whose session has expired."""
        self._metrics.sessions_expired_total += 1


def random_bytes(randomness: Randomness, count: int) -> bytes:
    """`count` random bytes."""
    return randomness.below(1 << 8 * count).to_bytes(count, "big")


class UsersFile:
    """The file of a listener's users of PLAIN, read again when it changes. `beside`: runs work in a
    thread, since it takes a second to read 100,000 users. Raises StartError if it is not valid."""

    def __init__(self, listener: str, path: str, users: PlainUsers, beside: Beside) -> None:
        self._listener = listener
        self._path = path
        self._users = users
        self._beside = beside
        self._reading = False
        self._seen = files.fingerprint((path,))
        try:
            users.use_hashes(self._read())
        except (TlsError, UsersFileError) as problem:
            raise StartError(f"sasl.plain.users.file {path}: {problem}") from None

    def refresh(self) -> None:
        """Use the present content of the file, if it is valid."""
        found = files.fingerprint((self._path,))
        if found == self._seen or self._reading:
            return
        self._seen, self._reading = found, True
        read: list[dict[str, PasswordHash]] = []

        def use(problem: Exception | None) -> None:
            self._reading = False
            if problem is not None:
                log.error(
                    "the new PLAIN users cannot be read; the earlier ones stay in use",
                    listener=self._listener,
                    problem=str(problem),
                )
                return
            (users,) = read
            earlier = self._users.use_hashes(users)
            self._beside(partial(_free, earlier), lambda _: None)
            log.info("the new PLAIN users are in use", listener=self._listener, users=len(users))

        self._beside(lambda: read.append(self._read()), use)

    def _read(self) -> dict[str, PasswordHash]:
        try:
            return parse_users(files.read(self._path, _USERS_BYTES_MAX).decode())
        except UnicodeDecodeError:
            raise UsersFileError("it is no UTF-8") from None


def _free(users: dict[str, PasswordHash]) -> None:
    """Free users one by one, so that other threads run meanwhile."""
    while users:
        users.popitem()


class SaslListeners:
    """All listeners with SASL, by name. `hashing`, `fetching`: the threads for hashing passwords
    and for fetching keys. Raises StartError."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        credentials: Credentials,
        tokens: Callable[[], DelegationTokens],
        clock: Clock,
        randomness: Randomness,
        peer_log: PeerLog,
        metrics: BrokerMetrics,
        hashing: Beside,
        fetching: Beside,
    ) -> None:
        self._clock, self._randomness = clock, randomness
        self._credentials, self._tokens = credentials, tokens
        self._hashing, self._fetching = hashing, fetching
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
            except BrokerConfigError as problem:
                raise StartError(str(problem)) from None
            mechanisms = {name: self._mechanism(settings, name) for name in settings.mechanisms}
            self._listeners[each.name] = SaslListener(
                settings, mechanisms, config, unauthenticated, clock, peer_log, metrics
            )

    def get(self, name: str) -> SaslListener | None:
        return self._listeners.get(name)

    def refresh(self) -> None:
        """Use the files that have changed."""
        for each in self._files:
            each.refresh()

    def _mechanism(self, settings: SaslListenerSettings, name: str) -> Mechanism:
        if name == "PLAIN":
            users = PlainUsers(settings.plain_users, self._secret, self._hashing)
            if settings.plain_users_file:
                file = settings.plain_users_file
                self._files.append(UsersFile(settings.name, file, users, self._hashing))
            return PlainMechanism(users)
        if name == "OAUTHBEARER":
            return self._oauthbearer(settings)
        scram = ScramMechanism.of_name(name)
        assert scram is not None, name
        tokens = ScramTokens(scram, self._tokens, self._secret, self._clock.wall_ms, self._hashing)
        return ScramUsers(scram, self._credentials, tokens, self._secret, self._nonce)

    def _oauthbearer(self, settings: SaslListenerSettings) -> Mechanism:
        tokens = settings.tokens
        assert tokens is not None
        if not isinstance(tokens, SignedTokens):
            return OAuthBearerMechanism(UnsecuredValidator(tokens, self._clock.wall_ms))
        keys = JwksKeys(tokens, self._fetching, lambda: int(self._clock.monotonic_ms()))
        return OAuthBearerMechanism(SignedValidator(tokens, keys, self._clock.wall_ms))

    def _nonce(self) -> str:
        return random_bytes(self._randomness, _NONCE_BYTES).hex()
