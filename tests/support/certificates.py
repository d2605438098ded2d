"""Certificates for tests: an authority, and certificates signed by it.

The keys are elliptic-curve keys, because they are generated quickly.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


def subject(name: str, **more: str) -> x509.Name:
    """An X.509 name with CN=`name` and further attributes, by their names in `NameOID`."""
    attributes = [x509.NameAttribute(getattr(NameOID, key), more[key]) for key in more]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Certificate:
    """A certificate with its key."""

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, chain: str = ""
    ) -> None:
        self.certificate = certificate
        self._key = key
        self.pem = certificate.public_bytes(Encoding.PEM).decode() + chain

    def key(self, password: str = "") -> str:
        """The private key as PEM, encrypted if there is a password."""
        protection: KeySerializationEncryption = (
            BestAvailableEncryption(password.encode()) if password else NoEncryption()
        )
        private = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
        return private.decode()

    def pkcs12(self, password: str) -> bytes:
        """Certificate and key as a PKCS #12 keystore."""
        protection = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"broker", self._key, self.certificate, None, protection
        )

    def write(self, path: Path, password: str = "") -> Path:
        """Write certificate and key to a PEM file."""
        path.write_text(self.pem + self.key(password), "utf-8")
        return path


class Authority:
    """An authority that signs certificates. `pem`: its own certificate, for a truststore."""

    def __init__(self, name: str = "Test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = subject(name)
        self.certificate = self._sign(self._name, self._key, [], ca=True, days=(-1, 30))
        self.pem = self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self,
        name: str | x509.Name = "localhost",
        hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
        days: tuple[float, float] = (-1, 30),
    ) -> Certificate:
        """Issue a certificate for a broker or a client, valid for `days` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        whose = subject(name) if isinstance(name, str) else name
        return Certificate(self._sign(whose, key, hosts, ca=False, days=days), key)

    def pkcs12(self, password: str) -> bytes:
        """The authority's certificate as a PKCS #12 truststore."""
        protection = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            None, None, None, [self.certificate], protection
        )

    def write(self, path: Path) -> Path:
        """Write the authority's certificate as a PEM truststore."""
        path.write_text(self.pem, "utf-8")
        return path

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        hosts: Sequence[str],
        *,
        ca: bool,
        days: tuple[float, float],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * _DAY)
            .not_valid_after(now + days[1] * _DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
