"""Keystores and truststores: from the bytes of PEM and PKCS12 to PEM texts (KIP-651).

A store in the format JKS is an error, because only Java reads this format; the error says how to
convert the store.
"""

from __future__ import annotations

import re
from dataclasses import field

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.tls.settings import StoreSettings, TlsError

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = b"\x30"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_WIDTH = 64


@dataclass(frozen=True)
class Pem:
    """PEM texts. `key` may be encrypted with `key_password`."""

    certificates: tuple[str, ...]
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)


def from_text(store: StoreSettings, text: str, key_password: str) -> Pem:
    """The certificates and the key in PEM text. The text may be a single line (KIP-651). Raises
    TlsError."""
    certificates, keys = [], []
    for match in _BLOCK.finditer(text):
        label, body = match.groups()
        if label in ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"):
            certificates.append(_block(label, body))
        elif label.endswith("PRIVATE KEY"):
            keys.append(_block(label, body))
    if len(keys) > 1:
        raise TlsError(f"{store.name} has {len(keys)} private keys; give one")
    key = keys[0] if keys else ""
    if "ENCRYPTED" in key and not key_password:
        raise TlsError(f"the private key of {store.name} is encrypted; set ssl.key.password")
    return Pem(tuple(certificates), key, key_password)


def _block(label: str, body: str) -> str:
    if ":" in body:
        # The body is kept unchanged, because it has headers (an older kind of encrypted key), which
        # depend on line ends.
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    data = "".join(body.split())
    lines = [data[start : start + _WIDTH] for start in range(0, len(data), _WIDTH)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def from_file(store: StoreSettings, data: bytes, password: str, key_password: str) -> Pem:
    """The content of a store's file, whose format must match its type. Raises TlsError."""
    where = f"{store.name}.location={store.location}"
    if data.startswith(_JKS):
        raise TlsError(f"{where} is a JKS keystore, which only Java reads; {_convert(store)}")
    if data.startswith(_DER_SEQUENCE):
        if store.type == "PEM":
            raise TlsError(f"{where} is PKCS12; set {store.name}.type=PKCS12")
        return _from_pkcs12(store, data, password, key_password)
    text = data.decode("utf-8", "replace")
    if _BLOCK.search(text):
        if store.type != "PEM":
            raise TlsError(f"{where} is PEM; set {store.name}.type=PEM")
        if password:
            raise TlsError(f"{store.name}.password is not for PEM; a key has ssl.key.password")
        return from_text(store, text, key_password)
    raise TlsError(f"{where} is neither PEM nor PKCS12")


def _convert(store: StoreSettings) -> str:
    return (
        f"convert it: keytool -importkeystore -srckeystore {store.location} -destkeystore "
        f"{store.location}.p12 -deststoretype PKCS12, and set {store.name}.location and "
        f"{store.name}.type=PKCS12"
    )


def _from_pkcs12(store: StoreSettings, data: bytes, password: str, key_password: str) -> Pem:
    where = f"{store.name}.location={store.location}"
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise TlsError(
            f"{where} is PKCS12, which needs the package cryptography (pip install"
            f" 'odradek[tls]'); or convert it: openssl pkcs12 -in {store.location} -out"
            f" {store.location}.pem, and set {store.name}.location and {store.name}.type=PEM"
        ) from None
    if key_password and password and key_password != password:
        raise TlsError(
            f"{where}: the key of a PKCS12 has the password of its store; leave out ssl.key.password"
        )
    try:
        opened = pkcs12.load_pkcs12(data, (password or key_password).encode() or None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise TlsError(f"{where} cannot be opened: check {store.name}.password") from None
    found = [opened.cert] if opened.cert is not None else []
    found += opened.additional_certs
    certificates = [each.certificate.public_bytes(Encoding.PEM).decode() for each in found]
    key = ""
    if opened.key is not None:
        key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Pem(tuple(certificates), key)


def check_keystore(store: StoreSettings, pem: Pem) -> None:
    """Check for a key with its certificates. Raises TlsError."""
    if pem.key and not pem.certificates:
        raise TlsError(f"{store.name} has a private key and no certificate")
    if not pem.key:
        raise TlsError(f"{store.name} has no private key")


def check_given(store: StoreSettings) -> None:
    """Check that a store is given in only one way, and completely. Raises TlsError."""
    texts = bool(store.certificates or store.key)
    if store.location and texts:
        raise TlsError(f"{store.name} is given as a file and as text; give one of them")
    if texts and store.type != "PEM":
        raise TlsError(f"certificates as text are PEM; set {store.name}.type=PEM")
    if texts and store.password:
        raise TlsError(f"{store.name}.password is not for PEM; a key has ssl.key.password")
    if store.name.endswith("keystore") and bool(store.certificates) != bool(store.key):
        raise TlsError("ssl.keystore.key and ssl.keystore.certificate.chain go together")
