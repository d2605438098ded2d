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
from odradek_broker.config.sasl_settings import SaslSettings
from odradek_broker.config.share_group_settings import ShareGroupSettings
from odradek_broker.config.share_settings import ShareSettings
from odradek_broker.config.streams_group_settings import StreamsGroupSettings
from odradek_broker.config.transaction_settings import TransactionSettings
from odradek_broker.config.types import Kind, Setting, Synonym, setting
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
    SaslSettings,
    ListenerSettings,
):
    """Every setting, parsed and typed."""

    # --- Identity, addresses, directories ---

    node_id: int = setting(
        Kind.INT,
        1,
        "The id of this node; it must not change once the data directory exists.",
        at_least(0),
        synonyms=(Synonym("broker.id"),),
    )
    cluster_id: str = setting(
        Kind.STRING,
        "",
        "The id of the cluster; empty: one is made at the first start and kept.",
        ours=True,
    )
    odradek_emulate: str = setting(
        Kind.STRING,
        "",
        "For tests: another broker whose API versions, features and limits clients find here; "
        "empty: none.",
        one_of("", *PROFILES),
        ours=True,
    )
    broker_rack: str = setting(Kind.STRING, "", "The rack that clients are told; empty: none.")
    log_dirs: tuple[str, ...] = setting(
        Kind.LIST,
        ("odradek-data",),
        "The data directories. A partition lies in one of them, a new one where the fewest are.",
        synonyms=(Synonym("log.dir"),),
    )
    metadata_log_dir: str = setting(
        Kind.STRING,
        "",
        "The directory of the metadata log, without which the broker does not run; empty: the first of "
        "log.dirs.",
    )
    http_listen: str = setting(
        Kind.STRING,
        "",
        "HOST:PORT of the HTTP endpoint with /metrics, /healthz and /readyz; empty: none. Other machines "
        "reach it only with http.security.protocol=SSL and http.token (or insecure.listeners).",
        ours=True,
    )
    http_security_protocol: str = setting(
        Kind.STRING,
        "PLAINTEXT",
        "How the HTTP endpoint is spoken to: PLAINTEXT, or SSL with the certificate of ssl.keystore.*, or "
        "of listener.name.http.ssl.keystore.*.",
        one_of("PLAINTEXT", "SSL"),
        ours=True,
    )
    http_token: str = setting(
        Kind.PASSWORD,
        "",
        "What a request to the HTTP endpoint has to bring, as `Authorization: Bearer TOKEN`. Without it "
        "/healthz and /readyz tell yes or no, and nothing else answers. Empty: nothing is asked for.",
        ours=True,
        secret=True,
    )
    metrics_internal_topics_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Have /metrics show each partition of the broker's own topics too (__consumer_offsets and the "
        "like). Without it one of them is shown only while it is offline.",
        dynamic=True,
        ours=True,
    )
    log_format: str = setting(
        Kind.STRING,
        "auto",
        "How log lines look: console for people, json for machines, auto: console on a terminal.",
        one_of("auto", "console", "json"),
        ours=True,
    )
    log_level: str = setting(
        Kind.STRING,
        "info",
        "The least important log lines that are written.",
        one_of("debug", "info", "warning", "error"),
        ours=True,
    )

    # --- Topics ---

    num_partitions: int = setting(
        Kind.INT, 1, "Partitions of a topic that is created without a number.", at_least(1)
    )
    default_replication_factor: int = setting(
        Kind.INT,
        1,
        "Replication factor of a topic that is created without one.",
        between(1, 32767),
    )
    replication_factor_policy: str = setting(
        Kind.STRING,
        "reject",
        "What to do with a replication factor above 1: reject it, as Kafka does with too few "
        "brokers, or accept it, keep one copy and say so.",
        one_of("reject", "accept"),
        ours=True,
    )
    auto_create_topics_enable: bool = setting(
        Kind.BOOLEAN, True, "Create a topic when a client asks for its metadata."
    )
    delete_topic_enable: bool = setting(Kind.BOOLEAN, True, "Allow topics to be deleted.")
    max_partitions: int = setting(
        Kind.INT,
        20_000,
        "Most partitions that this broker holds.",
        between(1, 1_000_000),
        ours=True,
    )
    min_insync_replicas: int = setting(
        Kind.INT,
        1,
        "Accepted for compatibility. There is one replica, and it is always in sync.",
        at_least(1),
        dynamic=True,
        effective=False,
    )
    unclean_leader_election_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Accepted for compatibility. There is one replica, so no election can be unclean.",
        dynamic=True,
        effective=False,
    )

    # --- Partition logs ---

    log_journal_max_bytes: int = setting(
        Kind.LONG,
        128 * 1024 * 1024,
        "How large the file in each data directory may grow that small appends are made durable by,"
        " all partitions at once; 0: there is none, and each partition's file is synced.",
        between(0, 4 * 1024**3),
        ours=True,
    )
    log_durability: str = setting(
        Kind.STRING,
        "fsync",
        "What an acknowledgement means: fsync, the records are on disk; page-cache, they survive "
        "a crash of the process but not of the machine, which is Kafka's own default.",
        one_of("fsync", "page-cache"),
        ours=True,
    )
    record_validation: str = setting(
        Kind.STRING,
        "full",
        "How deeply a produced batch is checked: full (every record, as Kafka does) or header "
        "(length, CRC, counts). With header, a batch whose header does not fit its records is "
        "stored, and every reader of the partition stops at it.",
        one_of("header", "full"),
        ours=True,
    )
    message_max_bytes: int = setting(
        Kind.INT, 1_048_588, "Largest batch, as it is sent.", at_least(0), dynamic=True
    )
    compression_type: str = setting(
        Kind.STRING,
        "producer",
        "Codec of stored batches; producer keeps the producer's.",
        one_of(*COMPRESSION_TYPES),
        dynamic=True,
    )
    log_segment_bytes: int = setting(
        Kind.INT,
        1_073_741_824,
        "Size at which a segment file is closed and a new one begun.",
        at_least(14),
        dynamic=True,
    )
    log_roll_ms: int = setting(
        Kind.LONG,
        168 * _HOURS,
        "Age at which a segment is closed, if it is not full before.",
        at_least(1),
        synonyms=(Synonym("log.roll.hours", _HOURS, "168"),),
        dynamic=True,
    )
    log_roll_jitter_ms: int = setting(
        Kind.LONG,
        0,
        "Up to this much is taken off log.roll.ms, at random for each segment.",
        at_least(0),
        synonyms=(Synonym("log.roll.jitter.hours", _HOURS, "0"),),
        dynamic=True,
    )
    log_index_interval_bytes: int = setting(
        Kind.INT,
        4096,
        "Bytes of records between two entries of the offset index.",
        at_least(0),
        dynamic=True,
    )
    log_index_size_max_bytes: int = setting(
        Kind.INT, 10_485_760, "Largest index file of a segment.", at_least(4), dynamic=True
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        Kind.LIST,
        ("delete",),
        "What happens to old segments: delete removes them, compact keeps the last record of "
        "each key, both do both, and empty keeps everything.",
        any_of("delete", "compact", may_be_empty=True),
        dynamic=True,
    )
    log_retention_ms: int = setting(
        Kind.LONG,
        168 * _HOURS,
        "How long records are kept; -1: without end.",
        at_least(-1),
        synonyms=(
            Synonym("log.retention.minutes", _MINUTES),
            Synonym("log.retention.hours", _HOURS, "168"),
        ),
        dynamic=True,
    )
    log_retention_bytes: int = setting(
        Kind.LONG,
        -1,
        "How many bytes each partition keeps; less than 0: no limit.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = setting(
        Kind.LONG, 300_000, "Time between two looks for segments to remove.", at_least(1)
    )
    log_segment_delete_delay_ms: int = setting(
        Kind.LONG,
        60_000,
        "Time between marking a file as deleted and removing it.",
        at_least(0),
        dynamic=True,
    )
    log_message_timestamp_type: str = setting(
        Kind.STRING,
        "CreateTime",
        "Whose clock a record's timestamp is: producer's or broker's.",
        one_of(*TIMESTAMP_TYPES),
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        Kind.LONG,
        INT64_MAX,
        "How far a record's timestamp may lie in the past.",
        at_least(0),
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = setting(
        Kind.LONG,
        3_600_000,
        "How far a record's timestamp may lie in the future.",
        at_least(0),
        dynamic=True,
    )
    log_flush_interval_messages: int = setting(
        Kind.LONG,
        INT64_MAX,
        "Accepted for compatibility: log.durability decides when records are flushed.",
        at_least(1),
        dynamic=True,
        effective=False,
    )
    log_flush_interval_ms: int = setting(
        Kind.LONG,
        INT64_MAX,
        "Accepted for compatibility: log.durability decides when records are flushed.",
        at_least(0),
        synonyms=(Synonym("log.flush.scheduler.interval.ms", 1, str(INT64_MAX)),),
        dynamic=True,
        effective=False,
    )
    log_preallocate: bool = setting(
        Kind.BOOLEAN,
        False,
        "Accepted for compatibility: segment files grow as they are written.",
        dynamic=True,
        effective=False,
    )
    log_cleaner_enable: bool = setting(
        Kind.BOOLEAN, True, "Clean compacted topics; without it they only grow."
    )
    log_cleaner_backoff_ms: int = setting(
        Kind.LONG,
        15_000,
        "Time between two looks for logs to clean, when there is none.",
        at_least(0),
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        Kind.LONG,
        134_217_728,
        "Memory for the keys of a log that is cleaned, 34 bytes for each; what does not fit is left "
        "to the next cleaning.",
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        Kind.DOUBLE, 0.9, "How much of that memory is used.", dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Kind.DOUBLE,
        1.7976931348623157e308,
        "How many bytes the cleaner reads and writes in a second, both together.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        Kind.LONG,
        _DAYS,
        "How long a compacted topic keeps the mark of a deleted key after its first cleaning.",
        at_least(0),
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Kind.DOUBLE,
        0.5,
        "A compacted log is cleaned when more than this share of it is new.",
        between(0, 1),
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Kind.LONG,
        0,
        "How long a record of a compacted topic stays, even if a newer one of its key comes.",
        at_least(0),
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Kind.LONG,
        INT64_MAX,
        "After so long a compacted log is cleaned, however little of it is new.",
        at_least(1),
        dynamic=True,
    )

    # --- The metadata log ---

    metadata_log_max_record_bytes_between_snapshots: int = setting(
        Kind.LONG,
        20_971_520,
        "The metadata log gets a snapshot when so many bytes of records have come since the last.",
        at_least(1),
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        Kind.LONG,
        3_600_000,
        "It also gets one after so long, if anything has changed; 0: only by size.",
        at_least(0),
    )
    metadata_max_retention_bytes: int = setting(
        Kind.LONG,
        104_857_600,
        "When metadata log and snapshots are larger together, the oldest go; the newest snapshot and "
        "what came after it stay. -1: no limit.",
    )
    metadata_max_retention_ms: int = setting(
        Kind.LONG,
        604_800_000,
        "Snapshots of the metadata log that are older go, and the log that they stand for; the "
        "newest stays. -1: no limit.",
    )

    # --- Connections and requests ---

    socket_request_max_bytes: int = setting(Kind.INT, 104_857_600, "Largest request.", at_least(1))
    max_control_request_bytes: int = setting(
        Kind.INT,
        8_388_608,
        "Largest request other than Produce and the appends of a mirror, for which "
        "socket.request.max.bytes is the limit.",
        at_least(1024),
        ours=True,
    )
    telemetry_max_bytes: int = setting(
        Kind.INT,
        1_048_576,
        "Largest push of metrics by a client, as it is sent, that is to say compressed.",
        at_least(1),
    )
    telemetry_max_series: int = setting(
        Kind.INT,
        10_000,
        "Most series of all clients' metrics that are kept and served in /metrics.",
        between(0, 1_000_000),
        ours=True,
    )
    telemetry_max_series_per_client: int = setting(
        Kind.INT,
        2_000,
        "Most series of one client's metrics.",
        between(0, 1_000_000),
        ours=True,
    )
    connections_max_idle_ms: int = setting(
        Kind.LONG,
        600_000,
        "A connection without traffic for so long is closed; -1: never.",
        at_least(-1),
    )
    max_connections_per_ip: int = setting(
        Kind.INT,
        INT32_MAX,
        "Most connections at a time from one IP address; more are closed.",
        at_least(0),
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = setting(
        Kind.STRING,
        "",
        "Most connections from some IP addresses, in the place of max.connections.per.ip. Names of "
        "hosts are not looked up.",
        COUNTS_BY_ADDRESS,
        dynamic=True,
    )
    quota_window_num: int = setting(
        Kind.INT,
        11,
        "Windows over which the rates of quotas are taken, the present one included.",
        at_least(1),
    )
    quota_window_size_seconds: int = setting(
        Kind.INT, 1, "Length of a window of quota.window.num.", at_least(1)
    )
    controller_quota_window_num: int = setting(
        Kind.INT,
        11,
        "Windows whose quota of created and deleted partitions may be used at once.",
        at_least(1),
    )
    controller_quota_window_size_seconds: int = setting(
        Kind.INT, 1, "Length of a window of controller.quota.window.num.", at_least(1)
    )
    queued_max_requests: int = setting(
        Kind.INT,
        500,
        "Accepted for compatibility: queued.max.request.bytes limits what is in work.",
        at_least(1),
        effective=False,
    )
    max_in_flight_per_connection: int = setting(
        Kind.INT,
        256,
        "Requests in work of one connection before reading from it stops.",
        between(1, 10_000),
        ours=True,
    )
    max_in_flight_bytes_per_connection: int = setting(
        Kind.INT,
        134_217_728,
        "Bytes of requests in work of one connection before reading from it stops.",
        at_least(1024),
        ours=True,
    )
    queued_max_request_bytes: int = setting(
        Kind.LONG,
        536_870_912,
        "Bytes of requests that arrive or are in work, and of answers not taken, over all connections, before"
        " reading stops, large requests take turns, and fetch answers become small; Kafka has no limit.",
        at_least(1024),
    )
    fetch_max_bytes: int = setting(
        Kind.INT,
        57_671_680,
        "Most bytes of records in one fetch answer, and of any other answer: a request that asks for"
        " more is refused.",
        at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        Kind.INT, 1000, "Most incremental fetch sessions that are kept.", at_least(0)
    )

    # --- Consumer groups and offsets ---

    group_min_session_timeout_ms: int = setting(
        Kind.INT, 6_000, "Shortest session timeout a member may ask for.", at_least(1)
    )
    group_max_session_timeout_ms: int = setting(
        Kind.INT, 1_800_000, "Longest session timeout a member may ask for.", at_least(1)
    )
    group_initial_rebalance_delay_ms: int = setting(
        Kind.INT,
        0,
        "How long an empty group waits for more members after the first. Kafka's own default is 3000,"
        " and the server.properties that it ships sets 0.",
        at_least(0),
    )
    group_max_size: int = setting(Kind.INT, INT32_MAX, "Most members of a group.", at_least(1))
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Kind.LIST,
        ("classic", "consumer"),
        "The protocols that groups may speak. Without consumer its requests are refused "
        "(KIP-848); classic cannot be left out. The features share.version and streams.version switch"
        " share and streams groups.",
        any_of("classic", "consumer", "streams", "share"),
    )
    group_consumer_session_timeout_ms: int = setting(
        Kind.INT,
        45_000,
        "How long a member of a consumer group (KIP-848) may be silent before it is removed.",
        at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = setting(
        Kind.INT, 45_000, "Lower bound of group.consumer.session.timeout.ms.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = setting(
        Kind.INT, 60_000, "Upper bound of group.consumer.session.timeout.ms.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        Kind.INT,
        5_000,
        "How often members of a consumer group are told to send a heartbeat.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        Kind.INT, 5_000, "Lower bound of group.consumer.heartbeat.interval.ms.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        Kind.INT, 15_000, "Upper bound of group.consumer.heartbeat.interval.ms.", at_least(1)
    )
    group_consumer_max_size: int = setting(
        Kind.INT, INT32_MAX, "Most members of a consumer group.", at_least(1)
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Kind.LIST,
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
        Kind.STRING,
        "bidirectional",
        "Whether a group with members may change from the classic to the consumer protocol "
        "(upgrade), back (downgrade), both or neither.",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    offset_metadata_max_bytes: int = setting(
        Kind.INT, 4096, "Longest text that may be stored with an offset.", at_least(0)
    )
    offsets_topic_num_partitions: int = setting(
        Kind.INT,
        50,
        "Partitions of __consumer_offsets, fixed when it is created.",
        between(1, 10_000),
    )
    offsets_topic_replication_factor: int = setting(
        Kind.SHORT,
        1,
        "Accepted for compatibility: one node keeps one copy of __consumer_offsets.",
        between(1, 32767),
        effective=False,
    )
    offsets_topic_segment_bytes: int = setting(
        Kind.INT, 104_857_600, "Segment size of __consumer_offsets.", at_least(14)
    )
    offsets_topic_compression_codec: int = setting(
        Kind.INT,
        0,
        "Accepted for compatibility: offsets are stored uncompressed.",
        between(0, 4),
        effective=False,
    )
    offsets_retention_minutes: int = setting(
        Kind.INT, 10_080, "How long an empty group keeps its offsets.", at_least(1)
    )
    offsets_retention_check_interval_ms: int = setting(
        Kind.LONG, 600_000, "Time between two looks for offsets to remove.", at_least(1)
    )


#: Every row by key.
SETTINGS: dict[str, Setting] = Setting.declared_by(BrokerSettings, ".")

#: Every accepted key, synonyms included, with its row.
SETTING_OF_KEY: dict[str, Setting] = {name: row for row in SETTINGS.values() for name in row.names}
