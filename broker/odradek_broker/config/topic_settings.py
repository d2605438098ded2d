"""Settings of topics. The default of most topic settings is the value of a broker setting."""

from __future__ import annotations

import re

from odradek_broker.config.broker_settings import SETTINGS
from odradek_broker.config.types import ConfigRow, ConfigType, Setting, Value
from odradek_broker.config.unsupported import NO_EFFECT_SETTINGS
from odradek_broker.storage.log_config import LogConfig
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import ANYTHING, Check


@dataclass(frozen=True, kw_only=True)
class TopicSetting(ConfigRow):
    """A topic setting. `broker`: the broker setting that gives the kind, the check and the default;
    None if no broker setting does."""

    broker: Setting | None = None

    @property
    def broker_key(self) -> str:
        """The key of the broker's setting; "" if there is none."""
        return self.broker.name if self.broker else ""


def _like(name: str, broker_key: str, doc: str = "") -> TopicSetting:
    row = SETTINGS.get(broker_key) or NO_EFFECT_SETTINGS[broker_key]
    return TopicSetting.like(row, name, doc, broker=row, effective=row.effective)


def _unused(name: str, kind: ConfigType, default: Value, check: Check, doc: str) -> TopicSetting:
    doc = f"Accepted for compatibility: {doc}"
    return TopicSetting(name, kind, default, doc, check, effective=False)


_NO_REPLICATION = "there is no replication to be throttled."
_NO_TIERS = "there is no remote storage."
_REPLICAS = re.compile(r"[0-9]+:[0-9]+")
_THROTTLED_REPLICAS = Check(
    "PARTITION:BROKER,..., or *",
    lambda items: items == ("*",) or all(_REPLICAS.fullmatch(item) for item in items),
)

#: The setting that lets share groups name a topic for their dead letters.
DEAD_LETTERS_ALLOWED = "errors.deadletterqueue.group.enable"

#: The setting that makes a topic a mirror topic.
MIRROR_SOURCE = "mirror.source"
_MIRROR_SOURCE = re.compile(r"[^\s:]{1,100}:[A-Za-z0-9_-]{22}")
_MIRROR_SOURCES = Check(
    "CLUSTER_ID:TOPIC_ID of the topic at its source, or empty",
    lambda text: text == "" or bool(_MIRROR_SOURCE.fullmatch(str(text))),
)

#: Every row by key, in alphabetical order.
TOPIC_SETTINGS: dict[str, TopicSetting] = {
    row.name: row
    for row in (
        _like("cleanup.policy", "log.cleanup.policy"),
        _like("compression.gzip.level", "compression.gzip.level"),
        _like("compression.lz4.level", "compression.lz4.level"),
        _like("compression.type", "compression.type"),
        _like("compression.zstd.level", "compression.zstd.level"),
        _like("delete.retention.ms", "log.cleaner.delete.retention.ms"),
        TopicSetting(
            DEAD_LETTERS_ALLOWED,
            ConfigType.BOOLEAN,
            False,
            "true: share groups may write their dead letters to the topic (KIP-1191, in Kafka from"
            " 4.4 on).",
        ),
        _like("file.delete.delay.ms", "log.segment.delete.delay.ms"),
        _like("flush.messages", "log.flush.interval.messages"),
        _like("flush.ms", "log.flush.interval.ms"),
        _unused(
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            (),
            _THROTTLED_REPLICAS,
            _NO_REPLICATION,
        ),
        _like("index.interval.bytes", "log.index.interval.bytes"),
        _unused(
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            (),
            _THROTTLED_REPLICAS,
            _NO_REPLICATION,
        ),
        _like("local.retention.bytes", "log.local.retention.bytes"),
        _like("local.retention.ms", "log.local.retention.ms"),
        _like("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        _like("max.message.bytes", "message.max.bytes"),
        _like("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
        _like("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
        _like("message.timestamp.type", "log.message.timestamp.type"),
        _like("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
        _like("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
        _like("min.insync.replicas", "min.insync.replicas"),
        TopicSetting(
            MIRROR_SOURCE,
            ConfigType.STRING,
            "",
            "The cluster and the id of the topic that this topic mirrors with the same offsets. "
            "`odradek mirror` sets it when it creates the topic, and `odradek mirror promote` "
            "removes it. Until then only the mirror can write records.",
            _MIRROR_SOURCES,
        ),
        _like("preallocate", "log.preallocate"),
        _unused("remote.log.copy.disable", ConfigType.BOOLEAN, False, ANYTHING, _NO_TIERS),
        _unused("remote.log.delete.on.disable", ConfigType.BOOLEAN, False, ANYTHING, _NO_TIERS),
        _unused(
            "remote.storage.enable",
            ConfigType.BOOLEAN,
            False,
            Check("false, because there is no remote storage", lambda enabled: not enabled),
            _NO_TIERS,
        ),
        _like("retention.bytes", "log.retention.bytes"),
        _like("retention.ms", "log.retention.ms"),
        _like("segment.bytes", "log.segment.bytes"),
        _like("segment.index.bytes", "log.index.size.max.bytes"),
        _like(
            "segment.jitter.ms",
            "log.roll.jitter.ms",
            "Maximum time that is subtracted from segment.ms, at random for each segment.",
        ),
        _like("segment.ms", "log.roll.ms"),
        _like("unclean.leader.election.enable", "unclean.leader.election.enable"),
    )
}

#: The settings that a partition log reads, by the names of the fields of `LogConfig`.
LOG_SETTINGS: dict[str, TopicSetting] = {
    field: TOPIC_SETTINGS[name]
    for name in TOPIC_SETTINGS
    if (field := name.replace(".", "_")) in LogConfig.__dataclass_fields__
}
