"""The names and the expiry of a keystore's certificate, and the check that clients accept the
certificate for a host name.

The check is a handshake of OpenSSL with itself in memory. So it treats wildcards, addresses, and
certificates with only a common name as OpenSSL does.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from typing import Any

from odradek_protocol.tls import files
from odradek_protocol.tls.contexts import certificate_context
from odradek_protocol.tls.settings import TlsError, TlsSettings

#: The value of X509_V_FLAG_NO_CHECK_TIME, because `ssl.VerifyFlags` does not have it.
_NO_CHECK_TIME = 0x200000
#: The limit of turns of a handshake in memory; a complete handshake takes three turns.
_TURNS_MAX = 10


def certificate_names(settings: TlsSettings) -> tuple[str, ...] | None:
    """The names ("DNS:broker", "IP Address:127.0.0.1") in the keystore's certificate. None if
    OpenSSL cannot read the certificate.

    The names are those in `subjectAltName` or, if it has none, the common names ("CN=broker").
    Raises TlsError for an invalid keystore.
    """
    certificate = _shown(settings, None)
    if certificate is None:
        return None
    found = [f"{kind}:{name}" for kind, name in certificate.get("subjectAltName", ())]
    if not found:
        parts = [part for group in certificate.get("subject", ()) for part in group]
        found = [f"CN={value}" for name, value in parts if name == "commonName"]
    return tuple(found)


def expiry_s(settings: TlsSettings) -> float | None:
    """The end of the validity of the keystore's certificate, in seconds since the epoch. None if
    OpenSSL cannot read the certificate; raises TlsError for an invalid keystore."""
    certificate = _shown(settings, None)
    return None if certificate is None else ssl.cert_time_to_seconds(certificate["notAfter"])


def is_for(settings: TlsSettings, host: str) -> bool:
    """True if clients that connect to `host` accept the keystore's certificate. The dates and the
    issuer of the certificate are not checked.

    Raises TlsError for an invalid keystore.
    """
    try:
        return _shown(settings, host) is not None
    except ValueError as error:
        if isinstance(error, TlsError):
            raise
        # `host` is no name that a certificate can have.
        return False


def wanted_name(host: str) -> str:
    """The entry of `subjectAltName` that a certificate for `host` needs: "DNS:broker",
    "IP:127.0.0.1"."""
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _shown(settings: TlsSettings, host: str | None) -> dict[str, Any] | None:
    """The certificate that a client of `host` gets, in the form of `ssl`; None if the client
    refuses it."""
    broker_context = certificate_context(settings)
    certificate = files.load(settings.keystore, settings.key_password).certificates[0]
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = host is not None
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
    client_context.load_verify_locations(cadata=certificate)
    to_broker, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_broker, server_hostname=host)
    broker = broker_context.wrap_bio(to_broker, to_client, server_side=True)
    for _ in range(_TURNS_MAX):
        for side in (client, broker):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
            if side is client:
                return client.getpeercert()
    return None
