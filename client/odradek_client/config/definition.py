"""The declaration of a setting: a typed field, in one row.

    linger_ms: int = setting(5, at_least(0), doc="The longest wait of a record for others.")

A row gives name, type, default, bounds and one sentence of description; parsing, validation and
`describe()` all read this row. Values come as Python values or as text (from a file, an environment
or a command line); names are Kafka's, with underscores or with dots.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar, dataclass_transform

from odradek_client.errors import ConfigError
from odradek_protocol.settings import (
    ANYTHING,
    BOOLEANS,
    BadValue,
    Check,
    did_you_mean,
    read_boolean,
    read_integer,
    read_list,
)
from odradek_protocol.settings import Row as BaseRow

N = TypeVar("N", int, float)

_BOOLEANS = BOOLEANS | {"yes": True, "on": True, "1": True, "no": False, "off": False, "0": False}


class ClientSetting(BaseRow[str, Any]):
    """The definition of one setting."""

    @property
    def about(self) -> str:
        """The sentence of `doc`, followed by the allowed values if the setting is a choice."""
        choices = ", ".join(each or "empty" for each in self.check.choices)
        return f"{self.doc} One of {choices}." if choices else self.doc


def setting(
    default: Any,
    check: Check = ANYTHING,
    *,
    kind: str = "",
    secret: bool = False,
    doc: str,
) -> Any:
    """Declare a setting. With `default=None`, the setting may be None.

    `kind` follows from a default that is not None: "int", "float", "bool" or "str". Of the other
    kinds, "addresses" is a list of "host:port", "names" a list of words, and "object" any value.
    The value of a `secret` is never shown.
    """
    kind = kind or type(default).__name__
    return ClientSetting("", kind, default, doc, check, secret=secret).as_field()


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
def config(cls: Any) -> Any:
    """Make a class of settings: a frozen dataclass built by `from_settings`."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)


@config
class Settings:
    """Base of the classes of settings."""

    @classmethod
    def rows(cls) -> dict[str, ClientSetting]:
        """All settings by name, in the order of declaration."""
        return ClientSetting.declared_by(cls)

    @classmethod
    def describe(cls) -> str:
        """A table of the settings for people, one per line."""
        return "\n".join(f"{row.name} = {row.default!r}: {row.doc}" for row in cls.rows().values())

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Make the settings from names and values: parse, check and complete them. ConfigError
        names the wrong setting and the remedy."""
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
    def _instead(cls) -> Mapping[str, str]:
        """Settings that only other clients have, with the replacement for each setting in this
        client.
        """
        return {}

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        """Apply the rules between settings: change `values` or raise ConfigError. `given`: the
        names that the user has set."""


#: Names of TLS and SASL settings in other clients, with the names in this client.
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


#: Prefixes of settings for an authentication mechanism that this client does not have.
_KERBEROS = ("sasl_kerberos_",)


def _unknown(cls: type[Settings], name: str, rows: Mapping[str, ClientSetting]) -> str:
    kind = re.sub(r"(?<=.)(?=[A-Z])", " ", cls.__name__.removesuffix("Config")).lower()
    key = name.replace(".", "_").lower()
    if key in cls._instead():
        return f"the {kind} has no setting {name!r}: {cls._instead()[key]}"
    if key.startswith(_KERBEROS):
        return f"{name!r} cannot be obeyed: this client does not speak Kerberos (GSSAPI)"
    if key in _CALLED_HERE:
        return f"the {kind} has no setting {name!r}; here it is {_CALLED_HERE[key]}"
    settings = f"{cls.__name__.removesuffix('Config')}Settings"
    hint = did_you_mean(key, rows) or f"; odradek.{settings} has all {len(rows)}"
    return f"the {kind} has no setting {name!r}{hint}"


def _parse(row: ClientSetting, value: Any) -> Any:
    if value is None:
        if row.default is None:
            return None
        raise ConfigError(f"{row.name} may not be None; leave it out for {row.default!r}")
    try:
        return _PARSERS[row.kind](row, value)
    except BadValue as problem:
        shown = "" if row.secret else f"={value!r}"
        raise ConfigError(f"{row.name}{shown} {problem}") from None


def _parse_int(row: ClientSetting, value: Any) -> int:
    if isinstance(value, str):
        value = read_integer(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadValue("is no whole number")
    return _in_bounds(row, value)


def _parse_float(row: ClientSetting, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value.strip())
        except ValueError:
            raise BadValue("is no number") from None
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ConfigError(f"{row.name}={value!r} is no number")
    return _in_bounds(row, float(value))


def _in_bounds(row: ClientSetting, value: N) -> N:
    least, most = row.check.lowest, row.check.highest
    if value < least:
        raise ConfigError(f"{row.name}={value} is too small; it must be at least {least}")
    if value > most:
        raise ConfigError(f"{row.name}={value} is too large; it must be at most {most}")
    return value


def _parse_bool(row: ClientSetting, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return read_boolean(value if isinstance(value, str) else "", _BOOLEANS)


def _parse_str(row: ClientSetting, value: Any) -> str:
    if not isinstance(value, str):
        raise BadValue("must be text")
    text: str = value
    if row.check.choices:
        text = text.strip().lower()
        if not row.check.accepts(text):
            hint = did_you_mean(text, row.check.choices, shown=repr)
            raise BadValue(f"must be {row.check.text}{hint}")
    return text


def _parse_parts(value: Any, allowed: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return read_list(value)
    try:
        return tuple(part.strip() for part in value if part.strip())
    except (TypeError, AttributeError):
        raise BadValue(f"must be {allowed}") from None


def _parse_names(row: ClientSetting, value: Any) -> tuple[str, ...]:
    names = _parse_parts(value, "words with commas, or a list")
    for name in names:
        if not row.check.accepts(name):
            raise ConfigError(f"{row.name}: {name!r} must be {row.check.text}")
    return names


def _parse_addresses(row: ClientSetting, value: Any) -> tuple[str, ...]:
    addresses = _parse_parts(value, '"host:port,host:port" or a list of "host:port"')
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

    A listener name in front, as in "PLAINTEXT://host:9092", is dropped. ValueError names the
    problem.
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


def _parse_acks(row: ClientSetting, value: Any) -> int:
    text = str(value).strip().lower()
    if isinstance(value, bool) or text not in _ACKS:
        raise BadValue('must be "all" (or -1), 1 or 0')
    return _ACKS[text]


def _parse_function(row: ClientSetting, value: Any) -> Any:
    if not callable(value):
        raise BadValue("cannot be called; give a function")
    return value


def _parse_assignors(row: ClientSetting, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return read_list(value)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _parse_partitioner(row: ClientSetting, value: Any) -> Any:
    if callable(value) or value in _PARTITIONERS:
        return value
    raise BadValue(
        f"must be {' or '.join(map(repr, _PARTITIONERS))}, or a function"
        " (topic, key, number of partitions) -> partition"
    )


_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_PARTITIONERS = ("default", "round_robin")
_PARSERS: dict[str, Callable[[ClientSetting, Any], Any]] = {
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
