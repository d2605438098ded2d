"""Settings of groups (KIP-848, KIP-932, KIP-1071)."""

from __future__ import annotations

from typing import Any

from odradek_broker.config.broker_settings import SETTINGS
from odradek_broker.config.types import ConfigRow, ConfigType, Setting, Value
from odradek_broker.topic_partition import topic_name_problem
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import (
    ANYTHING,
    Check,
    between,
    one_of,
    parse_iso_duration_ms,
)


@dataclass(frozen=True, kw_only=True)
class GroupSetting(ConfigRow):
    """A setting of a group.

    `synonym`: the name of Kafka's broker setting that gives the default. `broker`: this broker's
    setting that gives the default; `least`, `most`: this broker's settings that give the bounds;
    each is None if this broker has no such setting.
    """

    synonym: str
    broker: Setting | None = None
    least: Setting | None = None
    most: Setting | None = None


def _like(broker: Setting, doc: str = "", **more: Any) -> GroupSetting:
    name = broker.name.removeprefix("group.")
    return GroupSetting.like(broker, name, doc, synonym=broker.name, broker=broker, **more)


def _bounded(protocol: str, name: str, doc: str) -> GroupSetting:
    least, most = (SETTINGS[f"group.{protocol}.{bound}.{name}"] for bound in ("min", "max"))
    return _like(SETTINGS[f"group.{protocol}.{name}"], doc, least=least, most=most)


def _share_alone(
    name: str, kind: ConfigType, default: Value, doc: str, check: Check = ANYTHING
) -> GroupSetting:
    """A setting of share groups whose default is a constant and not a setting of the broker."""
    return GroupSetting(name, kind, default, doc, check, synonym=name)


_BY_DURATION = "by_duration:"


def _is_offset_reset(text: str) -> bool:
    if not text.startswith(_BY_DURATION):
        return text in ("latest", "earliest")
    duration_ms = parse_iso_duration_ms(text[len(_BY_DURATION) :])
    return duration_ms is not None and duration_ms >= 0


_OFFSET_RESET = Check("latest, earliest, or by_duration:PnDTnHnMn.nS", _is_offset_reset)

_REDELIVERY_DELAY = between(0, 3_600_000)


def _is_dead_letter_topic(name: str) -> bool:
    return not name or not (topic_name_problem(name) or name.startswith("__"))


_DEAD_LETTER_TOPIC = Check(
    "empty, or the name of a topic that does not begin with __", _is_dead_letter_topic
)

#: Every row by key, in alphabetical order.
GROUP_SETTINGS: dict[str, GroupSetting] = {
    row.name: row
    for row in (
        _bounded(
            "consumer",
            "assignment.interval.ms",
            "Minimum time between two assignments of the group.",
        ),
        _bounded("consumer", "heartbeat.interval.ms", "Time between two heartbeats of a member."),
        _bounded(
            "consumer",
            "session.timeout.ms",
            "Time without a heartbeat after which a member is removed.",
        ),
        _share_alone(
            "errors.deadletterqueue.copy.record.enable",
            ConfigType.BOOLEAN,
            False,
            "true: a dead letter of a share group has the key, the value and the headers of the "
            "record; false: it has only the position of the record (KIP-1191, in Kafka from 4.4 "
            "on).",
        ),
        _share_alone(
            "errors.deadletterqueue.topic.name",
            ConfigType.STRING,
            "",
            "The topic to which a share group writes records that it gives up; empty: they are "
            "only archived (KIP-1191, in Kafka from 4.4 on).",
            _DEAD_LETTER_TOPIC,
        ),
        _bounded(
            "share",
            "assignment.interval.ms",
            "Minimum time between two assignments of the group.",
        ),
        _share_alone(
            "share.auto.offset.reset",
            ConfigType.STRING,
            "latest",
            "The position from which the group reads a partition that it has not read before.",
            _OFFSET_RESET,
        ),
        _bounded(
            "share",
            "delivery.count.limit",
            "Maximum number of deliveries of a record; after the last one the group gives the "
            "record up.",
        ),
        _bounded("share", "heartbeat.interval.ms", "Time between two heartbeats of a member."),
        _share_alone(
            "share.isolation.level",
            ConfigType.STRING,
            "read_uncommitted",
            "read_committed: the group gets no records of open or aborted transactions.",
            one_of("read_committed", "read_uncommitted"),
        ),
        _bounded(
            "share",
            "partition.max.record.locks",
            "Maximum number of records of a partition that the group has in flight.",
        ),
        _bounded(
            "share",
            "record.lock.duration.ms",
            "Time for which a member has a record locked; after that another member may get it.",
        ),
        _share_alone(
            "share.redelivery.delay.max.ms",
            ConfigType.INT,
            60_000,
            "Maximum pause before a record is delivered again; the pause doubles with each "
            "delivery. Not a setting of Kafka.",
            _REDELIVERY_DELAY,
        ),
        _share_alone(
            "share.redelivery.delay.ms",
            ConfigType.INT,
            0,
            "The pause before a record is delivered for the second time; 0: none. Not a setting of"
            " Kafka.",
            _REDELIVERY_DELAY,
        ),
        _share_alone(
            "share.renew.acknowledge.enable",
            ConfigType.BOOLEAN,
            True,
            "true: members may renew the lock of a record before it expires.",
        ),
        _bounded(
            "share",
            "session.timeout.ms",
            "Time without a heartbeat after which a member is removed.",
        ),
        _bounded(
            "streams",
            "assignment.interval.ms",
            "Minimum time between two assignments of the group.",
        ),
        _bounded("streams", "heartbeat.interval.ms", "Time between two heartbeats of a member."),
        _like(
            SETTINGS["group.streams.initial.rebalance.delay.ms"],
            "Time for which an empty group waits for more members after the first one.",
        ),
        _like(
            SETTINGS["group.streams.num.standby.replicas"],
            "Number of clients that keep a copy of the state of each task.",
            most=SETTINGS["group.streams.max.standby.replicas"],
        ),
        _bounded(
            "streams",
            "session.timeout.ms",
            "Time without a heartbeat after which a member is removed.",
        ),
    )
}
