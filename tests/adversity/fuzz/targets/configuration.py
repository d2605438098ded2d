"""Configuration that people write: properties files, settings of brokers, topics and groups,
addresses, expressions.

The first byte chooses the kind of the text: a properties file, KEY=VALUE lines of dynamic broker
settings, KEY=VALUE lines of a topic, a name and an expression for topic names (on separate lines),
or an address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.adversity.fuzz.target import Target

from odradek_broker.config.broker import (
    default_config,
    parse_assignments,
    parse_config,
    parse_properties,
    with_dynamic,
)
from odradek_broker.config.broker_settings import SETTINGS
from odradek_broker.config.effective import TopicConfigs, describe_broker
from odradek_broker.config.listeners import parse_address
from odradek_broker.config.topic_settings import TOPIC_SETTINGS
from odradek_broker.config.types import BrokerConfigError, write_value
from odradek_broker.patterns import PatternError, compile_pattern

_CONFIG = default_config()
_TOPICS = TopicConfigs(_CONFIG)


def _file(text: str) -> None:
    try:
        given = parse_properties(text)
        config, notices = parse_config(given)
    except BrokerConfigError:
        return
    for notice in notices:
        notice.text.encode("utf-8", "surrogatepass")
    config.default_log_config()
    assert all(listener.address for listener in config.broker_listeners)
    assert config.data_dir
    describe_broker(config)


def _dynamic(text: str) -> None:
    try:
        given = parse_assignments(text.splitlines())
        describe_broker(with_dynamic(_CONFIG, given, given))
    except BrokerConfigError:
        return


def _topic(text: str) -> None:
    try:
        given = parse_assignments(text.splitlines())
        checked = _TOPICS.validate(given, {})
    except BrokerConfigError:
        return
    _TOPICS.to_log_config(checked)
    _TOPICS.describe(checked, None)


def _expression(text: str) -> None:
    name, _, expression = text.partition("\n")
    try:
        pattern = compile_pattern(expression)
    except PatternError:
        return
    pattern.matches(name[:200])


def _address(text: str) -> None:
    try:
        parse_address("http.listen", text)
    except BrokerConfigError:
        return


_KINDS: tuple[Callable[[str], None], ...] = (_file, _dynamic, _topic, _expression, _address)


def _check(data: bytes) -> None:
    if data:
        _KINDS[data[0] % len(_KINDS)](data[1:].decode("utf-8", "replace"))


def _seeds() -> Iterator[bytes]:
    rows = [
        (name, write_value(row.default))
        for name, row in SETTINGS.items()
        if row.default is not None
    ]
    for start in range(0, len(rows), 6):
        lines = "".join(f"{name}={value}\n" for name, value in rows[start : start + 6])
        yield b"\0" + lines.encode()
        yield b"\1" + lines.encode()
    yield b"\0# comment\n! too\na = b\\\n  c\nk\\u0041y:v\\t\n\\=x y\n"
    topics = [(name, write_value(row.default)) for name, row in TOPIC_SETTINGS.items()]
    for start in range(0, len(topics), 4):
        yield b"\2" + "".join(f"{n}={v}\n" for n, v in topics[start : start + 4]).encode()
    for expression in (
        "t-.*",
        "(?i)(a|b)*[^x-z]{2,3}?$",
        r"\Qa.b\E|\d+\w\s[[:alpha:]]",
        r"(?P<n>x)?\bfoo\B\x41\pL",
        "((((a+)+)+)+)+",
    ):
        yield b"\3" + b"t-aaaa\n" + expression.encode()
    for address in ("localhost:9092", "[::1]:0", ":65535"):
        yield b"\4" + address.encode()


TARGET = Target(_check, _seeds, input_bytes_max=1000)
