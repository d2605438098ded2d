"""The settings of producers and transactions."""

from __future__ import annotations

from odradek_broker.config.types import Kind, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import at_least, between

_MINUTES = 60_000


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """The settings of producer ids and of the transaction coordinator."""

    producer_id_expiration_ms: int = setting(
        Kind.INT,
        86_400_000,
        "How long a partition remembers a producer that sends nothing.",
        at_least(1),
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        Kind.INT, 600_000, "Time between two looks for producers to forget.", at_least(1)
    )
    max_producer_ids: int = setting(
        Kind.INT,
        1_000_000,
        "Most producers that all partitions together remember, looked at every second; beyond it "
        "those that wrote longest ago, and have no transaction open, are forgotten as if they had "
        "expired.",
        between(1_000, 100_000_000),
        ours=True,
    )
    max_transactional_ids: int = setting(
        Kind.INT,
        200_000,
        "Most transactional ids that are remembered; a new one beyond it is refused with "
        "POLICY_VIOLATION until others expire (transactional.id.expiration.ms).",
        between(1, 100_000_000),
        ours=True,
    )
    transaction_max_timeout_ms: int = setting(
        Kind.INT,
        900_000,
        "Longest transaction timeout a producer may ask for.",
        at_least(1),
    )
    transaction_state_log_num_partitions: int = setting(
        Kind.INT,
        50,
        "Partitions of __transaction_state, fixed when it is created.",
        between(1, 10_000),
    )
    transaction_state_log_replication_factor: int = setting(
        Kind.SHORT,
        1,
        "Accepted for compatibility: one node keeps one copy of __transaction_state.",
        between(1, 32767),
        effective=False,
    )
    transaction_state_log_min_isr: int = setting(
        Kind.INT,
        1,
        "Accepted for compatibility. There is one replica, and it is always in sync.",
        at_least(1),
        effective=False,
    )
    transaction_state_log_segment_bytes: int = setting(
        Kind.INT, 104_857_600, "Segment size of __transaction_state.", at_least(14)
    )
    transactional_id_expiration_ms: int = setting(
        Kind.INT,
        604_800_000,
        "How long an unused transactional id is remembered.",
        at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Kind.INT,
        10_000,
        "Time between two looks for transactions that ran out of time.",
        at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Kind.INT,
        3_600_000,
        "Time between two looks for transactional ids to forget.",
        at_least(1),
    )
    transaction_partition_verification_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        "Ask the coordinator whether a transaction knows a partition before it is written to, for "
        "producers that speak transactions of version 1. Off, a write that comes late can leave "
        "a transaction open that nothing ends.",
        dynamic=True,
    )
    transaction_two_phase_commit_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        "Allow transactions that are prepared and ended later (KIP-939); off in Kafka.",
    )
