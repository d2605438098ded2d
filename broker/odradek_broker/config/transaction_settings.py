"""The settings of producers and transactions."""

from __future__ import annotations

from odradek_broker.config.types import ConfigType, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import at_least, between

_MINUTES = 60_000


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """The settings of producer ids and of the transaction coordinator."""

    producer_id_expiration_ms: int = setting(
        ConfigType.INT,
        86_400_000,
        "Time after which a partition forgets the state of an idempotent producer that sends "
        "nothing.",
        at_least(1),
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        ConfigType.INT, 600_000, "Time between two checks for expired producer states.", at_least(1)
    )
    max_producer_ids: int = setting(
        ConfigType.INT,
        1_000_000,
        "Maximum number of producer states of all partitions together, checked every second. "
        "Beyond it, the states of those that wrote longest ago and have no open transaction "
        "expire early.",
        between(1_000, 100_000_000),
        ours=True,
    )
    max_transactional_ids: int = setting(
        ConfigType.INT,
        200_000,
        "Maximum number of transactional ids; a further one is refused with POLICY_VIOLATION "
        "until others expire (transactional.id.expiration.ms).",
        between(1, 100_000_000),
        ours=True,
    )
    transaction_max_timeout_ms: int = setting(
        ConfigType.INT,
        900_000,
        "Maximum transaction timeout that a producer may request.",
        at_least(1),
    )
    transaction_state_log_num_partitions: int = setting(
        ConfigType.INT,
        50,
        "Number of partitions of __transaction_state, which is fixed when the topic is created.",
        between(1, 10_000),
    )
    transaction_state_log_replication_factor: int = setting(
        ConfigType.SHORT,
        1,
        "Accepted for compatibility: one node keeps one copy of __transaction_state.",
        between(1, 32767),
        effective=False,
    )
    transaction_state_log_min_isr: int = setting(
        ConfigType.INT,
        1,
        "Accepted for compatibility. There is one replica, and it is always in sync.",
        at_least(1),
        effective=False,
    )
    transaction_state_log_segment_bytes: int = setting(
        ConfigType.INT, 104_857_600, "Segment size of __transaction_state.", at_least(14)
    )
    transactional_id_expiration_ms: int = setting(
        ConfigType.INT,
        604_800_000,
        "Time after which an unused transactional id expires.",
        at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        ConfigType.INT,
        10_000,
        "Time between two checks for transactions that have timed out.",
        at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        ConfigType.INT,
        3_600_000,
        "Time between two checks for expired transactional ids.",
        at_least(1),
    )
    transaction_partition_verification_enable: bool = setting(
        ConfigType.BOOLEAN,
        True,
        "For producers with version 1 of transactions: check with the coordinator that a "
        "partition belongs to the transaction before the first write to it. If false, a late "
        "write can leave a transaction open forever.",
        dynamic=True,
    )
    transaction_two_phase_commit_enable: bool = setting(
        ConfigType.BOOLEAN,
        True,
        "Allow prepared transactions, which are committed or aborted later (two-phase commit, "
        "KIP-939); false by default in Kafka.",
    )
