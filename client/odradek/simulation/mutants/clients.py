"""Bugs of what clients hold."""

from __future__ import annotations

from odradek.simulation.mutants.base import Mutant
from odradek_client.producer.accumulator import Accumulator
from odradek_client.producer.batch import ProducerBatch


def _memory_is_kept(self: Accumulator, batch: ProducerBatch) -> None:
    self.incomplete.pop(batch, None)


CLIENTS = (
    Mutant(
        "memory of the accumulator that no batch gives back",
        "produce",
        1,
        {(Accumulator, "finished"): _memory_is_kept},
    ),
)
