"""The settings of TLS of a listener or a client, by Kafka's names with underscores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields

from odradek_protocol.lazy_dataclass import dataclass

#: The supported versions of TLS.
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("JKS", "PKCS12", "PEM")


class TlsError(ValueError):
    """An invalid keystore, truststore or setting. The text contains no secret."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The settings of a keystore or a truststore. The store is in a file or is given as PEM text.

    The texts may be references to secrets (`files.py`) and are not shown.
    """

    #: "ssl.keystore" or "ssl.truststore", for error messages.
    name: str
    type: str = "JKS"
    location: str = ""
    password: str = field(default="", repr=False)
    #: PEM text: the certificates; in a keystore, the owner's certificate is first.
    certificates: str = field(default="", repr=False)
    #: PEM text: the private key of a keystore.
    key: str = field(default="", repr=False)

    @property
    def is_given(self) -> bool:
        """True if a file or a text is set."""
        return bool(self.location or self.certificates or self.key)


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """The TLS settings of one listener or one client."""

    keystore: StoreSettings = field(default_factory=lambda: StoreSettings(name="ssl.keystore"))
    truststore: StoreSettings = field(default_factory=lambda: StoreSettings(name="ssl.truststore"))
    key_password: str = field(default="", repr=False)
    enabled_protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    #: For a listener: "none", "requested" or "required".
    client_auth: str = "none"
    #: For a client: "https", or "" to accept a certificate of any host.
    endpoint_identification_algorithm: str = "https"

    @property
    def locations(self) -> tuple[str, ...]:
        """The paths of the files that these settings name."""
        return tuple(store.location for store in (self.keystore, self.truststore) if store.location)


def tls_settings(values: Mapping[str, object]) -> TlsSettings:
    """The settings from values by Kafka's names with underscores; missing settings have their
    defaults."""

    def text(name: str) -> str:
        value = values.get(name)
        return "" if value is None else str(value)

    def store(name: str, certificates: str) -> StoreSettings:
        return StoreSettings(
            name=name.replace("_", "."),
            type=text(f"{name}_type").upper() or "JKS",
            location=text(f"{name}_location"),
            password=text(f"{name}_password"),
            certificates=text(certificates),
            key=text(f"{name}_key"),
        )

    plain = {
        each.name: values[f"ssl_{each.name}"]
        for each in fields(TlsSettings)
        if values.get(f"ssl_{each.name}") is not None
    }
    return TlsSettings(
        keystore=store("ssl_keystore", "ssl_keystore_certificate_chain"),
        truststore=store("ssl_truststore", "ssl_truststore_certificates"),
        **plain,  # type: ignore[arg-type]
    )
