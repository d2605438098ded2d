"""Users, TLS and rights for brokers of tests.

    with Broker.subprocess(users={"alice": "secret"}, superusers=["alice"], tls=True) as broker:
        Producer(**broker.client_settings("alice"))

`Security` makes users, TLS and rights for brokers that are started in other ways, for example by
fixtures of pytest.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from odradek_client.errors import IllegalState, LocalError

if TYPE_CHECKING:
    from cryptography.x509 import CertificateBuilder, Name

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISM = "SCRAM-SHA-256"
_NAME = re.compile(r"[A-Za-z0-9._@-]+")
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_DAYS = 30


class SecurityOptions(TypedDict, total=False):
    """The options of `Security` that brokers also take."""

    users: Mapping[str, str]
    tls: bool
    superusers: Sequence[str]
    acls: bool


class LoginOptions(TypedDict, total=False):
    """Options for the settings of a client. `password`: another password than the user's.
    `mechanism`: one of `MECHANISMS`."""

    password: str
    mechanism: str


class CryptographyMissing(LocalError, ImportError):
    """The error of `tls=True` without the package cryptography."""


class Security:
    """The users, the certificate authority and the rights of a broker; files are in `folder`, which
    must exist.

    `users`: passwords by name, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. `tls`: encrypt
    connections, with a certificate that a new authority has signed; `ca_file` is the certificate of
    this authority. `superusers` may do everything. With `superusers` or `acls`, other users may do
    only what ACLs allow. Raises ValueError for a name or password that cannot be used.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        superusers: Sequence[str] = (),
        acls: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.users = dict(users or {})
        self.superusers = [superusers] if isinstance(superusers, str) else list(superusers)
        self._tls = tls
        self._acls = acls or bool(self.superusers)
        for name, password in self.users.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"users: the name {name!r} must be of letters, digits and . _ @ -")
            if password.splitlines() != [password]:
                raise ValueError(f"users: the password of {name} must be one line, and not empty")
        unknown = [name for name in self.superusers if self.users and name not in self.users]
        if unknown:
            raise ValueError(f"superusers: {', '.join(unknown)} is not among users")
        if self._acls and not self.superusers:
            raise ValueError(
                "acls=True needs superusers=[NAME]: somebody has to make the first ACLs"
            )

    @property
    def protocol(self) -> str:
        """The protocol of the listener, by Kafka's name."""
        if self.users:
            return "SASL_SSL" if self._tls else "SASL_PLAINTEXT"
        return "SSL" if self._tls else "PLAINTEXT"

    @property
    def has_files(self) -> bool:
        """True if the broker and its clients need files in the folder."""
        return bool(self.users) or self._tls

    @property
    def ca_file(self) -> Path:
        """The PEM file with the authority of the broker's certificate. IllegalState without
        `tls=True`."""
        if not self._tls:
            raise IllegalState("there is no authority: the broker was made without tls=True")
        path = self.folder / "ca.pem"
        if not path.exists():
            _make_certificates(path, self.folder / "broker.pem")
        return path

    # --- For the broker ---

    def broker_settings(self, listen: str = "127.0.0.1:0") -> dict[str, str]:
        """The settings of a broker that listens at HOST:PORT; writes the files that they name."""
        settings = {"listeners": f"{self.protocol}://{listen}"}
        if self.users:
            settings |= self._of_users()
        if self._tls:
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.location"] = str(self.ca_file.with_name("broker.pem"))
        if self._acls:
            settings["authorizer.class.name"] = _AUTHORIZER
            settings["super.users"] = ";".join(f"User:{name}" for name in self.superusers)
            settings["allow.everyone.if.no.acl.found"] = "false"
        return settings

    def _of_users(self) -> dict[str, str]:
        # Passwords are not in the broker's command line, which other users of the machine can see.
        for name, password in self.users.items():
            _write(self.folder / f"{name}.password", f"{password}\n")
        named = " ".join(
            f'user_{name}="${{dir:{self.folder}:{name}.password}}"' for name in self.users
        )
        listener = f"listener.name.{self.protocol.lower()}"
        return {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{listener}.plain.sasl.jaas.config": f"{_LOGIN_MODULE} required {named};",
            "sasl.scram.initial.users": ",".join(
                f"{name}=file:{self.folder / name}.password" for name in self.users
            ),
        }

    # --- For clients ---

    def client_settings(
        self, bootstrap: str, user: str | None = None, **login: Unpack[LoginOptions]
    ) -> dict[str, Any]:
        """The settings of Odradek's clients for a user. By default the user is the first superuser,
        or the first user if there are no superusers. `mechanism`: by default SCRAM-SHA-256."""
        settings = {"bootstrap_servers": bootstrap, "security_protocol": self.protocol}
        if self.users:
            name, secret, mechanism = self._login(user, login)
            settings |= {"sasl_mechanism": mechanism, "sasl_username": name}
            settings["sasl_password"] = secret
        if self._tls:
            settings["ssl_truststore_type"] = "PEM"
            settings["ssl_truststore_location"] = str(self.ca_file)
        return settings

    def confluent_settings(
        self, bootstrap: str, user: str | None = None, **login: Unpack[LoginOptions]
    ) -> dict[str, Any]:
        """The settings for confluent-kafka and other clients made with librdkafka, as in
        `client_settings`."""
        settings = {"bootstrap.servers": bootstrap, "security.protocol": self.protocol}
        if self.users:
            name, secret, mechanism = self._login(user, login)
            settings |= {"sasl.mechanism": mechanism, "sasl.username": name}
            settings["sasl.password"] = secret
        if self._tls:
            settings["ssl.ca.location"] = str(self.ca_file)
        return settings

    def aiokafka_settings(
        self, bootstrap: str, user: str | None = None, **login: Unpack[LoginOptions]
    ) -> dict[str, Any]:
        """The settings for aiokafka and kafka-python, as in `client_settings`."""
        settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": self.protocol,
        }
        if self.users:
            name, secret, mechanism = self._login(user, login)
            settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": name}
            settings["sasl_plain_password"] = secret
        if self._tls:
            import ssl

            settings["ssl_context"] = ssl.create_default_context(cafile=str(self.ca_file))
        return settings

    def _login(self, user: str | None, login: LoginOptions) -> tuple[str, str, str]:
        mechanism = login.get("mechanism", _MECHANISM)
        if mechanism not in MECHANISMS:
            raise ValueError(f"mechanism={mechanism!r} must be one of {', '.join(MECHANISMS)}")
        name = user or next(iter([*self.superusers, *self.users]))
        password = login.get("password", self.users.get(name))
        if password is None:
            known = ", ".join(self.users)
            raise ValueError(f"there is no user {name!r}, only {known}; give him a password=")
        return name, password, mechanism


class Secured:
    """The methods of a broker that was created with `SecurityOptions`."""

    #: The users and the certificate authority of the broker.
    security: Security

    if TYPE_CHECKING:

        @property
        def bootstrap(self) -> str:
            """The "HOST:PORT" for `bootstrap_servers`."""

    @property
    def ca_file(self) -> Path:
        """The PEM file with the authority of the broker's certificate. IllegalState without
        `tls=True`."""
        return self.security.ca_file

    def client_settings(
        self, user: str | None = None, **login: Unpack[LoginOptions]
    ) -> dict[str, Any]:
        """The settings of Odradek's clients for a user. By default the user is the first superuser,
        or the first user if there are no superusers. `password`: another password than the user's.
        `mechanism`: by default SCRAM-SHA-256."""
        return self.security.client_settings(self.bootstrap, user, **login)

    def confluent_settings(
        self, user: str | None = None, **login: Unpack[LoginOptions]
    ) -> dict[str, Any]:
        """The settings for confluent-kafka and other clients made with librdkafka, as in
        `client_settings`."""
        return self.security.confluent_settings(self.bootstrap, user, **login)

    def aiokafka_settings(
        self, user: str | None = None, **login: Unpack[LoginOptions]
    ) -> dict[str, Any]:
        """The settings for aiokafka and kafka-python, as in `client_settings`."""
        return self.security.aiokafka_settings(self.bootstrap, user, **login)


def _write(path: Path, text: str) -> None:
    """Write a file that only this user may read."""
    path.touch(0o600)
    path.write_text(text, "utf-8")


def _make_certificates(ca_file: Path, broker_file: Path) -> None:
    """Write the certificate of a new authority to `ca_file`, and a certificate for this machine,
    signed by that authority, with its key to `broker_file`. CryptographyMissing."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise CryptographyMissing(
            "tls=True needs the package cryptography: pip install 'odradek[tls]'"
        ) from error
    from ipaddress import ip_address

    def name(text: str) -> Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def unsigned(subject: str, key: ec.EllipticCurvePrivateKey, ca: bool) -> CertificateBuilder:
        at = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        builder = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(authority))
        builder = builder.public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(at - day).not_valid_after(at + _DAYS * day)
        return builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)

    # Authorities of several brokers must not have the same name.
    authority = f"Odradek test authority {os.urandom(4).hex()}"
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    hosts = [x509.DNSName("localhost"), *map(x509.IPAddress, map(ip_address, ("127.0.0.1", "::1")))]
    certificate = (
        unsigned("localhost", key, False)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(broker_file, (certificate.public_bytes(Encoding.PEM) + private).decode())
    ca = unsigned(authority, ca_key, True).sign(ca_key, hashes.SHA256())
    _write(ca_file, ca.public_bytes(Encoding.PEM).decode())
