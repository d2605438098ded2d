"""Cipher suites by the names that Java and the standards use, as OpenSSL names them."""

from __future__ import annotations

#: Those of TLS 1.3, all of which OpenSSL has switched on.
TLS_1_3 = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)


def openssl_name(name: str) -> str:
    """The name for `SSLContext.set_ciphers`; a name of OpenSSL's stays as it is.

    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384.
    """
    head, separator, tail = name.partition("_WITH_")
    if not separator:
        return name
    exchange = head.removeprefix("TLS_").replace("_", "-")
    tail = tail.replace("AES_256", "AES256").replace("AES_128", "AES128")
    if tail.startswith("CHACHA20_POLY1305"):
        # The hash is not part of the name.
        tail = "CHACHA20_POLY1305"
    tail = tail.replace("_CBC_", "-").replace("_", "-")
    return tail if exchange == "RSA" else f"{exchange}-{tail}"
