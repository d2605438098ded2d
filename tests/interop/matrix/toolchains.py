"""Builds programs of the matrix with the toolchains of their languages, outside of the checkout.

A program is built again only if its sources change; the results are below
`~/.cache/odradek/matrix`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.interop.matrix.row import Missing, executed

from kafka_cluster import KafkaUnavailable, class_path, fetch_jars, java, spark_jars

CACHE = Path.home() / ".cache" / "odradek" / "matrix"
CARGO = CACHE.parent / "cargo"
OTHERS = Path(__file__).resolve().parents[1] / "others"
JAVA = Path(__file__).resolve().parents[1] / "java"
PYTHON = Path(__file__).resolve().parent / "python"
BUILD_DEADLINE_S = 3000


def command(name: str) -> str:
    """The path of a command. Raises Missing if it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"there is no `{name}` here")
    return found


def _built(folder: Path, *steps: Sequence[str], environment: Mapping[str, str]) -> None:
    for step in steps:
        # The compiler runs with low priority.
        polite = ["nice", *step] if shutil.which("nice") else step
        done = executed(polite, folder, environment, deadline_s=BUILD_DEADLINE_S)
        if done.returncode != 0:
            print(done.stdout[-4000:] + done.stderr[-4000:], file=sys.stderr)
            raise Missing(f"`{' '.join(step)}` fails here")


def _folder(name: str, sources: Sequence[Path], also: str) -> tuple[Path, bool]:
    """Return a folder for a program, and True if the program was built there already; otherwise the
    sources are copied into it."""
    digest = hashlib.sha256(also.encode())
    for source in sources:
        digest.update(source.read_bytes())
    folder = CACHE / f"{name}-{digest.hexdigest()[:12]}"
    if (folder / "complete").exists():
        return folder, True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in sources:
        shutil.copy(source, folder)
    return folder, False


def go(name: str, *modules: str, common: bool = True) -> Callable[[], Path]:
    """Return a function that builds a program of others/go_clients. `modules`: Go modules with
    their versions.

    `common`: the program also uses others/go_clients/common.go.
    """

    def get() -> Path:
        shared = [OTHERS / "go_clients" / "common.go"] if common else []
        sources = [*sorted((OTHERS / "go_clients" / name).iterdir()), *shared]
        folder, complete = _folder(f"go-{name}", sources, " ".join(modules))
        if not complete:
            compiler = command("go")
            _built(
                folder,
                [compiler, "get", *modules],
                [compiler, "build", "-o", "program", "."],
                environment={"GOFLAGS": "-mod=mod -p=1"},
            )
            (folder / "complete").touch()
        return folder / "program"

    return get


def go_tests(package: str, module: str) -> Callable[[], Path]:
    """Return a function that compiles the tests of a package. `module`: its Go module with a
    version."""

    def get() -> Path:
        folder, complete = _folder(f"go-tests-{package.rpartition('/')[2]}", [], module)
        if not complete:
            compiler = command("go")
            _built(
                folder,
                [compiler, "mod", "init", "tests"],
                [compiler, "get", module],
                [compiler, "test", "-c", "-o", "program", package],
                environment={"GOFLAGS": "-mod=mod -p=1"},
            )
            (folder / "complete").touch()
        return folder / "program"

    return get


def go_tool(name: str, package: str, version: str) -> Callable[[], Path]:
    """Return a function that builds a command written in Go, unless a command of that name is on
    the PATH."""

    def get() -> Path:
        found = shutil.which(name)
        program = CACHE / "go" / f"{name}-{version}" / name
        if found is None and not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            _built(
                program.parent,
                [command("go"), "install", f"{package}@{version}"],
                environment={"GOBIN": str(program.parent), "GOFLAGS": "-p=1"},
            )
        return Path(found) if found is not None else program

    return get


def on_path(name: str) -> Callable[[], Path]:
    """Return a function that finds a command on the PATH."""
    return lambda: Path(command(name))


def node(program: str, *packages: str) -> Callable[[], Path]:
    """Return a function that prepares a program of others/node. `packages`: packages with their
    versions."""

    def get() -> Path:
        runtime = Path(command("node")).resolve()
        folder, complete = _folder(
            f"node-{program}", sorted((OTHERS / "node").iterdir()), " ".join(packages)
        )
        if not complete:
            # Packages with C++ code are compiled with the headers of this Node.
            headers = runtime.parents[1] / "include" / "node"
            environment = (
                {"npm_config_nodedir": str(runtime.parents[1])} if headers.is_dir() else {}
            )
            _built(
                folder,
                [command("npm"), "install", "--no-save", "--prefix", ".", *packages],
                # The librdkafka of Confluent's package is linked with libraries of this machine.
                environment={**environment, "JOBS": "1", "CKJS_LINKING": "dynamic"},
            )
            (folder / "complete").touch()
        return folder / f"{program}.js"

    return get


def rust(program: str, *dependencies: str) -> Callable[[], Path]:
    """Return a function that builds a program of others/rust. `dependencies`: lines for Cargo.toml.

    All programs share the compiled dependencies.
    """

    def get() -> Path:
        sources = [OTHERS / "rust" / name for name in (f"{program}.rs", "checks.rs")]
        folder, complete = _folder(f"rust-{program}", sources, " ".join(dependencies))
        if not complete:
            (folder / "Cargo.toml").write_text(
                f'[package]\nname = "{program}"\nversion = "0.1.0"\nedition = "2021"\n'
                f'[[bin]]\nname = "{program}"\npath = "{program}.rs"\n'
                "[dependencies]\n" + "".join(f"{line}\n" for line in dependencies)
            )
            _built(
                folder,
                [command("cargo"), "build", "--quiet", "--jobs", "1"],
                environment={"CARGO_TARGET_DIR": str(CARGO)},
            )
            shutil.copy(CARGO / "debug" / program, folder / "program")
            (folder / "complete").touch()
        return folder / "program"

    return get


def python(program: str, *packages: str) -> Callable[[], Path]:
    """Return a function that makes a virtual environment with these packages, and returns its
    interpreter."""

    def get() -> Path:
        folder, complete = _folder(f"python-{program}", [], " ".join(packages))
        interpreter = folder / "venv" / "bin" / "python"
        if not complete:
            _built(
                folder,
                [sys.executable, "-m", "venv", "venv"],
                [str(interpreter), "-m", "pip", "install", "--quiet", *packages],
                environment={},
            )
            (folder / "complete").touch()
        return interpreter

    return get


def java_program(name: str, *artifacts: tuple[str, str, str]) -> Callable[[], Path]:
    """Return a function that compiles a program of tests/interop/java, and returns its class path.

    `artifacts`: jars as (group, artifact, version); their dependencies are also fetched.
    """

    def get() -> Path:
        folder, complete = _folder(f"java-{name}", [JAVA / f"{name}.java"], repr(artifacts))
        if not complete:
            try:
                java()
                fetch_jars(folder, artifacts)
            except KafkaUnavailable as error:
                raise Missing(str(error).partition("\n")[0]) from error
            compiler = [command("javac"), "-nowarn", "-parameters", "-cp", f"{folder}/*"]
            _built(folder, [*compiler, "-d", str(folder), f"{name}.java"], environment={})
            (folder / "complete").touch()
        return Path(f"{folder}:{folder}/*")

    return get


def jars(find: Callable[[], str | Path]) -> Callable[[], Path]:
    """Return a function that fetches jars by `find`, a function of kafka_cluster, and returns their
    class path or folder."""

    def get() -> Path:
        try:
            java()
            return Path(find())
        except KafkaUnavailable as error:
            raise Missing(str(error).partition("\n")[0]) from error

    return get


def release_jar(name: str, version: str, variable: str, page: str) -> Callable[[], Path]:
    """Return a function that returns a tool's jar from the path in an environment variable.

    No registry has this jar. `page`: the address of its releases, for the error message if the jar
    is missing.
    """

    def get() -> Path:
        path = Path(os.environ.get(variable, ""))
        if not path.is_file():
            raise Missing(
                f"{variable} names no file: download {name}-{version}.jar from {page} and set "
                "the variable to its path"
            )
        found = _version_of(path)
        if found != version:
            raise Missing(f"{path.name} is {name} {found}, and this row wants {version}")
        return jars(path.resolve)()

    return get


def _version_of(jar: Path) -> str:
    """The version in the manifest of a jar."""
    with zipfile.ZipFile(jar) as archive:
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
    told = re.search(r"^Implementation-Version: (\S+)", manifest, re.MULTILINE)
    return told[1] if told is not None else "of an unknown version"


def kafka(version: str) -> Callable[[], Path]:
    """Return a function that fetches the jars of a release of Kafka, and returns their class
    path."""
    return jars(lambda: class_path(version))


def spark() -> Path:
    """The folder with the jars of Spark's `kafka` format. Raises Missing if they or pyspark are
    missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise Missing("there is no `pyspark` here")
    return jars(spark_jars)()
