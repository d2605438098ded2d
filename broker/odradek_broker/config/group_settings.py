"""Settings of groups and of subscriptions to client metrics (KIP-848, KIP-714).

Only settings of consumer groups have an effect: share groups, Streams groups and client metrics are
not served, and their settings are kept and shown.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.config.broker_settings import SETTINGS
from odradek_broker.config.types import ConfigRow, Kind, Setting, Value
from odradek_broker.config.unsupported import NO_EFFECT_SETTINGS
from odradek_broker.re2 import PatternError, compile_pattern
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import ANYTHING, Check, at_least, between, one_of


@dataclass(frozen=True, kw_only=True)
class GroupSetting(ConfigRow):
    """A setting of a group.

    `synonym`: Kafka's name for the broker's setting. `broker`, `least` and `most`: the broker's
    default and its bounds, where this broker has settings for them.
    """

    synonym: str
    broker: Setting | None = None
    least: Setting | None = None
    most: Setting | None = None


_NOT_SERVED = "Accepted for compatibility: groups of this kind are not served."


def _like(broker: Setting, doc: str = "", **more: Any) -> GroupSetting:
    name = broker.name.removeprefix("group.")
    return GroupSetting.like(broker, name, doc, synonym=broker.name, broker=broker, **more)


def _bounded(protocol: str, name: str, doc: str) -> GroupSetting:
    least, most = (SETTINGS[f"group.{protocol}.{bound}.{name}"] for bound in ("min", "max"))
    return _like(SETTINGS[f"group.{protocol}.{name}"], doc, least=least, most=most)


def _assignment_interval(protocol: str) -> GroupSetting:
    return _like(NO_EFFECT_SETTINGS[f"group.{protocol}.assignment.interval.ms"], effective=False)


def _unserved_alone(
    name: str, kind: Kind, default: Value, check: Check = ANYTHING, synonym: str = ""
) -> GroupSetting:
    """A setting without a broker's setting behind it."""
    synonym = synonym or name
    return GroupSetting(name, kind, default, _NOT_SERVED, check, synonym=synonym, effective=False)


def _unserved(name: str, default: Value, check: Check) -> GroupSetting:
    return _unserved_alone(name, Kind.INT, default, check, f"group.{name}")


_SESSION = between(45_000, 60_000)
_HEARTBEAT = between(5_000, 15_000)
_OFFSET_RESET = Check(
    "latest, earliest, or by_duration:PnDTnHnMn.nS",
    lambda text: text in ("latest", "earliest") or text.startswith("by_duration:P"),
)

#: Every row by key, in alphabetical order.
GROUP_SETTINGS: dict[str, GroupSetting] = {
    row.name: row
    for row in (
        _assignment_interval("consumer"),
        _bounded(
            "consumer", "heartbeat.interval.ms", "How often members are told to send a heartbeat."
        ),
        _bounded(
            "consumer",
            "session.timeout.ms",
            "How long a member may be silent before it is removed.",
        ),
        _bounded(
            "share",
            "assignment.interval.ms",
            "The shortest time between two assignments of the group.",
        ),
        _unserved_alone("share.auto.offset.reset", Kind.STRING, "latest", _OFFSET_RESET),
        _unserved("share.delivery.count.limit", 5, between(2, 10)),
        _bounded(
            "share", "heartbeat.interval.ms", "How often members are told to send a heartbeat."
        ),
        _unserved_alone(
            "share.isolation.level",
            Kind.STRING,
            "read_uncommitted",
            one_of("read_committed", "read_uncommitted"),
        ),
        _unserved("share.partition.max.record.locks", 2_000, between(100, 4_000)),
        _unserved("share.record.lock.duration.ms", 30_000, between(15_000, 60_000)),
        _unserved_alone("share.renew.acknowledge.enable", Kind.BOOLEAN, True),
        _bounded(
            "share", "session.timeout.ms", "How long a member may be silent before it is removed."
        ),
        _assignment_interval("streams"),
        _unserved("streams.heartbeat.interval.ms", 5_000, _HEARTBEAT),
        _unserved("streams.initial.rebalance.delay.ms", 3_000, at_least(0)),
        _unserved("streams.num.standby.replicas", 0, between(0, 2)),
        _unserved("streams.session.timeout.ms", 45_000, _SESSION),
    )
}


def _metrics(name: str, kind: Kind, default: Value, check: Check = ANYTHING) -> ConfigRow:
    doc = "Accepted for compatibility: client metrics are not served."
    return ConfigRow(name, kind, default, doc, check, effective=False)


_MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def _is_match(text: str) -> bool:
    name, equals, pattern = text.partition("=")
    if not equals or name.strip() not in _MATCHED:
        return False
    try:
        compile_pattern(pattern.strip())
    except PatternError:
        return False
    return True


#: The settings of subscriptions to client metrics.
METRICS_SETTINGS: dict[str, ConfigRow] = {
    row.name: row
    for row in (
        _metrics("interval.ms", Kind.INT, 300_000, between(100, 3_600_000)),
        _metrics(
            "match",
            Kind.LIST,
            (),
            Check(
                f"a list of NAME=PATTERN, NAME out of {', '.join(_MATCHED)}",
                lambda items: all(_is_match(item) for item in items),
            ),
        ),
        _metrics("metrics", Kind.LIST, ()),
    )
}
