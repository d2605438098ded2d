"""Kafka's keys that this broker accepts without effect, ignores, or warns of."""

from __future__ import annotations

from odradek_broker.config.types import ConfigType, Setting, Value
from odradek_protocol.settings import ANYTHING, INT64_MAX, Check, at_least, between

_NO_EFFECT = "Accepted for compatibility: it has no effect on this broker."


def _setting(name: str, kind: ConfigType, default: Value, check: Check = ANYTHING) -> Setting:
    return Setting(name, kind, default, _NO_EFFECT, check, dynamic=True, effective=False)


_POSITIVE = at_least(1)
_NOT_NEGATIVE = at_least(0)
_BUFFER = at_least(524_288)

#: Kafka's dynamic settings that have no effect in this broker. The broker checks, stores and shows
#: these settings, so that tools which set them work.
NO_EFFECT_SETTINGS: dict[str, Setting] = {
    row.name: row
    for row in (
        _setting("background.threads", ConfigType.INT, 10, _POSITIVE),
        _setting(
            "compression.gzip.level",
            ConfigType.INT,
            -1,
            Check("between 1 and 9, or -1", lambda level: level == -1 or 1 <= level <= 9),
        ),
        _setting("compression.lz4.level", ConfigType.INT, 9, between(1, 17)),
        _setting("compression.zstd.level", ConfigType.INT, 3, between(-131_072, 22)),
        _setting("follower.fetch.last.tiered.offset.enable", ConfigType.BOOLEAN, False),
        _setting("follower.replication.throttled.rate", ConfigType.LONG, INT64_MAX, _NOT_NEGATIVE),
        _setting("group.coordinator.cached.buffer.max.bytes", ConfigType.INT, 1_048_588, _BUFFER),
        _setting("leader.replication.throttled.rate", ConfigType.LONG, INT64_MAX, _NOT_NEGATIVE),
        _setting("log.cleaner.io.buffer.size", ConfigType.INT, 524_288, _NOT_NEGATIVE),
        _setting("log.cleaner.threads", ConfigType.INT, 1, _NOT_NEGATIVE),
        _setting("log.local.retention.bytes", ConfigType.LONG, -2, at_least(-2)),
        _setting("log.local.retention.ms", ConfigType.LONG, -2, at_least(-2)),
        _setting("num.io.threads", ConfigType.INT, 8, _POSITIVE),
        _setting("num.network.threads", ConfigType.INT, 3, _POSITIVE),
        _setting("num.recovery.threads.per.data.dir", ConfigType.INT, 2, _POSITIVE),
        _setting("num.replica.fetchers", ConfigType.INT, 1),
        _setting("remote.fetch.max.wait.ms", ConfigType.INT, 500, _POSITIVE),
        _setting("remote.list.offsets.request.timeout.ms", ConfigType.LONG, 30_000, _POSITIVE),
        _setting(
            "remote.log.index.file.cache.total.size.bytes",
            ConfigType.LONG,
            1_073_741_824,
            _POSITIVE,
        ),
        _setting("remote.log.manager.copier.thread.pool.size", ConfigType.INT, 10, _POSITIVE),
        _setting(
            "remote.log.manager.copy.max.bytes.per.second", ConfigType.LONG, INT64_MAX, _POSITIVE
        ),
        _setting("remote.log.manager.expiration.thread.pool.size", ConfigType.INT, 10, _POSITIVE),
        _setting(
            "remote.log.manager.fetch.max.bytes.per.second", ConfigType.LONG, INT64_MAX, _POSITIVE
        ),
        _setting("remote.log.manager.follower.thread.pool.size", ConfigType.INT, 2, _POSITIVE),
        _setting("remote.log.reader.threads", ConfigType.INT, 10, _POSITIVE),
        _setting(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            ConfigType.LONG,
            INT64_MAX,
            _NOT_NEGATIVE,
        ),
        _setting("sasl.kerberos.kinit.cmd", ConfigType.STRING, "/usr/bin/kinit"),
        _setting("sasl.kerberos.min.time.before.relogin", ConfigType.LONG, 60_000),
        _setting("sasl.kerberos.principal.to.local.rules", ConfigType.LIST, ("DEFAULT",)),
        _setting("sasl.kerberos.service.name", ConfigType.STRING, ""),
        _setting("sasl.kerberos.ticket.renew.jitter", ConfigType.DOUBLE, 0.05),
        _setting("sasl.kerberos.ticket.renew.window.factor", ConfigType.DOUBLE, 0.8),
        _setting("share.coordinator.cached.buffer.max.bytes", ConfigType.INT, 1_048_588, _BUFFER),
    )
}

#: Unsupported settings that Kafka shows only if they are set.
DYNAMIC_ONLY = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)

#: Settings that are null in Kafka unless they are set.
WITHOUT_DEFAULT = DYNAMIC_ONLY | {"sasl.kerberos.service.name"}

#: Kafka's keys that have no meaning on a single node or in this program. Such keys are ignored
#: without a warning, so that Kafka's server.properties can be used unchanged.
_IGNORED_KEYS = """
    advertised.host.name advertised.port
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds auto.include.jmx.reporter
    auto.leader.rebalance.enable broker.heartbeat.interval.ms broker.id.generation.enable
    broker.session.timeout.ms control.plane.listener.name create.topic.policy.class.name
    early.start.listeners eligible.leader.replicas.enable
    fetch.purgatory.purge.interval.requests group.consumer.regex.refresh.interval.ms
    group.coordinator.append.linger.ms group.coordinator.new.enable group.coordinator.threads
    host.name initial.broker.registration.timeout.ms
    inter.broker.protocol.version leader.imbalance.check.interval.seconds
    leader.imbalance.per.broker.percentage log.dir.failure.timeout.ms
    log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
    metric.reporters num.alter.log.dirs.replica.fetchers num.replica.alter.log.dirs.threads
    offsets.commit.required.acks offsets.commit.timeout.ms offsets.load.buffer.size
    principal.builder.class producer.purgatory.purge.interval.requests
    request.timeout.ms reserved.broker.max.id
    security.providers server.max.startup.time.ms
    share.coordinator.append.linger.ms share.coordinator.load.buffer.size share.coordinator.threads
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    socket.listen.backlog.size socket.receive.buffer.bytes
    socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes
    ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm transaction.state.log.load.buffer.size
    unstable.api.versions.enable unstable.feature.versions.enable
"""
IGNORED_KEYS = frozenset(_IGNORED_KEYS.split())

#: Prefixes of keys that are ignored without a warning.
IGNORED_PREFIXES = (
    "controlled.shutdown.",
    "controller.",
    "follower.",
    "group.share.",
    "group.streams.",
    "kafka.metrics.",
    "leader.replication.",
    "listener.name.",
    "log.cleaner.",
    "metadata.log.",
    "metadata.max.",
    "metrics.",
    "password.encoder.",
    "remote.log.",
    "replica.",
    "replication.quota.",
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.oauthbearer.",
    "zookeeper.",
)

#: Keys whose lack of effect might surprise a user, with the texts of the warnings.
UNSUPPORTED_KEYS = {
    "sasl.client.callback.handler.class": "classes of Java cannot run here",
    "ssl.engine.factory.class": "classes of Java cannot run here",
    "client.quota.callback.class": (
        "quotas are those that are set for users, client ids and addresses (odradek quota)"
    ),
}
