"""The fault points of the sink, at which a test can stop a process to kill it (the crash matrix).

Only environment variables can arm a fault point: `ODRADEK_SPARK_FAULT_POINT=<name>` together with
`ODRADEK_SPARK_FAULT_DIR`, a directory. If the directory has a file `armed`, the first process that
reaches the point writes a file `reached` with its pid, and waits for a file `go`, or until it is
killed. If `go` contains "raise", the process raises an exception.
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


class SparkFaultPoint(Enum):
    """All fault points. Each is named after the step that was just done."""

    #: A task's rows are acknowledged; its transaction is not prepared.
    TASK_WRITTEN = "task-written"
    #: A task's transaction is prepared; the driver does not know that yet.
    TASK_PREPARED = "task-prepared"
    #: The decision is durable; no transaction is ended.
    DECISION_DURABLE = "decision-durable"
    #: One transaction is ended; the other transactions are not.
    ONE_ENDED = "one-ended"
    #: All transactions are ended; their end is not recorded yet.
    ALL_ENDED = "all-ended"
    #: The batch is finished; Spark does not know that yet.
    BATCH_DONE = "batch-done"


def is_armed(point: SparkFaultPoint) -> bool:
    """True if the process has to stop at this point."""
    return os.environ.get(POINT_VARIABLE) == point.value


def reach(point: SparkFaultPoint) -> None:
    """Stop, if this point is armed."""
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
