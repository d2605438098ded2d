"""The `ssl.SSLContext`s of listeners and clients, from their settings."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from odradek_protocol.tls import files, stores
from odradek_protocol.tls.handshake import TellingSSLObject
from odradek_protocol.tls.settings import TlsError, TlsSettings

#: The cipher suites of TLS 1.3, all of which OpenSSL enables.
TLS_1_3 = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)


def openssl_name(name: str) -> str:
    """The name for `SSLContext.set_ciphers`; OpenSSL's own names are unchanged.

    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 becomes ECDHE-RSA-AES256-GCM-SHA384.
    """
    head, separator, tail = name.partition("_WITH_")
    if not separator:
        return name
    exchange = head.removeprefix("TLS_").replace("_", "-")
    tail = tail.replace("AES_256", "AES256").replace("AES_128", "AES128")
    if tail.startswith("CHACHA20_POLY1305"):
        # OpenSSL's name does not include the hash.
        tail = "CHACHA20_POLY1305"
    tail = tail.replace("_CBC_", "-").replace("_", "-")
    return tail if exchange == "RSA" else f"{exchange}-{tail}"


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener. Raises TlsError for invalid settings or files."""
    if not settings.keystore.is_given:
        raise TlsError(
            "a listener with TLS has to have a certificate: set ssl.keystore.location, or"
            " ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    # Renegotiations cost processor time, and a peer could request any number of them.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, settings, ssl.Purpose.CLIENT_AUTH)
        # A ticket carries the verdict about a certificate, and each resumption brings a new ticket:
        # a certificate that expires meanwhile would be accepted for ever.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def certificate_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener with the keystore's certificate. The listener requests no
    certificates of clients. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_key(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client. Raises TlsError for invalid settings or files."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.endpoint_identification_algorithm.lower() == "https"
    _trust(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def _context(protocol: ssl._SSLMethod, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslobject_class = TellingSSLObject
    # Any certificate of a truststore is trusted, as in Java, not only root certificates.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _limit_versions(context, settings)
    _limit_ciphers(context, settings.cipher_suites)
    if settings.keystore.is_given:
        _load_key(context, settings)
    return context


def _limit_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = [_VERSIONS[name] for name in settings.enabled_protocols if name in _VERSIONS]
    if not versions:
        raise TlsError(f"ssl.enabled.protocols must have one of {', '.join(_VERSIONS)}")
    suites = settings.cipher_suites
    if suites and not TLS_1_3 & set(suites):
        versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
    elif suites and set(suites) <= TLS_1_3:
        versions = [each for each in versions if each is ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise TlsError("ssl.cipher.suites has none for a version in ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _limit_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """Allow only these cipher suites. A choice among the cipher suites of TLS 1.3 needs Python
    3.15.
    """
    newer = [name for name in suites if name in TLS_1_3]
    older = [openssl_name(name) for name in suites if name not in TLS_1_3]
    if newer and len(newer) < len(TLS_1_3):
        choose = getattr(context, "set_ciphersuites", None)
        if choose is None:
            raise TlsError(
                "ssl.cipher.suites: this Python cannot choose among the suites of TLS 1.3; name all"
                f" of them ({', '.join(sorted(TLS_1_3))}), or none"
            )
        choose(":".join(newer))
    for given, name in zip([each for each in suites if each not in TLS_1_3], older, strict=True):
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise TlsError(f"ssl.cipher.suites: there is no {given} here") from None
    if older:
        context.set_ciphers(":".join(older))


def _trust(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    """Trust the truststore's certificates; without a truststore, the certificates of the system."""
    if not settings.truststore.is_given:
        context.load_default_certs(purpose)
        return
    pem = files.load(settings.truststore, "")
    if not pem.certificates:
        raise TlsError(f"{settings.truststore.name} has no certificate")
    try:
        context.load_verify_locations(cadata="".join(pem.certificates))
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"{settings.truststore.name} cannot be used: {error}") from None


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    store = settings.keystore
    pem = files.load(store, settings.key_password)
    stores.check_keystore(store, pem)
    with _as_file(pem.key + "".join(pem.certificates)) as path:
        try:
            # The password is a function, because with an empty text OpenSSL would ask for it at the
            # terminal.
            context.load_cert_chain(path, password=lambda: pem.key_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise TlsError(f"the key of {store.name} is not that of its certificate") from None
            if "ENCRYPTED" in pem.key:
                raise TlsError(
                    f"{store.name}: the key does not open with ssl.key.password"
                ) from None
            raise TlsError(f"{store.name} cannot be used: {error}") from None
        except OSError as error:
            raise TlsError(f"{store.name} cannot be used: {error}") from None


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The path of a file with this text, because OpenSSL reads keys only from files. The file is in
    memory if the system supports files in memory. Otherwise only this user can read the file, and
    it is deleted immediately after use."""
    create = getattr(os, "memfd_create", None)
    if create is not None and os.path.isdir("/proc/self/fd"):
        descriptor = create("odradek-key")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="odradek-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        yield path
    finally:
        os.unlink(path)
