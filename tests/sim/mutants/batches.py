"""Bugs of the validation of clients' batches."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.storage import validation


def _nothing(*_: Any) -> None:
    pass


def _header_believed(batch: Any, header: Any, config: Any, now_ms: int, budget: Any) -> int:
    return validation.apply_timestamp_rules(batch, header, config, now_ms)


BATCHES = (
    Mutant(
        "the broker does not verify the checksums of batches",
        "damaged-batches",
        1,
        {(validation, "verify_crc"): _nothing},
        ("was never sent", "cannot be read", "and is nowhere"),
    ),
    Mutant(
        "the broker trusts the header of a batch without checking the records",
        "damaged-batches",
        1,
        {(validation, "_check_records"): _header_believed},
        ("was never sent", "cannot be read", "and is nowhere"),
    ),
)
