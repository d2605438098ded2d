"""Coroutines for `Slices`, run to their end."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from node_world import SoonScheduler
from odradek_broker.slices import Slices, Work

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    slices = Slices(lambda: 0, SoonScheduler(), counts_steps=False)
    result = slices.run(work)
    assert not isinstance(result, Work), "it waits"
    return result
