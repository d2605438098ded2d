"""The settings of the broker that transactions depend on."""

from __future__ import annotations

from typing import Protocol


class TransactionSettings(Protocol):
    """The broker's settings, as the coordinator reads them."""

    @property
    def transaction_max_timeout_ms(self) -> int: ...
    @property
    def transactional_id_expiration_ms(self) -> int: ...
    @property
    def transaction_abort_timed_out_transaction_cleanup_interval_ms(self) -> int: ...
    @property
    def transaction_remove_expired_transaction_cleanup_interval_ms(self) -> int: ...
    @property
    def transaction_two_phase_commit_enable(self) -> bool: ...
    @property
    def max_transactional_ids(self) -> int: ...
