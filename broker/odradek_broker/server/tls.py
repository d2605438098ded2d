"""TLS at the listeners: contexts with the present certificates, limits of handshakes, users by
certificate.

A certificate that has changed, in its file or by IncrementalAlterConfigs, is used by the next
handshake. If the new certificate is invalid, that is logged, and the old certificate stays in use
(N-20). If a certificate lacks the name that is advertised to clients, that is also logged (N-40).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from odradek_broker.config.broker import HTTP, BrokerConfig
from odradek_broker.config.listener_settings import listener_key
from odradek_broker.config.principal_mapping import parse_rules, principal_of
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.request import ANONYMOUS
from odradek_broker.security.distinguished_name import subject_name
from odradek_broker.server.host import MadeRoom, StartError
from odradek_protocol.tls import files, names, problems
from odradek_protocol.tls.contexts import server_context
from odradek_protocol.tls.settings import TlsError, TlsSettings
from odradek_protocol.waiting_peers import Close, WaitingPeers

log = structlog.get_logger("odradek.tls")

#: The maximum number of names in a log line. A certificate may have thousands of names.
_NAMES_SHOWN_MAX = 10


class TlsListener:
    """A listener with TLS. Raises TlsError if it has no usable certificate."""

    def __init__(self, name: str, config: BrokerConfig, peer_log: PeerLog) -> None:
        self.name = name
        self._settings = config.tls_settings(name)
        self._files = files.fingerprint(self._settings.locations)
        #: The context of the next handshake.
        self.context = server_context(self._settings)
        #: The expiry time of the certificate, in seconds since the epoch; None if it cannot be
        #: read.
        self.end_s = names.expiry_s(self._settings)
        #: The maximum duration of a handshake, in seconds.
        self.timeout_s = config.ssl_handshake_timeout_ms / 1000
        rules = config.listener_value(name, "ssl.principal.mapping.rules")
        self._rules = parse_rules(str(rules))
        self._handshakes = WaitingPeers(config.max_ssl_handshakes_per_ip, config.max_ssl_handshakes)
        self._peer_log = peer_log
        self.refused: Callable[[], None] = lambda: None
        self._advertised_host = ""

    # --- The certificate ---

    def refresh(self, config: BrokerConfig) -> None:
        """Use changed settings and files."""
        settings = config.tls_settings(self.name)
        found = files.fingerprint(settings.locations)
        if settings == self._settings and found == self._files:
            return
        self._settings, self._files = settings, found
        try:
            self.context = server_context(settings)
        except TlsError as error:
            log.error(
                "the new certificate cannot be used; the old one stays in use",
                listener=self.name,
                problem=str(error),
            )
        else:
            log.info("a new certificate is in use", listener=self.name)
            self.end_s = names.expiry_s(settings)
            self._check_name()

    def advertise(self, host: str) -> None:
        """Note the name that is advertised to clients; log a warning if the certificate does not
        have this name."""
        self._advertised_host = host
        self._check_name()

    def _check_name(self) -> None:
        host = self._advertised_host
        try:
            if not host or names.is_for(self._settings, host):
                return
            found = names.certificate_names(self._settings)
        except TlsError:
            # The file has changed since it was loaded; the next `refresh` reports its error.
            return
        if found is None:
            return
        shown = ", ".join(found[:_NAMES_SHOWN_MAX])
        if len(found) > _NAMES_SHOWN_MAX:
            shown += f" and {len(found) - _NAMES_SHOWN_MAX} more"
        log.warning(
            "clients will refuse the certificate: it is not for the host that is advertised",
            listener=self.name,
            advertised=host,
            certificate_names=shown or "none",
            what_to_do=(
                f"advertise a name of the certificate (advertised.listeners={self.name}://NAME:PORT), or use a"
                f" certificate with subjectAltName {names.wanted_name(host)}"
            ),
        )

    # --- Handshakes ---

    def begin(self, host: str, close: Close) -> None:
        """Count a handshake that begins. If its address, or all, have too many, the oldest is
        closed: an honest peer would have finished it by now (N-23). The caller has to call `ended`
        when the handshake has ended."""
        self._handshakes.begin(host, close)

    def ended(self, host: str, close: Close, problem: BaseException | None) -> None:
        """Count the end of a handshake; `problem`: the error if it failed, otherwise None."""
        self._handshakes.ended(close)
        if problem is None:
            return
        self.refused()
        if isinstance(problem, TimeoutError):
            reason = (
                f"its handshake took longer than {self.timeout_s:g} s (ssl.handshake.timeout.ms)"
            )
        elif isinstance(problem, MadeRoom):
            reason = (
                "its handshake was the oldest of too many unfinished ones"
                " (max.ssl.handshakes.per.ip, max.ssl.handshakes)"
            )
        else:
            reason = problems.at_broker(problem)
        # An uncertain problem may come from a port scan, and a port scan is no reason for a
        # warning.
        certain = problems.is_certain(problem) or isinstance(problem, TimeoutError | MadeRoom)
        say = self._peer_log.warn if certain else self._peer_log.tell
        say("refused a TLS connection", host, reason, listener=self.name)

    def user_of(self, ssl_object: Any) -> str:
        """The user that the peer's certificate names; ANONYMOUS without a certificate. Raises
        ValueError if the certificate names none.

        `ssl_object`: the transport's extra info "ssl_object".
        """
        certificate = ssl_object.getpeercert(binary_form=True)
        return principal_of(self._rules, subject_name(certificate)) if certificate else ANONYMOUS


def open_tls(config: BrokerConfig, peer_log: PeerLog) -> dict[str, TlsListener]:
    """The listeners with TLS, by name. Raises StartError if one has no usable certificate."""
    found = {}
    for each in config.broker_listeners:
        if each.protocol.is_encrypted:
            try:
                found[each.name] = TlsListener(each.name, config, peer_log)
            except TlsError as error:
                raise StartError(
                    f"cannot listen on {each.name}://{each.address}: {error}"
                ) from error
    return found


def open_http_tls(config: BrokerConfig, peer_log: PeerLog) -> TlsListener | None:
    """The TLS settings of the HTTP endpoint; None without TLS. Raises StartError if it has no
    usable certificate."""
    if config.http_address is None or config.http_security_protocol != "SSL":
        return None
    try:
        return TlsListener(HTTP, config, peer_log)
    except TlsError as error:
        raise StartError(f"cannot serve {config.http_listen} with TLS: {error}") from error


def http_token(config: BrokerConfig) -> str:
    """The token that requests to the HTTP endpoint must have; empty if none is required. Raises
    StartError for a reference that cannot be resolved."""
    try:
        return files.resolve(config.http_token)
    except TlsError as error:
        raise StartError(f"http.token: {error}") from None


def with_token_key(config: BrokerConfig) -> BrokerConfig:
    """The settings, in which a reference to the secret key of delegation tokens is replaced by the
    key. Raises StartError for a reference that cannot be resolved."""
    try:
        key = files.resolve(config.delegation_token_secret_key)
    except TlsError as problem:
        raise StartError(f"delegation.token.secret.key: {problem}") from None
    return replace(config, delegation_token_secret_key=key)


def check_changed(listeners: Mapping[str, TlsListener], config: BrokerConfig) -> None:
    """Check changed settings before they are used. Raises ConfigError, which names the listener's
    keystore."""
    for listener in listeners.values():
        settings = config.tls_settings(listener.name)
        if settings != listener._settings:
            _check(listener.name, settings)


def _check(name: str, settings: TlsSettings) -> None:
    try:
        server_context(settings)
    except (TlsError, ssl.SSLError) as error:
        shown = settings.keystore.location or "PEM text"
        raise BrokerConfigError(
            listener_key(name, "ssl.keystore"), shown, f"a usable certificate: {error}"
        ) from None
