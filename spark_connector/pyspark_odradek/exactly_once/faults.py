"""Named points at which a test may stop the sink, to kill somebody there (the crash matrix).

Only the environment can arm one: `ODRADEK_SPARK_FAULT_POINT=<name>` together with
`ODRADEK_SPARK_FAULT_DIR`, a directory. Once there is a file `armed` in it, the process that first
reaches the point leaves a file `reached` with its pid, and waits until somebody makes a file `go`,
or kills it. If `go` says "raise", it fails there.
"""

from __future__ import annotations

import os
import time
from enum import Enum
from pathlib import Path

POINT_VARIABLE = "ODRADEK_SPARK_FAULT_POINT"
FOLDER_VARIABLE = "ODRADEK_SPARK_FAULT_DIR"
_WAIT_S_MAX = 300.0
_STEP_S = 0.02


class FaultPoint(Enum):
    """Every point there is, by what has just happened."""

    #: A task's rows are acknowledged, its transaction is not prepared.
    TASK_WRITTEN = "task-written"
    #: A task's transaction is prepared, the driver does not know.
    TASK_PREPARED = "task-prepared"
    #: The decision is durable, no transaction is ended.
    DECISION_DURABLE = "decision-durable"
    #: One transaction is ended, there are more.
    ONE_ENDED = "one-ended"
    #: All transactions are ended, that is not written down.
    ALL_ENDED = "all-ended"
    #: The batch is done, Spark does not know.
    BATCH_DONE = "batch-done"


def is_armed(point: FaultPoint) -> bool:
    """True if the process is to stop at this very point."""
    return os.environ.get(POINT_VARIABLE) == point.value


def reach(point: FaultPoint) -> None:
    """Execution is at this point."""
    if not is_armed(point):
        return
    folder = Path(os.environ[FOLDER_VARIABLE])
    if not (folder / "armed").exists():
        return
    try:
        handle = os.open(folder / "reached.tmp", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return  # once only
    with os.fdopen(handle, "w") as file:
        file.write(str(os.getpid()))
    os.link(folder / "reached.tmp", folder / "reached")
    deadline = time.monotonic() + _WAIT_S_MAX
    while not (folder / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody came to {point.value} within {_WAIT_S_MAX:g} s")
        time.sleep(_STEP_S)
    if (folder / "go").read_text() == "raise":
        raise RuntimeError(f"fault point {point.value}")
