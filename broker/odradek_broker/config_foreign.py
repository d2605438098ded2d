"""Kafka's settings that this broker does not have, and what is said about them."""

from __future__ import annotations

#: Kafka's keys that mean nothing on one node, or nothing in this program. Accepted in silence, so
#: that a server.properties can be used as it is.
_IGNORED_KEYS = """
    advertised.host.name advertised.port allow.everyone.if.no.acl.found
    alter.config.policy.class.name
    alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds
    auto.include.jmx.reporter auto.leader.rebalance.enable background.threads
    broker.heartbeat.interval.ms broker.id.generation.enable
    broker.session.timeout.ms compression.gzip.level compression.lz4.level compression.zstd.level
    connection.failed.authentication.delay.ms connections.max.reauth.ms
    control.plane.listener.name create.topic.policy.class.name early.start.listeners
    eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests
    group.consumer.regex.refresh.interval.ms
    group.coordinator.append.linger.ms group.coordinator.cached.buffer.max.bytes
    group.coordinator.new.enable group.coordinator.threads host.name
    initial.broker.registration.timeout.ms inter.broker.listener.name
    inter.broker.protocol.version leader.imbalance.check.interval.seconds
    leader.imbalance.per.broker.percentage log.dir.failure.timeout.ms
    log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
    max.connection.creation.rate max.connections.per.ip max.connections.per.ip.overrides
    metric.reporters num.alter.log.dirs.replica.fetchers
    num.io.threads num.network.threads
    num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers
    offsets.commit.required.acks offsets.commit.timeout.ms offsets.load.buffer.size
    principal.builder.class process.roles producer.purgatory.purge.interval.requests
    request.timeout.ms reserved.broker.max.id
    sasl.mechanism.inter.broker.protocol security.inter.broker.protocol security.providers
    server.max.startup.time.ms share.coordinator.state.topic.replication.factor
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes
    telemetry.max.bytes transaction.state.log.load.buffer.size
    unstable.api.versions.enable unstable.feature.versions.enable
"""
IGNORED_KEYS = frozenset(_IGNORED_KEYS.split())

#: Families of such keys.
IGNORED_PREFIXES = (
    "controlled.shutdown.",
    "controller.",
    "delegation.token.",
    "follower.",
    "group.share.",
    "group.streams.",
    "kafka.metrics.",
    "leader.replication.",
    "listener.name.",
    "listener.security.protocol.map",
    "log.cleaner.",
    "metadata.log.",
    "metadata.max.",
    "metrics.",
    "password.encoder.",
    "quota.",
    "remote.log.",
    "replica.",
    "replication.quota.",
    "share.coordinator.",
    "zookeeper.",
)

#: Families of keys that promise protection this broker does not give. Never ignored in silence.
SECURITY_PREFIXES = (
    "authorizer.class.name",
    "sasl.",
    "ssl.",
    "super.users",
)
