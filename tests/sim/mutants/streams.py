"""Bugs of streams groups: tasks that move too early, standby tasks in the process of the active
task, sessions."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.coordinator.groups.deadlines import MemberDeadlines
from odradek_broker.coordinator.groups.streams.reconciliation import _Plan
from odradek_broker.coordinator.groups.streams.tasks import TaskSet


def _no_tasks(*_: Any) -> tuple[int, ...]:
    return ()


def _never(*_: Any) -> bool:
    return False


async def _nothing(*_: Any, **__: Any) -> None:
    pass


STREAMS = (
    Mutant(
        "an active task is assigned while another process still has it",
        "streams-groups",
        1,
        {(_Plan, "_taken"): _no_tasks},
        ("tasks: ", "assignment: "),
    ),
    Mutant(
        "a standby task is assigned to the process that has the active task",
        "streams-groups",
        19,
        {(_Plan, "_own"): _no_tasks},
        ("tasks: ", "assignment: "),
    ),
    Mutant(
        "tasks count as revoked before the member confirms it",
        "streams-groups",
        6,
        {(TaskSet, "intersects"): _never},
        ("tasks: ",),
    ),
    Mutant(
        "a restart forgets the sessions of streams members",
        "streams-groups",
        1,
        {(MemberDeadlines, "restored"): _nothing},
        ("liveness: ",),
    ),
)
