"""Settings of subscriptions to client metrics (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.config.types import ConfigRow, ConfigType
from odradek_broker.patterns import Pattern, PatternError, compile_pattern
from odradek_protocol.settings import ANYTHING, Check, between, trim

#: The push interval of a client that no subscription matches.
DEFAULT_INTERVAL_MS = 300_000
INTERVAL_MS_MAX = 3_600_000

#: The attributes of a client that a subscription can be limited to.
MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def read_match(items: Iterable[str]) -> dict[str, Pattern]:
    """The patterns of a `match`, by attribute; if an attribute has several patterns, the last one
    is used. Raises ValueError for an item that is not NAME=PATTERN."""
    patterns = {}
    for item in items:
        name, equals, text = item.partition("=")
        name, text = trim(name), trim(text)
        # Kafka splits at every "=", so neither the name nor the pattern may contain "=".
        if not equals or "=" in text or not text or name not in MATCHED:
            raise ValueError(item)
        try:
            patterns[name] = compile_pattern(text)
        except PatternError as error:
            raise ValueError(item) from error
    return patterns


def _is_match(items: Iterable[str]) -> bool:
    try:
        read_match(items)
    except ValueError:
        return False
    return True


def _row(
    name: str, kind: ConfigType, default: int | tuple[str, ...], doc: str, check: Check = ANYTHING
) -> ConfigRow:
    return ConfigRow(name, kind, default, doc, check)


#: Every row by key.
METRICS_SETTINGS: dict[str, ConfigRow] = {
    row.name: row
    for row in (
        _row(
            "interval.ms",
            ConfigType.INT,
            DEFAULT_INTERVAL_MS,
            "Time between two pushes of metrics by a client; if several subscriptions match, the "
            "shortest time counts.",
            between(100, INTERVAL_MS_MAX),
        ),
        _row(
            "match",
            ConfigType.LIST,
            (),
            "The clients that the subscription applies to, as a list of NAME=PATTERN that must all "
            "match; empty: every client.",
            Check(f"a list of NAME=PATTERN, NAME out of {', '.join(MATCHED)}", _is_match),
        ),
        _row(
            "metrics",
            ConfigType.LIST,
            (),
            "Prefixes of the names of metrics that clients push; *: all; empty: none.",
        ),
    )
}
