"""The declaration of a setting: a typed field, in one row.

    linger_ms: int = setting(5, at_least=0, doc="How long a record may wait for others.")

A row gives name, type, default, bounds and one sentence; parsing, validation and `describe()` read
the same row. Values come as Python values or as text (from a file, an environment or a command
line); names are Kafka's, with underscores or with dots.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar, dataclass_transform

from odradek_client.errors import ConfigError

N = TypeVar("N", int, float)

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The definition of one setting. `kind` is "int", "float", "bool", "str", "names", "addresses",
    "object".

    `secret`: its value is shown nowhere.
    """

    name: str
    kind: str
    default: Any
    at_least: float | None
    at_most: float | None
    choices: tuple[str, ...]
    optional: bool
    doc: str
    secret: bool = False

    @property
    def about(self) -> str:
        """The sentence of `doc`, and the values that may be chosen."""
        if not self.choices:
            return self.doc
        return f"{self.doc} One of {', '.join(each or 'empty' for each in self.choices)}."


def setting(
    default: Any,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    kind: str = "",
    secret: bool = False,
    doc: str,
) -> Any:
    """Declare a setting. `default=None` makes None a value it may have.

    `kind` is told by the default unless that is None: "int", "float", "bool", "str"; "addresses" is
    a list of "host:port", "names" one of words, "object" is taken as it is. The value of a `secret`
    is shown nowhere.
    """
    if not kind:
        kind = {int: "int", float: "float", bool: "bool", str: "str"}[type(default)]
    about = {"kind": kind, "doc": doc, "secret": secret}
    bounds = {"at_least": at_least, "at_most": at_most, "choices": choices}
    return dataclasses.field(
        default=default, repr=not secret, metadata={**about, **bounds}, kw_only=True
    )


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
def config(cls: Any) -> Any:
    """Make a class of settings: a frozen dataclass built by `from_settings`."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)


@config
class Settings:
    """Base of the classes of settings."""

    @classmethod
    def rows(cls) -> dict[str, Row]:
        """All settings by name, in the order of declaration."""
        rows = {}
        for entry in dataclasses.fields(cls):
            about: Any = entry.metadata
            rows[entry.name] = Row(
                entry.name,
                about["kind"],
                entry.default,
                about["at_least"],
                about["at_most"],
                about["choices"],
                entry.default is None,
                about["doc"],
                about["secret"],
            )
        return rows

    @classmethod
    def describe(cls) -> str:
        """A table of the settings for people, one per line."""
        return "\n".join(f"{row.name} = {row.default!r}: {row.doc}" for row in cls.rows().values())

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Parse, check and complete. ConfigError names the setting and says what to do."""
        rows = cls.rows()
        given: dict[str, Any] = {}
        for name, value in settings.items():
            key = name.replace(".", "_")
            if key not in rows:
                raise ConfigError(_unknown(cls, name, rows))
            if key in given:
                raise ConfigError(f"{key} is given twice, with dots and with underscores")
            given[key] = _parse(rows[key], value)
        values = {name: row.default for name, row in rows.items()} | given
        cls._resolve(values, frozenset(given))
        return cls(**values)

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        """Rules between settings: changes `values` or raises ConfigError. `given`: set by the
        user."""


#: Other clients' names for settings of TLS and SASL, and ours.
_CALLED_HERE = {
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_cafile": "ssl_truststore_location",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_location": "ssl_keystore_location (one file with key and certificates)",
    "ssl_certfile": "ssl_keystore_location (one file with key and certificates)",
    "ssl_key_location": "ssl_keystore_location (one file with key and certificates)",
    "ssl_keyfile": "ssl_keystore_location (one file with key and certificates)",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_pem": "ssl_keystore_key",
    "ssl_password": "ssl_key_password",
    "ssl_check_hostname": "ssl_endpoint_identification_algorithm (https, or empty)",
    "ssl_context": "ssl_truststore_location and ssl_keystore_location",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_extensions": "sasl_jaas_config, with extension_NAME=VALUE",
    "sasl_oauthbearer_config": "sasl_oauth_token_provider",
    "oauth_cb": "sasl_oauth_token_provider",
}


#: Settings that promise an authentication which is not there.
_KERBEROS = ("sasl_kerberos_",)


def _unknown(cls: type[Settings], name: str, rows: Mapping[str, Row]) -> str:
    kind = cls.__name__.removesuffix("Config").lower()
    key = name.replace(".", "_").lower()
    if key.startswith(_KERBEROS):
        return f"{name!r} cannot be obeyed: this client does not speak Kerberos (GSSAPI)"
    if key in _CALLED_HERE:
        return f"the {kind} has no setting {name!r}; here it is {_CALLED_HERE[key]}"
    near = difflib.get_close_matches(name.replace(".", "_").lower(), rows, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(rows))}"
    return f"the {kind} has no setting {name!r}{hint}"


def _parse(row: Row, value: Any) -> Any:
    if value is None:
        if row.optional:
            return None
        raise ConfigError(f"{row.name} may not be None; leave it out for {row.default!r}")
    return _PARSERS[row.kind](row, value)


def _parse_int(row: Row, value: Any) -> int:
    if isinstance(value, str):
        try:
            value = int(value.strip())
        except ValueError:
            raise ConfigError(f"{row.name}={value!r} is no whole number") from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{row.name}={value!r} is no whole number")
    return _in_bounds(row, value)


def _parse_float(row: Row, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value.strip())
        except ValueError:
            raise ConfigError(f"{row.name}={value!r} is no number") from None
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ConfigError(f"{row.name}={value!r} is no number")
    return _in_bounds(row, float(value))


def _in_bounds(row: Row, value: N) -> N:
    if row.at_least is not None and value < row.at_least:
        raise ConfigError(f"{row.name}={value} is too small; it must be at least {row.at_least}")
    if row.at_most is not None and value > row.at_most:
        raise ConfigError(f"{row.name}={value} is too large; it must be at most {row.at_most}")
    return value


def _parse_bool(row: Row, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise ConfigError(f"{row.name}={value!r} must be true or false")


def _parse_str(row: Row, value: Any) -> str:
    if not isinstance(value, str):
        shown = "" if row.secret else f"={value!r}"
        raise ConfigError(f"{row.name}{shown} must be text")
    text: str = value
    if row.choices:
        text = text.strip().lower()
        if text not in row.choices:
            near = difflib.get_close_matches(text, row.choices, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{row.name}={value!r} must be one of {', '.join(row.choices)}{hint}")
    return text


def _parse_names(row: Row, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        names = tuple(part.strip() for part in parts if part.strip())
    except (TypeError, AttributeError):
        raise ConfigError(f"{row.name}={value!r} must be words with commas, or a list") from None
    for name in names:
        if row.choices and name not in row.choices:
            raise ConfigError(f"{row.name}: {name!r} must be one of {', '.join(row.choices)}")
    return names


def _parse_addresses(row: Row, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        addresses = tuple(part.strip() for part in parts)
    except (TypeError, AttributeError):
        raise ConfigError(
            f'{row.name}={value!r} must be "host:port,host:port" or a list of "host:port"'
        ) from None
    addresses = tuple(address for address in addresses if address)
    if not addresses:
        raise ConfigError(f'{row.name} is empty; give at least one "host:port"')
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(f"{row.name}: {error}") from None
    return addresses


def split_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port" or "[v6 address]:port"; the port is 9092 if there is none.

    A listener name in front, as in "PLAINTEXT://host:9092", is dropped. ValueError says what is
    wrong.
    """
    rest = address.rpartition("://")[2]
    host, colon, port_text = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port_text = rest, "9092"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r}: write an IPv6 address in brackets, as in [::1]:9092")
    if not host:
        raise ValueError(f"{address!r} names no host")
    if not port_text.isdecimal() or not 0 < int(port_text) < 65536:
        raise ValueError(f"{address!r}: {port_text!r} is no port; it must be 1 to 65535")
    return host, int(port_text)


def _parse_acks(row: Row, value: Any) -> int:
    text = str(value).strip().lower()
    if isinstance(value, bool) or text not in _ACKS:
        raise ConfigError(f'{row.name}={value!r} must be "all" (or -1), 1 or 0')
    return _ACKS[text]


def _parse_function(row: Row, value: Any) -> Any:
    if not callable(value):
        raise ConfigError(f"{row.name}={value!r} cannot be called; give a function")
    return value


def _parse_assignors(row: Row, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(name for name in map(str.strip, value.split(",")) if name)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _parse_partitioner(row: Row, value: Any) -> Any:
    if callable(value) or value in _PARTITIONERS:
        return value
    raise ConfigError(
        f"{row.name}={value!r} must be {' or '.join(map(repr, _PARTITIONERS))}, or a function "
        "(topic, key, number of partitions) -> partition"
    )


_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_PARTITIONERS = ("default", "round_robin")
_PARSERS: dict[str, Callable[[Row, Any], Any]] = {
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "str": _parse_str,
    "names": _parse_names,
    "addresses": _parse_addresses,
    "acks": _parse_acks,
    "function": _parse_function,
    "partitioner": _parse_partitioner,
    "assignors": _parse_assignors,
    "object": lambda row, value: value,
}
