"""The broker's settings: one row each.

The rows are fields of a frozen dataclass: the type checker compares each use of a setting with its
declaration. A field's name is Kafka's key with underscores. `docs/operate/configuration.md`,
DescribeConfigs and validation all read these rows.

Defaults are Kafka's, except where a row says why not.
"""

from __future__ import annotations

from odradek_broker.config.addresses import COUNTS_BY_ADDRESS
from odradek_broker.config.authorizer_settings import AuthorizerSettings
from odradek_broker.config.listener_settings import ListenerSettings
from odradek_broker.config.sasl_settings import BrokerSaslSettings
from odradek_broker.config.share_group_settings import ShareGroupSettings
from odradek_broker.config.share_settings import ShareSettings
from odradek_broker.config.streams_group_settings import StreamsGroupSettings
from odradek_broker.config.transaction_settings import TransactionSettings
from odradek_broker.config.types import ConfigType, Setting, Synonym, setting
from odradek_broker.emulation.profiles import PROFILES
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import INT32_MAX, INT64_MAX, any_of, at_least, between, one_of

_MINUTES = 60_000
_HOURS = 3_600_000
_DAYS = 24 * _HOURS

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(
    AuthorizerSettings,
    ShareGroupSettings,
    ShareSettings,
    StreamsGroupSettings,
    TransactionSettings,
    BrokerSaslSettings,
    ListenerSettings,
):
    """Every setting, parsed and typed."""

    # --- Identity, addresses, directories ---

    node_id: int = setting(
        ConfigType.INT,
        1,
        "The id of this node; it must not change once the data directory exists.",
        at_least(0),
        synonyms=(Synonym("broker.id"),),
    )
    cluster_id: str = setting(
        ConfigType.STRING,
        "",
        "The id of the cluster; empty: the first start generates one and stores it.",
        ours=True,
    )
    odradek_emulate: str = setting(
        ConfigType.STRING,
        "",
        "For tests: the broker whose API versions, features and limits this one emulates; "
        "empty: none.",
        one_of("", *PROFILES),
        ours=True,
    )
    broker_rack: str = setting(
        ConfigType.STRING,
        "",
        "The rack of this broker, which clients get with the metadata; empty: none.",
    )
    log_dirs: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("odradek-data",),
        "The data directories. A partition is stored in one of them; a new partition is "
        "created in the directory with the fewest partitions.",
        synonyms=(Synonym("log.dir"),),
    )
    metadata_log_dir: str = setting(
        ConfigType.STRING,
        "",
        "The directory of the metadata log, which the broker needs to run; empty: the first of "
        "log.dirs.",
    )
    http_listen: str = setting(
        ConfigType.STRING,
        "",
        "HOST:PORT of the HTTP endpoint with /metrics, /healthz and /readyz; empty: none. An "
        "address that other machines can reach needs http.security.protocol=SSL and http.token "
        "(or insecure.listeners).",
        ours=True,
    )
    http_security_protocol: str = setting(
        ConfigType.STRING,
        "PLAINTEXT",
        "The protocol of the HTTP endpoint: PLAINTEXT, or SSL with the certificate of "
        "ssl.keystore.* or listener.name.http.ssl.keystore.*.",
        one_of("PLAINTEXT", "SSL"),
        ours=True,
    )
    http_token: str = setting(
        ConfigType.PASSWORD,
        "",
        "The token that requests to the HTTP endpoint must have, as `Authorization: Bearer "
        "TOKEN`. Requests without it are refused, except that /healthz and /readyz answer with "
        "a status alone. Empty: no token is needed.",
        ours=True,
        secret=True,
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        ConfigType.LIST,
        (),
        "Further host names by which the HTTP endpoint may be asked, without ports: broker.example. "
        "It always answers to IP addresses, localhost, this machine's name, the hosts of "
        "http.listen and advertised.listeners, and requests with http.token. Other names are "
        "refused, because any web site could point its name at this machine.",
        ours=True,
    )
    metrics_internal_topics_enable: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "true: /metrics also has each partition of internal topics (such as "
        "__consumer_offsets); false: it has such a partition only while the partition is "
        "offline.",
        dynamic=True,
        ours=True,
    )
    log_format: str = setting(
        ConfigType.STRING,
        "auto",
        "The format of log lines: console for people, json for machines, auto: console on a "
        "terminal, otherwise json.",
        one_of("auto", "console", "json"),
        ours=True,
    )
    log_level: str = setting(
        ConfigType.STRING,
        "info",
        "The lowest level of log lines that are written.",
        one_of("debug", "info", "warning", "error"),
        ours=True,
    )

    # --- Topics ---

    num_partitions: int = setting(
        ConfigType.INT,
        1,
        "Number of partitions of a topic that is created without a number.",
        at_least(1),
    )
    default_replication_factor: int = setting(
        ConfigType.INT,
        1,
        "Replication factor of a topic that is created without a replication factor.",
        between(1, 32767),
    )
    replication_factor_policy: str = setting(
        ConfigType.STRING,
        "reject",
        "Treatment of a replication factor above 1: reject it, as Kafka does with too few "
        "brokers, or accept it, keep one copy and report it.",
        one_of("reject", "accept"),
        ours=True,
    )
    auto_create_topics_enable: bool = setting(
        ConfigType.BOOLEAN, True, "Create an unknown topic when a client requests its metadata."
    )
    delete_topic_enable: bool = setting(ConfigType.BOOLEAN, True, "Allow topics to be deleted.")
    max_partitions: int = setting(
        ConfigType.INT,
        20_000,
        "Maximum number of partitions of this broker.",
        between(1, 1_000_000),
        ours=True,
    )
    min_insync_replicas: int = setting(
        ConfigType.INT,
        1,
        "Accepted for compatibility. There is one replica, and it is always in sync.",
        at_least(1),
        dynamic=True,
        effective=False,
    )
    unclean_leader_election_enable: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "Accepted for compatibility. There is one replica, so no election can be unclean.",
        dynamic=True,
        effective=False,
    )

    # --- Partition logs ---

    log_journal_max_bytes: int = setting(
        ConfigType.LONG,
        128 * 1024 * 1024,
        "Maximum size of the commit journal, a file in each data directory that makes small "
        "appends of all partitions durable at once; 0: there is no journal, and the files of "
        "each partition are synced.",
        between(0, 4 * 1024**3),
        ours=True,
    )
    log_durability: str = setting(
        ConfigType.STRING,
        "fsync",
        "What an acknowledgement guarantees. fsync: the records are on disk. page-cache, as in "
        "Kafka by default: the records survive a crash of the process, but not of the machine.",
        one_of("fsync", "page-cache"),
        ours=True,
    )
    record_validation: str = setting(
        ConfigType.STRING,
        "full",
        "The checks of a produced batch: full (every record, as Kafka does) or header (length, "
        "CRC, counts). With header, a batch whose header does not match its records is stored, "
        "and every reader of the partition stops at it.",
        one_of("header", "full"),
        ours=True,
    )
    message_max_bytes: int = setting(
        ConfigType.INT,
        1_048_588,
        "Maximum size of a batch as it is sent, that is, after compression.",
        at_least(0),
        dynamic=True,
    )
    compression_type: str = setting(
        ConfigType.STRING,
        "producer",
        "Compression type of stored batches; producer: the compression that the producer has "
        "chosen.",
        one_of(*COMPRESSION_TYPES),
        dynamic=True,
    )
    log_segment_bytes: int = setting(
        ConfigType.INT,
        1_073_741_824,
        "Size at which a segment file is closed and a new one is started.",
        at_least(14),
        dynamic=True,
    )
    log_roll_ms: int = setting(
        ConfigType.LONG,
        168 * _HOURS,
        "Age at which a segment is closed if it is not full earlier.",
        at_least(1),
        synonyms=(Synonym("log.roll.hours", _HOURS, "168"),),
        dynamic=True,
    )
    log_roll_jitter_ms: int = setting(
        ConfigType.LONG,
        0,
        "Maximum time that is subtracted from log.roll.ms, at random for each segment.",
        at_least(0),
        synonyms=(Synonym("log.roll.jitter.hours", _HOURS, "0"),),
        dynamic=True,
    )
    log_index_interval_bytes: int = setting(
        ConfigType.INT,
        4096,
        "Bytes of records between two entries of the offset index.",
        at_least(0),
        dynamic=True,
    )
    log_index_size_max_bytes: int = setting(
        ConfigType.INT,
        10_485_760,
        "Maximum size of an index file of a segment.",
        at_least(4),
        dynamic=True,
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("delete",),
        "Treatment of old segments: delete removes them, compact keeps the last record of each "
        "key; with both values both happen, and with none all records stay.",
        any_of("delete", "compact", may_be_empty=True),
        dynamic=True,
    )
    log_retention_ms: int = setting(
        ConfigType.LONG,
        168 * _HOURS,
        "Time for which records are kept; -1: no limit.",
        at_least(-1),
        synonyms=(
            Synonym("log.retention.minutes", _MINUTES),
            Synonym("log.retention.hours", _HOURS, "168"),
        ),
        dynamic=True,
    )
    log_retention_bytes: int = setting(
        ConfigType.LONG,
        -1,
        "Number of bytes that each partition keeps; less than 0: no limit.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = setting(
        ConfigType.LONG, 300_000, "Time between two checks for segments to remove.", at_least(1)
    )
    log_segment_delete_delay_ms: int = setting(
        ConfigType.LONG,
        60_000,
        "Time between marking a file as deleted and removing it.",
        at_least(0),
        dynamic=True,
    )
    log_message_timestamp_type: str = setting(
        ConfigType.STRING,
        "CreateTime",
        "The clock that gives a record its timestamp: the producer's (CreateTime) or the "
        "broker's (LogAppendTime).",
        one_of(*TIMESTAMP_TYPES),
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        ConfigType.LONG,
        INT64_MAX,
        "Maximum age of a record's timestamp, compared with the broker's clock.",
        at_least(0),
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = setting(
        ConfigType.LONG,
        3_600_000,
        "Maximum time by which a record's timestamp may be ahead of the broker's clock.",
        at_least(0),
        dynamic=True,
    )
    log_flush_interval_messages: int = setting(
        ConfigType.LONG,
        INT64_MAX,
        "Accepted for compatibility: log.durability decides when records are flushed.",
        at_least(1),
        dynamic=True,
        effective=False,
    )
    log_flush_interval_ms: int = setting(
        ConfigType.LONG,
        INT64_MAX,
        "Accepted for compatibility: log.durability decides when records are flushed.",
        at_least(0),
        synonyms=(Synonym("log.flush.scheduler.interval.ms", 1, str(INT64_MAX)),),
        dynamic=True,
        effective=False,
    )
    log_preallocate: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "Accepted for compatibility: segment files are not preallocated.",
        dynamic=True,
        effective=False,
    )
    log_cleaner_enable: bool = setting(
        ConfigType.BOOLEAN,
        True,
        "Compact the topics with cleanup.policy=compact; if false, these topics only grow.",
    )
    log_cleaner_backoff_ms: int = setting(
        ConfigType.LONG,
        15_000,
        "Time until the next check for logs to compact if the last check found none.",
        at_least(0),
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        ConfigType.LONG,
        134_217_728,
        "Memory for the keys of a log during its compaction, 34 bytes for each key; records "
        "whose keys do not fit wait for the next compaction.",
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        ConfigType.DOUBLE,
        0.9,
        "The part of log.cleaner.dedupe.buffer.size that is used.",
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        ConfigType.DOUBLE,
        1.7976931348623157e308,
        "Maximum number of bytes that compaction reads and writes in a second, both together.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        ConfigType.LONG,
        _DAYS,
        "Time for which a compacted topic keeps a tombstone (the record that deletes a key) "
        "after its first compaction.",
        at_least(0),
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        ConfigType.DOUBLE,
        0.5,
        "A log is compacted when more than this part of its bytes is not compacted yet.",
        between(0, 1),
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        ConfigType.LONG,
        0,
        "Minimum time for which a record stays in a compacted topic, even if a newer record "
        "has the same key.",
        at_least(0),
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        ConfigType.LONG,
        INT64_MAX,
        "Maximum time until a record is compacted, however few bytes of its log are not "
        "compacted yet.",
        at_least(1),
        dynamic=True,
    )

    # --- The metadata log ---

    metadata_log_max_record_bytes_between_snapshots: int = setting(
        ConfigType.LONG,
        20_971_520,
        "Bytes of records in the metadata log after which a new snapshot is written.",
        at_least(1),
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        ConfigType.LONG,
        3_600_000,
        "Time after which a snapshot of the metadata log is written if anything has changed; "
        "0: only the size counts.",
        at_least(0),
    )
    metadata_max_retention_bytes: int = setting(
        ConfigType.LONG,
        104_857_600,
        "Maximum size of the metadata log and its snapshots together. Beyond it the oldest are "
        "deleted, but never the newest snapshot and the records after it. -1: no limit.",
    )
    metadata_max_retention_ms: int = setting(
        ConfigType.LONG,
        604_800_000,
        "Maximum age of snapshots of the metadata log. Older ones are deleted, together with "
        "the part of the log that they replace, but never the newest snapshot. -1: no limit.",
    )

    # --- Connections and requests ---

    socket_request_max_bytes: int = setting(
        ConfigType.INT, 104_857_600, "Maximum size of a request.", at_least(1)
    )
    max_control_request_bytes: int = setting(
        ConfigType.INT,
        8_388_608,
        "Maximum size of requests other than Produce and AppendMirrorRecords, whose limit is "
        "socket.request.max.bytes.",
        at_least(1024),
        ours=True,
    )
    telemetry_max_bytes: int = setting(
        ConfigType.INT,
        1_048_576,
        "Maximum size of the metrics that a client pushes in one request, after compression.",
        at_least(1),
    )
    telemetry_max_series: int = setting(
        ConfigType.INT,
        10_000,
        "Maximum number of series of clients' metrics that are stored and exposed in /metrics, "
        "of all clients together.",
        between(0, 1_000_000),
        ours=True,
    )
    telemetry_max_series_per_client: int = setting(
        ConfigType.INT,
        2_000,
        "Maximum number of series of one client's metrics.",
        between(0, 1_000_000),
        ours=True,
    )
    connections_max_idle_ms: int = setting(
        ConfigType.LONG,
        600_000,
        "Time after which a connection without traffic is closed; -1: never.",
        at_least(-1),
    )
    max_connections_per_ip: int = setting(
        ConfigType.INT,
        INT32_MAX,
        "Maximum number of connections from one IP address; further ones are closed.",
        at_least(0),
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = setting(
        ConfigType.STRING,
        "",
        "Limits for some IP addresses that replace max.connections.per.ip. Host names are not "
        "looked up.",
        COUNTS_BY_ADDRESS,
        dynamic=True,
    )
    quota_window_num: int = setting(
        ConfigType.INT,
        11,
        "Number of time windows over which the rates of quotas are measured, including the "
        "current one.",
        at_least(1),
    )
    quota_window_size_seconds: int = setting(
        ConfigType.INT, 1, "Length of a window of quota.window.num.", at_least(1)
    )
    controller_quota_window_num: int = setting(
        ConfigType.INT,
        11,
        "Number of time windows whose quota of created and deleted partitions may be used at once.",
        at_least(1),
    )
    controller_quota_window_size_seconds: int = setting(
        ConfigType.INT, 1, "Length of a window of controller.quota.window.num.", at_least(1)
    )
    queued_max_requests: int = setting(
        ConfigType.INT,
        500,
        "Accepted for compatibility: queued.max.request.bytes limits the requests in progress.",
        at_least(1),
        effective=False,
    )
    max_in_flight_per_connection: int = setting(
        ConfigType.INT,
        256,
        "Number of requests of one connection in progress at which the broker stops reading "
        "from it.",
        between(1, 10_000),
        ours=True,
    )
    max_in_flight_bytes_per_connection: int = setting(
        ConfigType.INT,
        134_217_728,
        "Bytes of requests of one connection in progress at which the broker stops reading "
        "from it.",
        at_least(1024),
        ours=True,
    )
    queued_max_request_bytes: int = setting(
        ConfigType.LONG,
        536_870_912,
        "Memory for requests that arrive or are in progress and for responses that clients "
        "have not read, of all connections. When it is used up, the broker stops reading, "
        "handles large requests one after another, and returns small Fetch responses. Kafka "
        "has no limit.",
        at_least(1024),
    )
    fetch_max_bytes: int = setting(
        ConfigType.INT,
        57_671_680,
        "Maximum bytes of records in one Fetch response, and maximum size of any other "
        "response: a request that needs a larger one is refused.",
        at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        ConfigType.INT, 1000, "Maximum number of incremental fetch sessions.", at_least(0)
    )

    # --- Consumer groups and offsets ---

    group_min_session_timeout_ms: int = setting(
        ConfigType.INT, 6_000, "Minimum session timeout that a member may request.", at_least(1)
    )
    group_max_session_timeout_ms: int = setting(
        ConfigType.INT, 1_800_000, "Maximum session timeout that a member may request.", at_least(1)
    )
    group_initial_rebalance_delay_ms: int = setting(
        ConfigType.INT,
        0,
        "Time for which an empty group waits for more members after the first one. Kafka's "
        "default is 3000, but the server.properties in its distribution sets 0.",
        at_least(0),
    )
    group_max_size: int = setting(
        ConfigType.INT, INT32_MAX, "Maximum number of members of a group.", at_least(1)
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("classic", "consumer"),
        "The protocols that groups may use. Without consumer, ConsumerGroupHeartbeat requests "
        "(KIP-848) are refused; classic cannot be left out. The features share.version and "
        "streams.version turn share groups and streams groups on and off.",
        any_of("classic", "consumer", "streams", "share"),
    )
    group_consumer_session_timeout_ms: int = setting(
        ConfigType.INT,
        45_000,
        "Time without a heartbeat after which a member of a consumer group (KIP-848) is removed.",
        at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = setting(
        ConfigType.INT, 45_000, "Lower bound of group.consumer.session.timeout.ms.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = setting(
        ConfigType.INT, 60_000, "Upper bound of group.consumer.session.timeout.ms.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        ConfigType.INT,
        5_000,
        "Time between two heartbeats of a member of a consumer group.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 5_000, "Lower bound of group.consumer.heartbeat.interval.ms.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 15_000, "Upper bound of group.consumer.heartbeat.interval.ms.", at_least(1)
    )
    group_consumer_assignment_interval_ms: int = setting(
        ConfigType.INT,
        1_000,
        "Minimum time between two assignments of a consumer group; 0: a change leads to an "
        "assignment at once.",
        at_least(0),
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        ConfigType.INT, 0, "Lower bound of group.consumer.assignment.interval.ms.", at_least(0)
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        ConfigType.INT, 15_000, "Upper bound of group.consumer.assignment.interval.ms.", at_least(0)
    )
    group_consumer_max_size: int = setting(
        ConfigType.INT, INT32_MAX, "Maximum number of members of a consumer group.", at_least(1)
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("uniform", "range"),
        "The assignors that members of consumer groups may choose, by name or by Kafka's class "
        "name; the first is the default.",
        any_of(
            "uniform",
            "range",
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ),
    )
    group_consumer_migration_policy: str = setting(
        ConfigType.STRING,
        "bidirectional",
        "Allowed changes of protocol of a group with members: from classic to consumer "
        "(upgrade), back (downgrade), both (bidirectional) or none (disabled).",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    offset_metadata_max_bytes: int = setting(
        ConfigType.INT,
        4096,
        "Maximum length of the metadata that a client commits with an offset.",
        at_least(0),
    )
    offsets_topic_num_partitions: int = setting(
        ConfigType.INT,
        50,
        "Number of partitions of __consumer_offsets, which is fixed when the topic is created.",
        between(1, 10_000),
    )
    offsets_topic_replication_factor: int = setting(
        ConfigType.SHORT,
        1,
        "Accepted for compatibility: one node keeps one copy of __consumer_offsets.",
        between(1, 32767),
        effective=False,
    )
    offsets_topic_segment_bytes: int = setting(
        ConfigType.INT, 104_857_600, "Segment size of __consumer_offsets.", at_least(14)
    )
    offsets_topic_compression_codec: int = setting(
        ConfigType.INT,
        0,
        "Accepted for compatibility: offsets are stored uncompressed.",
        between(0, 4),
        effective=False,
    )
    offsets_retention_minutes: int = setting(
        ConfigType.INT,
        10_080,
        "Time for which the offsets of an empty group are kept.",
        at_least(1),
    )
    offsets_retention_check_interval_ms: int = setting(
        ConfigType.LONG, 600_000, "Time between two checks for expired offsets.", at_least(1)
    )


#: Every row by key.
SETTINGS: dict[str, Setting] = Setting.declared_by(BrokerSettings, ".")

#: Every accepted key, synonyms included, with its row.
SETTING_OF_KEY: dict[str, Setting] = {name: row for row in SETTINGS.values() for name in row.names}
