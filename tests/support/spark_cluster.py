"""A standalone Spark cluster of real processes on this machine, and a way to submit programs to
it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from odradek.spark import find_java, shim_home

SPARK_HOME = Path(pyspark.__file__).parent
WAIT_S = 240
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_MASTER_AT = r"Starting Spark master at (spark://\S+)"


def environment() -> dict[str, str]:
    """The environment for Spark's scripts, in which all processes use this Python. Raises
    JavaNotFound."""
    java = find_java()
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    return kept | {
        "JAVA_HOME": str(shim_home(java) if java.lacks_module else java.home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # Tests run from a checkout: processes find the modules by path, without an installation.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


@contextmanager
def standalone_cluster(
    folder: Path,
    variables: Mapping[str, str],
    hosts: Sequence[str] = ("127.0.0.1",),
    cores: int = 2,
) -> Iterator[str]:
    """Run a master, and one worker at each of these addresses. Yields the master's URL."""
    at_any_port = ["--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        master = _started(
            folder / "master", variables, _MASTER_AT, _MASTER, "127.0.0.1", at_any_port
        )
        url = stack.enter_context(master)[1]
        for number, host in enumerate(hosts):
            place = folder / f"worker-{number}"
            words = [*at_any_port, "-c", str(cores), "-m", "1g", "-d", str(place / "work"), url]
            worker = _started(place, variables, "registered with master", _WORKER, host, words)
            stack.enter_context(worker)
        yield url


@contextmanager
def _started(
    folder: Path,
    variables: Mapping[str, str],
    ready: str,
    program: str,
    host: str,
    words: Sequence[str],
) -> Iterator[re.Match[str]]:
    """Start a process of Spark, and wait until its log matches `ready`. Yields the match."""
    folder.mkdir(parents=True)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), program, "--host", host, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**variables, "SPARK_LOCAL_IP": host},
            cwd=folder,
        )
    try:
        deadline = time.monotonic() + WAIT_S
        while (found := re.search(ready, log.read_text("utf-8", "replace"))) is None:
            assert process.poll() is None, log.read_text("utf-8", "replace")
            assert time.monotonic() < deadline, log.read_text("utf-8", "replace")
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def submit(
    master: str,
    variables: Mapping[str, str],
    program: Path,
    arguments: Sequence[str],
    settings: Mapping[str, str] | None = None,
) -> str:
    """Submit a program. Returns its output. If it fails, raises AssertionError with the end of its
    log."""
    given = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.python.authenticate.socketTimeout": "120s",
        **(settings or {}),
    }
    words = [word for each in given.items() for word in ("--conf", "=".join(each))]
    run = subprocess.run(
        [
            *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *words),
            *(str(program), *arguments),
        ],
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=3 * WAIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    return run.stdout
