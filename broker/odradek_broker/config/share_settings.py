"""The settings of share groups."""

from __future__ import annotations

from odradek_broker.config.types import ConfigType, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import at_least, between


@dataclass(frozen=True, kw_only=True)
class ShareSettings:
    """The settings of the share coordinator, which stores the state of share partitions, and the
    settings of the records that a share group has in flight.
    """

    group_share_record_lock_duration_ms: int = setting(
        ConfigType.INT,
        30_000,
        "Time for which a member of a share group has a record locked; after that another "
        "member may get it.",
        between(1_000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms: int = setting(
        ConfigType.INT,
        15_000,
        "Lower bound of a group's share.record.lock.duration.ms.",
        between(1_000, 30_000),
    )
    group_share_max_record_lock_duration_ms: int = setting(
        ConfigType.INT,
        60_000,
        "Upper bound of a group's share.record.lock.duration.ms.",
        between(30_000, 3_600_000),
    )
    group_share_delivery_count_limit: int = setting(
        ConfigType.INT,
        5,
        "Maximum number of deliveries of a record to a share group; after the last one the "
        "group gives the record up.",
        between(2, 10),
    )
    group_share_min_delivery_count_limit: int = setting(
        ConfigType.INT, 2, "Lower bound of a group's share.delivery.count.limit.", between(2, 5)
    )
    group_share_max_delivery_count_limit: int = setting(
        ConfigType.INT, 10, "Upper bound of a group's share.delivery.count.limit.", between(5, 25)
    )
    group_share_partition_max_record_locks: int = setting(
        ConfigType.INT,
        2_000,
        "Maximum number of records of a partition that a share group has in flight. At the "
        "limit its members get no new records until the first of these records is finished.",
        between(100, 10_000),
    )
    group_share_min_partition_max_record_locks: int = setting(
        ConfigType.INT,
        100,
        "Lower bound of a group's share.partition.max.record.locks.",
        between(100, 2_000),
    )
    group_share_max_partition_max_record_locks: int = setting(
        ConfigType.INT,
        4_000,
        "Upper bound of a group's share.partition.max.record.locks.",
        between(2_000, 10_000),
    )
    group_share_max_share_sessions: int = setting(
        ConfigType.INT,
        2_000,
        "Maximum number of share sessions. Each member of a share group has one.",
        at_least(1),
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "true: the dead letter topic that a share group names is created when it is first needed"
        " (KIP-1191, in Kafka from 4.4 on).",
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        ConfigType.STRING,
        "dlq.",
        "The prefix that the names of dead letter topics must have; empty: any name (KIP-1191, "
        "in Kafka from 4.4 on).",
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        ConfigType.INT,
        50,
        "Number of partitions of __share_group_state, which is fixed when the topic is created.",
        between(1, 10_000),
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        ConfigType.SHORT,
        1,
        "Accepted for compatibility: one node keeps one copy of __share_group_state.",
        between(1, 32767),
        effective=False,
    )
    share_coordinator_state_topic_min_isr: int = setting(
        ConfigType.SHORT,
        1,
        "Accepted for compatibility. There is one replica, and it is always in sync.",
        between(1, 32767),
        effective=False,
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        ConfigType.INT, 104_857_600, "Segment size of __share_group_state.", at_least(14)
    )
    share_coordinator_state_topic_compression_codec: int = setting(
        ConfigType.INT,
        0,
        "Accepted for compatibility: states are stored uncompressed.",
        between(0, 4),
        effective=False,
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        ConfigType.INT,
        500,
        "Number of records with changes of a share partition's state between two records with "
        "the whole state; 0: each record has the whole state.",
        between(0, 500),
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        ConfigType.INT,
        300_000,
        "Time between two deletions of obsolete records of __share_group_state.",
        at_least(1),
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        ConfigType.INT,
        300_000,
        "Age at which the last record with the whole state of a share partition is written again,"
        " so that the records before it can be deleted.",
        at_least(1),
    )
    share_coordinator_write_timeout_ms: int = setting(
        ConfigType.INT,
        5_000,
        "Maximum time that a request waits until its state is on disk; after that its error is "
        "COORDINATOR_NOT_AVAILABLE.",
        at_least(1),
    )
