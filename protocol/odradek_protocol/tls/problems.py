"""The problems of a TLS handshake as text: the cause, and the remedy."""

from __future__ import annotations

import ssl

#: OpenSSL's reasons (`SSLError.reason`) at a listener.
_AT_BROKER = {
    "HTTP_REQUEST": "it sent an HTTP request to a TLS listener",
    "WRONG_VERSION_NUMBER": "it sends plaintext to a TLS listener",
    "UNEXPECTED_MESSAGE": "it sends plaintext to a TLS listener",
    "UNSUPPORTED_PROTOCOL": "it has no version of TLS that is enabled (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "it has no cipher suite that is enabled (ssl.cipher.suites)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate (ssl.client.auth=required)",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our certificate: its truststore lacks the CA",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "our certificate is not for the name that it connected to, or is damaged",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it does not accept what we offer",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no version of TLS that is enabled (ssl.enabled.protocols)",
}
#: OpenSSL's reasons (`SSLError.reason`) in a client.
_AT_CLIENT = {
    "WRONG_VERSION_NUMBER": "it does not use TLS there: that is a PLAINTEXT listener, or no broker",
    "UNSUPPORTED_PROTOCOL": "it has no version of TLS that is enabled here (ssl.enabled.protocols)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it requires another version of TLS (ssl.enabled.protocols)",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "it does not accept what we offer: no common cipher suite (ssl.cipher.suites), or it wants a"
        " client certificate (ssl.keystore)"
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a client certificate: set ssl.keystore",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our certificate (ssl.keystore): it lacks the CA",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our certificate (ssl.keystore)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate (ssl.keystore) has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate (ssl.keystore)",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "our certificate (ssl.keystore) is not for clients",
    "TLSV1_ALERT_INTERNAL_ERROR": "it met a problem of its own",
}
#: Codes of X509_verify_cert.
_EXPIRED, _NOT_YET_VALID, _HOSTNAME, _ADDRESS = 10, 9, 62, 64
_UNTRUSTED = frozenset({2, 18, 19, 20, 21})


def at_broker(error: BaseException) -> str:
    """The reason why a client's handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _EXPIRED:
            return "its certificate has expired"
        if error.verify_code in _UNTRUSTED:
            return "its certificate is not from a CA of our truststore (ssl.truststore)"
        return f"its certificate is not accepted: {error.verify_message}"
    return _known(_AT_BROKER, error) or _closed(error) or str(error)


def at_client(error: BaseException, host: str) -> str:
    """The reason why a handshake with a broker failed; `host`: the host name that the client used
    for the broker."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(error, host)
    return _known(_AT_CLIENT, error) or _closed(error) or str(error)


def is_certain(error: BaseException) -> bool:
    """True if the TLS handshake failed, so that a retry will fail in the same way; false if only
    the connection failed."""
    return isinstance(error, ssl.SSLError) and not isinstance(
        error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError
    )


def _certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "its certificate has expired (or the clock of this machine is wrong)"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet (or the clock of this machine is wrong)"
    if code in (_HOSTNAME, _ADDRESS):
        return (
            f"its certificate is not for the name {host}: connect by a name that it has, or set"
            ' ssl.endpoint.identification.algorithm=""'
        )
    if code in _UNTRUSTED:
        return "its certificate is not from a CA that is trusted here (ssl.truststore)"
    return f"its certificate is not accepted: {error.verify_message}"


def _known(table: dict[str, str], error: BaseException) -> str:
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    return table.get(reason or "", "")


def _closed(error: BaseException) -> str:
    if isinstance(error, ssl.SSLEOFError | ConnectionError | EOFError):
        return "it closed the connection in the handshake"
    return ""
