"""The settings that a topic may have of its own, and the broker setting each falls back to."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_broker.config_keys import SETTINGS
from odradek_broker.config_types import ANYTHING, Check, Kind, Setting, Value
from odradek_broker.storage.log_config import LogConfig


@dataclass(frozen=True)
class TopicSetting:
    """One topic setting.

    With a `broker` row, kind, check and default are the broker's; otherwise they are given here.
    `effective` is False for what is accepted and kept but changes nothing on one node.
    """

    name: str
    doc: str
    kind: Kind
    check: Check
    default: Value
    broker: Setting | None
    effective: bool = True

    @property
    def broker_key(self) -> str:
        """The broker's key for the same thing; "" if it has none."""
        return self.broker.name if self.broker else ""


def _like(name: str, broker_key: str, doc: str = "") -> TopicSetting:
    row = SETTINGS[broker_key]
    return TopicSetting(name, doc or row.doc, row.kind, row.check, row.default, row, row.effective)


_THROTTLED = "Accepted for compatibility: there is no replication to be throttled."

#: Every row by key, in alphabetical order.
TOPIC_SETTINGS: dict[str, TopicSetting] = {
    row.name: row
    for row in (
        _like("cleanup.policy", "log.cleanup.policy"),
        _like("compression.type", "compression.type"),
        _like("delete.retention.ms", "log.cleaner.delete.retention.ms"),
        _like("file.delete.delay.ms", "log.segment.delete.delay.ms"),
        _like("flush.messages", "log.flush.interval.messages"),
        _like("flush.ms", "log.flush.interval.ms"),
        TopicSetting(
            "follower.replication.throttled.replicas",
            _THROTTLED,
            Kind.LIST,
            ANYTHING,
            (),
            None,
            False,
        ),
        _like("index.interval.bytes", "log.index.interval.bytes"),
        TopicSetting(
            "leader.replication.throttled.replicas",
            _THROTTLED,
            Kind.LIST,
            ANYTHING,
            (),
            None,
            False,
        ),
        _like("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        _like("max.message.bytes", "message.max.bytes"),
        _like("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
        _like("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
        _like("message.timestamp.type", "log.message.timestamp.type"),
        _like("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
        _like("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
        _like("min.insync.replicas", "min.insync.replicas"),
        _like("preallocate", "log.preallocate"),
        _like("retention.bytes", "log.retention.bytes"),
        _like("retention.ms", "log.retention.ms"),
        _like("segment.bytes", "log.segment.bytes"),
        _like("segment.index.bytes", "log.index.size.max.bytes"),
        _like(
            "segment.jitter.ms",
            "log.roll.jitter.ms",
            "Up to this much is taken off segment.ms, at random for each segment.",
        ),
        _like("segment.ms", "log.roll.ms"),
        _like("unclean.leader.election.enable", "unclean.leader.election.enable"),
    )
}

#: Of those, the ones that a partition log takes, by the name of its field.
LOG_SETTINGS: dict[str, TopicSetting] = {
    field: TOPIC_SETTINGS[name]
    for name in TOPIC_SETTINGS
    if (field := name.replace(".", "_")) in LogConfig.__dataclass_fields__
}
