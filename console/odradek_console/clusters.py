"""The overview of several clusters: where each of them stands.

Each cluster is asked in the background, and the answer has what is known of it, so that a cluster
that does not answer delays neither the page nor the other clusters.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable

from odradek_client.errors import OdradekError
from odradek_console.answers import HttpProblem, Json, failed, refusal_of
from odradek_console.overview import overview
from odradek_console.sessions import ConsoleSession

#: A cluster is asked again when its last answer is older than this.
_KEEP_S = 2.0
#: The time that an answer waits for clusters that are asked at the moment.
_WAIT_S = 0.5
#: A cluster that was asked longer ago than this, and has not answered, is late.
_LATE_S = 3.0
_PROBLEMS_SHOWN = 3


class _Watch:
    """The last known state of a session's cluster, and the request for a newer one."""

    def __init__(self) -> None:
        self._known: Json = {"state": "asking"}
        self._task: asyncio.Task[None] | None = None
        self._began_s = self._ended_s = -math.inf

    def ask(self, session: ConsoleSession) -> asyncio.Task[None]:
        """The request for the state, which begins now if there is none and the last one is old."""
        now_s = time.monotonic()
        if self._task is None or (self._task.done() and now_s - self._ended_s > _KEEP_S):
            self._began_s = now_s
            self._task = asyncio.create_task(self._look(session))
        return self._task

    @property
    def state(self) -> Json:
        """The last known state. `late_s`: the time since which the cluster owes an answer."""
        is_running = self._task is not None and not self._task.done()
        waited_s = time.monotonic() - self._began_s if is_running else 0.0
        return {**self._known, "late_s": int(waited_s) if waited_s > _LATE_S else None}

    async def _look(self, session: ConsoleSession) -> None:
        try:
            self._known = _state_of(await overview(session))
        except HttpProblem as refusal:
            self._known = {"state": "failed", **refusal.as_json()}
        except OdradekError as error:
            self._known = {"state": "failed", **refusal_of(error).as_json()}
        except Exception as error:  # noqa: BLE001 - shown, and the other clusters are too
            self._known = {"state": "failed", **failed(error).as_json()}
        finally:
            self._ended_s = time.monotonic()


def _state_of(found: Json) -> Json:
    """The state of a cluster, from its overview."""
    groups = found["groups"]
    return {
        "state": "known",
        "nodes": None if found["cluster"] is None else len(found["cluster"]["nodes"]),
        "topics": found["topics"]["topics"],
        "groups": None if groups is None else sum(groups.values()),
        "open_transactions": found["open_transactions"],
        "problems": found["problems"][:_PROBLEMS_SHOWN],
        "more_problems": len(found["problems"][_PROBLEMS_SHOWN:]),
    }


async def states(sessions: Iterable[ConsoleSession | None]) -> list[Json]:
    """The state of each session's cluster; `state` is "known", "failed", "asking", or "sign-in" in
    place of a session that is None."""
    watches = [(each.store(_Watch), each) if each is not None else None for each in sessions]
    asked = [each[0].ask(each[1]) for each in watches if each is not None]
    if asked:
        await asyncio.wait(asked, timeout=_WAIT_S)
    return [{"state": "sign-in"} if each is None else each[0].state for each in watches]
