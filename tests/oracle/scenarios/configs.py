"""Settings of topics, brokers, groups and client metrics; the data directory.

Settings of the broker itself are only validated (`validate_only`), because all scenarios share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.script import (
    Ask,
    Batch,
    Padded,
    Scenario,
    Step,
    produce_body,
    scenarios_of,
    topic,
)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_TOPIC, _BROKER, _METRICS, _GROUP = 2, 4, 16, 32
#: All settings of topics except two, whose presence depends on Kafka's features.
TOPIC_KEYS = (
    *("cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type"),
    *("compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms", "flush.messages"),
    *("flush.ms", "follower.replication.throttled.replicas", "index.interval.bytes"),
    *("leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms"),
    *("max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms"),
    *("message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio"),
    *("min.compaction.lag.ms", "preallocate", "remote.log.copy.disable"),
    *("remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes", "retention.ms"),
    *("segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms"),
    "unclean.leader.election.enable",
)
#: All dynamic settings of Kafka (DynamicBrokerConfig) that affect our broker, and similar settings
#: that neither broker lets a client change.
DYNAMIC_BROKER_KEYS = (
    *("compression.type", "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size"),
    *("log.cleaner.delete.retention.ms", "log.cleaner.enable", "log.cleaner.io.buffer.load.factor"),
    *("log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second", "log.cleaner.threads"),
    *("log.cleaner.max.compaction.lag.ms", "log.cleaner.min.cleanable.ratio"),
    *("log.cleaner.min.compaction.lag.ms", "log.cleanup.policy", "log.flush.interval.messages"),
    *("log.index.interval.bytes", "log.index.size.max.bytes", "log.message.timestamp.type"),
    *("log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms"),
    *("log.preallocate", "log.retention.bytes", "log.retention.check.interval.ms"),
    *("log.roll.jitter.ms", "log.segment.delete.delay.ms", "max.connection.creation.rate"),
    *("max.connections.per.ip", "max.connections.per.ip.overrides", "message.max.bytes"),
    *("num.replica.fetchers", "producer.id.expiration.ms", "queued.max.requests"),
    "transaction.max.timeout.ms",
    *("transaction.partition.verification.enable", "unclean.leader.election.enable"),
    *("offsets.retention.minutes", "group.max.size", "connections.max.idle.ms"),
)
#: Settings that `kafka-reassign-partitions --throttle` sets, and removes after the move.
_THROTTLES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
#: The documentation contains Java's type names and Kafka's own sentences; our broker has other
#: texts.
_DOCUMENTATION = ("results.*.configs.*.documentation",)

_KERBEROS = (
    *("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"),
    *("sasl.kerberos.principal.to.local.rules", "sasl.kerberos.service.name"),
    *("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
)

Changes = Sequence[tuple[str, int, str | None]]


def _resource(kind: int, name: Any, changes: Changes) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": k, "config_operation": o, "value": v} for k, o, v in changes],
    }


def change_configs(
    *changes: tuple[str, int, str | None],
    kind: int = _TOPIC,
    name: Any = "@t",
    checked_only: bool = False,
    more: Sequence[dict[str, Any]] = (),
) -> Ask:
    resources = [_resource(kind, name, changes), *more]
    return Ask("IncrementalAlterConfigs", {"resources": resources, "validate_only": checked_only})


def replace_configs(
    given: Mapping[str, str | None],
    kind: int = _TOPIC,
    name: Any = "@t",
    checked_only: bool = False,
) -> Ask:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": k, "value": v} for k, v in given.items()],
    }
    return Ask("AlterConfigs", {"resources": [resource], "validate_only": checked_only})


def describe_configs(
    keys: Sequence[str] | None,
    kind: int = _TOPIC,
    name: Any = "@t",
    until: Mapping[str, Any] | None = None,
    synonyms: bool = True,
) -> Ask:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return Ask(
        "DescribeConfigs",
        {"resources": [asked], "include_synonyms": synonyms},
        until=until or {},
        ignore=_DOCUMENTATION,
    )


def _seen(key: str, value: str, **more: Any) -> Ask:
    """Wait until a setting has this value."""
    return describe_configs(
        [key], until={"results.0.configs.0.value": value}, synonyms=False, **more
    )


def _each(changes: Changes, **more: Any) -> list[Step]:
    """Validate each change in a separate request."""
    return [change_configs(change, checked_only=True, **more) for change in changes]


_TOPICS = scenarios_of(
    {
        ("describe-topic", "DescribeConfigs"): [
            *topic(),
            describe_configs(TOPIC_KEYS),
            describe_configs(["no.such"]),
            describe_configs(["retention.ms"] * 2),
        ],
        ("describe-nobody", "DescribeConfigs"): [
            describe_configs(None, name="@unknown"),
            describe_configs(None, name="a b"),
            describe_configs(None, name=""),
            describe_configs(None, _BROKER, "7"),
            describe_configs(None, _BROKER, "x"),
            describe_configs(None, _GROUP, ""),
            describe_configs(None, _METRICS, ""),
            describe_configs(None, 0, "x"),
        ],
        ("describe-broker-keys", "DescribeConfigs", "4"): [
            describe_configs(
                [
                    *("num.partitions", "log.roll.ms"),
                    *("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
                    *("log.flush.interval.ms", "log.flush.scheduler.interval.ms", "log.roll.hours"),
                    *("max.connections", "background.threads", "offsets.topic.num.partitions"),
                    *("log.cleanup.policy", "compression.type", "log.segment.bytes"),
                    *("group.consumer.session.timeout.ms", "log.local.retention.ms"),
                ],
                _BROKER,
                "1",
            ),
            describe_configs(["broker.id", "node.id"], _BROKER, "1", synonyms=False),
        ],
        ("describe-broker-dynamic", "DescribeConfigs", "4"): [
            describe_configs(DYNAMIC_BROKER_KEYS, _BROKER, "1", synonyms=False)
        ],
        ("alter-set", "IncrementalAlterConfigs"): [
            *topic(),
            change_configs(
                ("retention.ms", _SET, " 2000 "), ("cleanup.policy", _SET, "compact , delete")
            ),
            _seen("retention.ms", "2000"),
            describe_configs(["cleanup.policy", "retention.ms", "segment.ms"]),
            change_configs(("retention.ms", _DELETE, "rubbish")),
            _seen("retention.ms", "604800000"),
            change_configs(("retention.ms", _DELETE, None), ("no.such", _DELETE, None)),
        ],
        ("alter-lists-with-empty-parts", "IncrementalAlterConfigs"): [
            *topic(),
            *_each(
                [
                    (key, operation, value)
                    for key in ("cleanup.policy", "leader.replication.throttled.replicas")
                    for operation in (_SET, _APPEND, _SUBTRACT)
                    for value in ("", " ", ",", "delete,", ",delete", "delete,,compact", "0:1, ")
                ]
            ),
        ],
        ("alter-lists", "IncrementalAlterConfigs"): [
            *topic(),
            change_configs(("cleanup.policy", _APPEND, "compact")),
            _seen("cleanup.policy", "delete,compact"),
            change_configs(("cleanup.policy", _APPEND, "compact")),
            change_configs(("cleanup.policy", _APPEND, "")),
            change_configs(("cleanup.policy", _APPEND, "burn")),
            change_configs(("cleanup.policy", _SUBTRACT, "burn")),
            change_configs(("cleanup.policy", _SUBTRACT, "delete")),
            _seen("cleanup.policy", "compact"),
            change_configs(("cleanup.policy", _SUBTRACT, "compact")),
            change_configs(("cleanup.policy", _SET, "delete,delete")),
            _seen("cleanup.policy", "delete"),
            change_configs(("leader.replication.throttled.replicas", _APPEND, "0:1")),
            change_configs(("leader.replication.throttled.replicas", _APPEND, "1:1")),
            _seen("leader.replication.throttled.replicas", "0:1,1:1"),
            change_configs(("retention.ms", _APPEND, "1")),
            change_configs(("retention.ms", _SUBTRACT, "1")),
        ],
        ("alter-bad-values", "IncrementalAlterConfigs", "1"): [
            *topic(),
            *_each(
                [
                    *(("retention.ms", _SET, v) for v in ("x", "", None, "-2", "1_0", "9" * 20)),
                    *(("retention.bytes", _SET, v) for v in ("-2", "1e3")),
                    *(("cleanup.policy", _SET, v) for v in ("", "burn", "Delete", "none")),
                    *(("compression.type", _SET, v) for v in ("ZSTD", "none", "uncompressed")),
                    *(("compression.gzip.level", _SET, v) for v in ("0", "-1", "9", "10")),
                    *(("compression.lz4.level", _SET, v) for v in ("0", "17", "18")),
                    *(("compression.zstd.level", _SET, v) for v in ("22", "23", "-131073")),
                    *(("local.retention.ms", _SET, v) for v in ("-2", "-3")),
                    *(("remote.storage.enable", _SET, v) for v in ("true", "false", "x")),
                    *(("min.cleanable.dirty.ratio", _SET, v) for v in ("1", "1.5", "x")),
                    *(("preallocate", _SET, v) for v in ("TRUE", "yes")),
                    *(("max.message.bytes", _SET, v) for v in ("0", "-1", "2147483648")),
                    *(("leader.replication.throttled.replicas", _SET, v) for v in ("x", "*")),
                    *(("segment.ms", _SET, "0"), ("segment.index.bytes", _SET, "3")),
                    *(("message.format.version", _SET, "3.0"), ("no.such", _SET, "1")),
                ]
            ),
            change_configs(
                ("min.compaction.lag.ms", _SET, "9"), ("max.compaction.lag.ms", _SET, "5")
            ),
            change_configs(("retention.ms", _SET, "5"), ("segment.ms", _SET, "x")),
            describe_configs(["retention.ms", "segment.ms"]),
        ],
        ("alter-odd", "IncrementalAlterConfigs"): [
            *topic(),
            change_configs(),
            Ask("IncrementalAlterConfigs", {"resources": []}),
            change_configs(("retention.ms", _SET, "1"), ("retention.ms", _SET, "2")),
            change_configs(
                ("retention.ms", _SET, "1"),
                more=[_resource(_TOPIC, "@t", [("segment.ms", _SET, "5")])],
            ),
            change_configs(("retention.ms", _SET, "1"), name="@unknown"),
            change_configs(("retention.ms", _SET, "1"), name="a b"),
            change_configs(("retention.ms", _SET, "1"), name=""),
            change_configs(("retention.ms", _SET, "1"), kind=0),
            change_configs(("retention.ms", _SET, "1"), kind=64),
            describe_configs(["retention.ms"]),
        ],
        ("alter-unknown-operation", "IncrementalAlterConfigs", "1"): [
            *topic(),
            change_configs(("retention.ms", 9, "1")),
        ],
        ("alter-to-small-segments", "IncrementalAlterConfigs", "1"): [
            *topic(),
            *_each([("segment.bytes", _SET, v) for v in ("1048576", "1048575", "1000000", "13")]),
        ],
        ("replace-all", "AlterConfigs"): [
            *topic(configs={"cleanup.policy": "compact"}),
            replace_configs({"retention.ms": "1000", "segment.ms": "5000"}),
            _seen("segment.ms", "5000"),
            describe_configs(["cleanup.policy", "retention.ms", "segment.ms"]),
            replace_configs({"segment.ms": "6000"}),
            _seen("segment.ms", "6000"),
            describe_configs(["cleanup.policy", "retention.ms", "segment.ms"]),
            replace_configs({"segment.ms": None}),
            replace_configs({"segment.ms": "x"}),
            replace_configs({"no.such": "1"}),
            replace_configs({"segment.ms": "7000"}, checked_only=True),
            replace_configs({"segment.ms": "7000"}, name="@unknown"),
            replace_configs({}, name="@unknown"),
            replace_configs({"a": "1"}, kind=0),
            _seen("segment.ms", "6000"),
            replace_configs({}),
            _seen("segment.ms", "604800000"),
        ],
    }
)

_OTHERS = scenarios_of(
    {
        ("alter-broker", "IncrementalAlterConfigs", "1"): [
            *_each(
                [
                    *(("log.retention.ms", _SET, v) for v in ("1000", "x", None)),
                    *(("log.retention.hours", _SET, "5"), ("log.roll.hours", _SET, "5")),
                    *(("num.io.threads", _SET, v) for v in ("8", "x", "0")),
                    *(("num.network.threads", _SET, "3"), ("background.threads", _SET, "10")),
                    *(("max.connections", _SET, v) for v in ("1000", "x")),
                    *(("message.max.bytes", _SET, v) for v in ("1000000", "-1")),
                    *(("compression.gzip.level", _SET, v) for v in ("5", "10")),
                    *(("log.cleaner.threads", _SET, "1"), ("log.local.retention.ms", _SET, "-2")),
                    *(("num.partitions", _SET, "4"), ("auto.create.topics.enable", _SET, "true")),
                    *(("node.id", _SET, "5"), ("log.dirs", _SET, "/x"), ("broker.id", _SET, "5")),
                    *(("advertised.listeners", _SET, "PLAINTEXT://127.0.0.1:1"),),
                    *(("ssl.keystore.location", _SET, "/x"), ("log.cleaner.enable", _SET, "true")),
                    *(("num.partitions", _DELETE, None), ("no.such", _DELETE, None)),
                    *(("log.cleanup.policy", _APPEND, "compact"),),
                    *(("log.retention.ms", _APPEND, "1"), ("log.retention.ms", 9, "1")),
                    *(("queued.max.requests", _APPEND, "1"), ("node.id", _SUBTRACT, "1")),
                    *(("no.such", _APPEND, "1"), ("listeners", _SUBTRACT, "a")),
                    *(("leader.replication.throttled.rate", _SET, "1000"),),
                    *(("transaction.partition.verification.enable", _SET, "true"),),
                ],
                kind=_BROKER,
                name="1",
            ),
            change_configs(
                ("log.retention.ms", _SET, "1"), kind=_BROKER, name="7", checked_only=True
            ),
            change_configs(
                ("log.retention.ms", _SET, "1"), kind=_BROKER, name="x", checked_only=True
            ),
            change_configs(kind=_BROKER, name="7", checked_only=True),
        ],
        ("alter-broker-while-it-runs", "IncrementalAlterConfigs", "1"): [
            *_each(
                [
                    *(("producer.id.expiration.ms", _SET, v) for v in ("60000", "0", "x", None)),
                    *(("log.retention.bytes", _SET, v) for v in ("-1", "1000", "-2")),
                    *(("log.segment.bytes", _SET, v) for v in ("1048576", "-1")),
                    *(("log.roll.ms", _SET, v) for v in ("1", "0")),
                    *(("log.segment.delete.delay.ms", _SET, v) for v in ("0", "-1")),
                    *(("log.cleaner.backoff.ms", _SET, v) for v in ("0", "-1")),
                    *(("log.cleaner.dedupe.buffer.size", _SET, v) for v in ("1048577", "1048576")),
                    *(("log.cleaner.dedupe.buffer.size", _SET, v) for v in ("0", "-1")),
                    *(("log.cleaner.io.buffer.load.factor", _SET, v) for v in ("0.5", "2", "-1")),
                    *(("log.cleaner.io.buffer.size", _SET, v) for v in ("1000", "-1")),
                    *(("log.cleaner.io.max.bytes.per.second", _SET, v) for v in ("1", "0")),
                    *(("log.cleaner.min.cleanable.ratio", _SET, v) for v in ("0", "1", "1.1")),
                    *(("log.cleaner.min.compaction.lag.ms", _SET, v) for v in ("0", "-1")),
                    *(("log.cleaner.max.compaction.lag.ms", _SET, v) for v in ("1", "0")),
                    *(("log.cleaner.delete.retention.ms", _SET, v) for v in ("0", "-1")),
                    *(("log.cleaner.threads", _SET, v) for v in ("2", "3", "0")),
                    *(("num.io.threads", _SET, v) for v in ("16", "17", "4", "3")),
                    *(("num.recovery.threads.per.data.dir", _SET, v) for v in ("4", "5", "0")),
                    *(("num.replica.fetchers", _SET, v) for v in ("2", "3", "0")),
                    *(("max.connections.per.ip", _SET, v) for v in ("0", "-1")),
                    *(("max.connections.per.ip.overrides", _SET, v) for v in ("127.0.0.1:5", "x")),
                    *(("max.connection.creation.rate", _SET, v) for v in ("1", "0")),
                    *(("min.insync.replicas", _SET, v) for v in ("1", "0")),
                    *(("unclean.leader.election.enable", _SET, v) for v in ("true", "x")),
                ],
                kind=_BROKER,
                name="",
            ),
        ],
        ("alter-connections-by-address", "IncrementalAlterConfigs", "1"): _each(
            [
                ("max.connections.per.ip.overrides", _SET, value)
                for value in (
                    *("192.0.2.1:1,2001:db8::1:0", " 192.0.2.1 : 1 , ::1:2", "", "192.0.2.1"),
                    *(
                        "192.0.2.1:x",
                        "192.0.2.1:2147483648",
                        "192.0.2.1:1,x",
                        "a b:1",
                        "192.0.2.1:",
                    ),
                    *("0:1", "127.1:1", "localhost:1", "256.0.0.1:1", "no-such-host.invalid:1"),
                    *(":1", "192.0.2.1:-1", "[::1]:1", "192.0.2.1:+1", "192.0.2.1:1_0"),
                    *("192.0.2.1:\u0661", "fe80::1%1:1", "192.0.2.1:1,", ",192.0.2.1:1"),
                )
            ],
            kind=_BROKER,
            name="",
        ),
        ("alter-buffers-of-coordinators", "IncrementalAlterConfigs", "1"): [
            *_each(
                [
                    (f"{coordinator}.coordinator.cached.buffer.max.bytes", _SET, value)
                    for coordinator in ("group", "share")
                    for value in ("524288", "524287", "2147483647", "x")
                ],
                kind=_BROKER,
                name="",
            ),
            *_each(
                [
                    ("share.coordinator.snapshot.update.records.per.snapshot", _SET, "100"),
                    ("share.coordinator.state.topic.prune.interval.ms", _SET, "1000"),
                    ("share.coordinator.write.timeout.ms", _SET, "1000"),
                    ("share.coordinator.threads", _SET, "2"),
                    ("share.coordinator.append.linger.ms", _SET, "-1"),
                ],
                kind=_BROKER,
                name="",
            ),
        ],
        ("throttles-of-replicas", "IncrementalAlterConfigs", "1"): [
            describe_configs(_THROTTLES, _BROKER, "1"),
            describe_configs(_THROTTLES, _BROKER, ""),
            change_configs(*((key, _SET, "1000") for key in _THROTTLES), kind=_BROKER, name="1"),
            _seen(_THROTTLES[0], "1000", kind=_BROKER, name="1"),
            describe_configs(_THROTTLES, _BROKER, "1"),
            change_configs(*((key, _DELETE, None) for key in _THROTTLES), kind=_BROKER, name="1"),
        ],
        ("min-insync-replicas", "IncrementalAlterConfigs", "1"): [
            *topic(),
            describe_configs(["min.insync.replicas"]),
            change_configs(("min.insync.replicas", _SET, "2")),
            _seen("min.insync.replicas", "2"),
            describe_configs(["min.insync.replicas"]),
            change_configs(("min.insync.replicas", _DELETE, None)),
            _seen("min.insync.replicas", "1"),
            describe_configs(["min.insync.replicas"], _BROKER, ""),
            describe_configs(["min.insync.replicas"], _BROKER, "1"),
            *(
                step
                for name in ("", "1")
                for step in _each(
                    [
                        *(("min.insync.replicas", _SET, v) for v in ("1", "2", "0", "x", None)),
                        ("min.insync.replicas", _DELETE, None),
                        ("min.insync.replicas", _APPEND, "1"),
                    ],
                    kind=_BROKER,
                    name=name,
                )
            ),
            *(
                replace_configs(given, kind=_BROKER, name=name, checked_only=True)
                for name in ("", "1")
                for given in (
                    {},
                    {"log.cleaner.threads": "1"},
                    {"min.insync.replicas": "1"},
                    {"min.insync.replicas": "2", "log.cleaner.threads": "1"},
                )
            ),
        ],
        ("alter-listener", "IncrementalAlterConfigs", "1"): [
            *_each(
                [
                    ("listener.name.plaintext.ssl.keystore.location", _SET, "/x"),
                    ("listener.name.plaintext.ssl.keystore.key", _SET, "x"),
                    ("listener.name.plaintext.max.connections", _SET, "1000"),
                    ("listener.name.plaintext.max.connections", _SET, "x"),
                    ("listener.name.plaintext.max.connection.creation.rate", _SET, "1000"),
                    ("listener.name.other.max.connections", _SET, "1000"),
                    ("ssl.truststore.location", _SET, "/x"),
                    ("ssl.keystore.password", _SET, "x"),
                ],
                kind=_BROKER,
                name="1",
            ),
            *_each(
                [
                    ("listener.name.plaintext.ssl.keystore.location", _SET, "/x"),
                    ("listener.name.plaintext.max.connections", _SET, "1000"),
                    ("ssl.keystore.location", _SET, "/x"),
                ],
                kind=_BROKER,
                name="",
            ),
        ],
        ("alter-unknown-broker-key", "IncrementalAlterConfigs", "1"): [
            change_configs(("no.such", _SET, "1"), kind=_BROKER, name="1", checked_only=True)
        ],
        ("describe-kerberos", "DescribeConfigs"): [
            describe_configs(_KERBEROS, _BROKER, "1"),
            describe_configs(_KERBEROS, _BROKER, ""),
        ],
        ("alter-kerberos", "IncrementalAlterConfigs"): [
            change_configs((key, operation, value), kind=_BROKER, name=name, checked_only=True)
            for name in ("1", "")
            for key, operation, value in (
                ("sasl.kerberos.service.name", _SET, "kafka"),
                ("sasl.kerberos.kinit.cmd", _SET, "/bin/kinit"),
                ("sasl.kerberos.min.time.before.relogin", _SET, "60001"),
                ("sasl.kerberos.min.time.before.relogin", _SET, "-1"),
                ("sasl.kerberos.min.time.before.relogin", _SET, "x"),
                ("sasl.kerberos.min.time.before.relogin", _DELETE, None),
                ("sasl.kerberos.ticket.renew.jitter", _SET, "0.06"),
                ("sasl.kerberos.ticket.renew.jitter", _SET, "x"),
                ("sasl.kerberos.ticket.renew.window.factor", _SET, "-1"),
                ("sasl.kerberos.principal.to.local.rules", _SET, "DEFAULT"),
                ("sasl.kerberos.principal.to.local.rules", _APPEND, "DEFAULT"),
            )
        ],
        ("alter-group", "IncrementalAlterConfigs"): [
            describe_configs(None, _GROUP, "@g"),
            change_configs(
                ("consumer.session.timeout.ms", _SET, "50000"),
                ("consumer.heartbeat.interval.ms", _SET, "6000"),
                kind=_GROUP,
                name="@g",
            ),
            _seen("consumer.session.timeout.ms", "50000", kind=_GROUP, name="@g"),
            describe_configs(None, _GROUP, "@g"),
            *_each(
                [
                    *(("consumer.session.timeout.ms", _SET, v) for v in ("44999", "60001", "x")),
                    *(("consumer.heartbeat.interval.ms", _SET, v) for v in ("4999", "15001")),
                    *(("consumer.assignment.interval.ms", _SET, v) for v in ("0", "15001")),
                    *(("share.session.timeout.ms", _SET, v) for v in ("45000", "1")),
                    *(("share.isolation.level", _SET, v) for v in ("read_committed", "none")),
                    *(("share.auto.offset.reset", _SET, v) for v in ("by_duration:PT1H", "never")),
                    *(("share.delivery.count.limit", _SET, v) for v in ("2", "11")),
                    *(("share.partition.max.record.locks", _SET, v) for v in ("100", "99")),
                    *(("share.record.lock.duration.ms", _SET, v) for v in ("15000", "1")),
                    *(("share.renew.acknowledge.enable", _SET, "false"), ("no.such", _SET, "1")),
                    *(("streams.num.standby.replicas", _SET, v) for v in ("2", "3")),
                    *(("streams.session.timeout.ms", _SET, v) for v in ("45000", "1")),
                    *(("streams.initial.rebalance.delay.ms", _SET, "0"),),
                    *(("consumer.session.timeout.ms", _APPEND, "1"), ("no.such", _DELETE, None)),
                ],
                kind=_GROUP,
                name="@g",
            ),
            change_configs(("consumer.session.timeout.ms", _SET, "50000"), kind=_GROUP, name=""),
            replace_configs({"consumer.heartbeat.interval.ms": "7000"}, _GROUP, "@g"),
            _seen("consumer.heartbeat.interval.ms", "7000", kind=_GROUP, name="@g"),
            describe_configs(["consumer.session.timeout.ms"], _GROUP, "@g"),
            replace_configs({}, _GROUP, "@g"),
        ],
        ("alter-share-group", "IncrementalAlterConfigs"): _each(
            [
                *(("share.session.timeout.ms", _SET, v) for v in ("44999", "60001", "60000", "x")),
                *(("share.heartbeat.interval.ms", _SET, v) for v in ("4999", "15001", "15000")),
                *(
                    ("share.assignment.interval.ms", _SET, v)
                    for v in ("-1", "15001", "15000", "0", "")
                ),
                ("share.session.timeout.ms", _DELETE, None),
                ("share.heartbeat.interval.ms", _DELETE, None),
                ("share.assignment.interval.ms", _DELETE, None),
                ("share.session.timeout.ms", _APPEND, "1"),
                ("share.assignor.offload.enable", _SET, "true"),
            ],
            kind=_GROUP,
            name="@g",
        ),
        ("alter-client-metrics", "IncrementalAlterConfigs"): [
            describe_configs(None, _METRICS, "@s"),
            change_configs(
                ("interval.ms", _SET, "1000"),
                ("metrics", _SET, "org.apache.kafka.consumer."),
                ("match", _SET, "client_id=a.*,client_software_name=b"),
                kind=_METRICS,
                name="@s",
            ),
            _seen("interval.ms", "1000", kind=_METRICS, name="@s"),
            describe_configs(None, _METRICS, "@s"),
            *_each(
                [
                    *(("interval.ms", _SET, v) for v in ("99", "100", "3600000", "3600001", "x")),
                    *(("match", _SET, v) for v in ("", "bad", "color=red", "client_id=[")),
                    *(("match", _SET, v) for v in ("client_id=", "=a", "client_id=a=b", "a", "=")),
                    ("match", _SET, "client_id=a,client_id=b"),
                    ("match", _SET, "client_id=a,client_id=a"),
                    ("match", _SET, " client_id = a , client_source_port = 1 "),
                    *(
                        ("metrics", _SET, ""),
                        ("metrics", _SET, "*"),
                        ("metrics", _SET, "a,a"),
                        ("metrics", _SET, "a,,b"),
                        ("metrics", _APPEND, "a"),
                    ),
                    *(("no.such", _SET, "1"), ("no.such", _DELETE, None)),
                ],
                kind=_METRICS,
                name="@s",
            ),
            change_configs(("interval.ms", _SET, "1000"), kind=_METRICS, name=""),
            change_configs(
                ("interval.ms", _DELETE, None),
                ("metrics", _DELETE, None),
                ("match", _DELETE, None),
                kind=_METRICS,
                name="@s",
            ),
            _seen("interval.ms", "300000", kind=_METRICS, name="@s"),
        ],
        ("alter-client-metrics-to-a-java-pattern", "IncrementalAlterConfigs", "1"): _each(
            [("match", _SET, "client_id=(a)\\1")], kind=_METRICS, name="@s"
        ),
    }
)

#: The path and the size of the volume differ between machines.
_VOLUME = ("results.*.log_dir", "results.*.total_bytes", "results.*.usable_bytes")


def _directories(*topics: tuple[str, Sequence[int]]) -> Ask:
    asked = [{"topic": name, "partitions": list(partitions)} for name, partitions in topics]
    return Ask("DescribeLogDirs", {"topics": asked}, ignore=_VOLUME)


_DIRECTORIES = [
    Scenario(
        "log-dirs",
        "DescribeLogDirs",
        [
            *topic("@t", 2),
            _directories(("@t", [0, 1])),
            Ask("Produce", produce_body(Batch(["a", "b"])), quiet=True),
            _directories(("@t", [0])),
            _directories(("@t", [1, 1, 0]), ("@t", [0])),
            _directories(("@t", [7, -1]), ("@unknown", [0]), ("__cluster_metadata", [0])),
            _directories(("@t", [])),
            _directories(),
        ],
    ),
]


def _moved(path: str, name: Any = "@t", *partitions: int) -> Ask:
    topics = [{"name": name, "partitions": list(partitions or (0,))}]
    return Ask("AlterReplicaLogDirs", {"dirs": [{"path": path, "topics": topics}]})


_MOVES = [
    Scenario(
        "alter-log-dirs",
        "AlterReplicaLogDirs",
        [
            *topic("@t", 2),
            Ask("DescribeLogDirs", {"topics": []}, quiet=True, save={"dir": "results.0.log_dir"}),
            _moved("$dir"),
            _moved("$dir", "@t", 1, 1),
            _moved("/no/such/directory"),
            _moved("", "@t", 0, 1),
            _moved(".", "@unknown"),
            _moved("$dir", "@unknown"),
            _moved("$dir", "@t", 7),
            _moved("$dir", "@t", -1),
            _moved("$dir", "__cluster_metadata"),
            _moved("$dir", ""),
            *(_moved("$dir", Padded("@long", length)) for length in (213, 214, 249)),
            _moved("/no/such/directory", Padded("@long", 249)),
            Ask("AlterReplicaLogDirs", {"dirs": []}),
            Ask("AlterReplicaLogDirs", {"dirs": [{"path": "$dir", "topics": []}]}),
            Ask(
                "AlterReplicaLogDirs",
                {
                    "dirs": [
                        {"path": path, "topics": [{"name": "@t", "partitions": [0]}]}
                        for path in ("$dir", "/no/such/directory")
                    ]
                },
            ),
        ],
    ),
]

SCENARIOS = [*_MOVES, *_TOPICS, *_OTHERS, *_DIRECTORIES]
