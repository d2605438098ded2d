"""Bugs of streams groups: tasks that move too early, copies beside the task, sessions."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.coordinator.groups.deadlines import MemberDeadlines
from odradek_broker.coordinator.groups.streams.reconciliation import _Plan
from odradek_broker.coordinator.groups.streams.tasks import TaskSet


def _always(*_: Any) -> bool:
    return True


def _never(*_: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    pass


STREAMS = (
    Mutant(
        "an active task given out while another process has it",
        "streams-groups",
        1,
        {(_Plan, "_active_is_free"): _always},
        ("tasks: ", "assignment: "),
    ),
    Mutant(
        "a standby task given to the process that has the active one",
        "streams-groups",
        19,
        {(_Plan, "_copy_is_free"): _always},
        ("tasks: ", "assignment: "),
    ),
    Mutant(
        "tasks taken for given back before the member says so",
        "streams-groups",
        6,
        {(TaskSet, "intersects"): _never},
        ("tasks: ",),
    ),
    Mutant(
        "sessions of streams members forgotten by a restart",
        "streams-groups",
        1,
        {(MemberDeadlines, "restored"): _nothing},
        ("liveness: ",),
    ),
)
