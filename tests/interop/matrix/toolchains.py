"""Programs of the matrix, built with the toolchains of their languages, outside of the checkout.

A program is built once for each content of its source, below `~/.cache/odradek/matrix`.
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
    """The path of a command. Raises Missing."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"there is no `{name}` here")
    return found


def _built(folder: Path, *steps: Sequence[str], environment: Mapping[str, str]) -> None:
    for step in steps:
        # A compiler leaves the processors to other programs.
        polite = ["nice", *step] if shutil.which("nice") else step
        done = executed(polite, folder, environment, deadline_s=BUILD_DEADLINE_S)
        if done.returncode != 0:
            print(done.stdout[-4000:] + done.stderr[-4000:], file=sys.stderr)
            raise Missing(f"`{' '.join(step)}` fails here")


def _folder(name: str, sources: Sequence[Path], also: str) -> tuple[Path, bool]:
    """A folder for a program, and whether the program is in it already; the sources are copied."""
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
    """Makes the program of a folder in others/go_clients, with modules in their versions. `common`:
    the program uses the file that lies beside the folders."""

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
    """Compiles the tests that a package of a Go module (with its version) has."""

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
    """Makes a command that is written in Go; one on the PATH is used as it is."""

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
    """Finds a command that has to be on the PATH."""
    return lambda: Path(command(name))


def node(program: str, *packages: str) -> Callable[[], Path]:
    """Makes a program of others/node with packages in their versions."""

    def get() -> Path:
        runtime = Path(command("node")).resolve()
        folder, complete = _folder(
            f"node-{program}", sorted((OTHERS / "node").iterdir()), " ".join(packages)
        )
        if not complete:
            # Packages that are compiled here find the headers beside this Node.
            headers = runtime.parents[1] / "include" / "node"
            environment = (
                {"npm_config_nodedir": str(runtime.parents[1])} if headers.is_dir() else {}
            )
            _built(
                folder,
                [command("npm"), "install", "--no-save", "--prefix", ".", *packages],
                # The librdkafka in Confluent's package finds its libraries on this machine.
                environment={**environment, "JOBS": "1", "CKJS_LINKING": "dynamic"},
            )
            (folder / "complete").touch()
        return folder / f"{program}.js"

    return get


def rust(program: str, *dependencies: str) -> Callable[[], Path]:
    """Makes a program of others/rust; `dependencies` are lines of Cargo.toml. What they compile to
    is kept for all programs."""

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
    """Makes a virtual environment with packages; returns its interpreter."""

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
    """Compiles a program of tests/interop/java with jars (group, artifact, version) and all that
    they want; returns a class path."""

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
    """Fetches jars with a function of kafka_cluster; returns its class path or folder."""

    def get() -> Path:
        try:
            java()
            return Path(find())
        except KafkaUnavailable as error:
            raise Missing(str(error).partition("\n")[0]) from error

    return get


def release_jar(name: str, version: str, variable: str, page: str) -> Callable[[], Path]:
    """Takes a tool's jar from a path that an environment variable names, because no registry has
    the jar; `page` has the jars of its releases."""

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
    """The version that the manifest of a jar tells."""
    with zipfile.ZipFile(jar) as archive:
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
    told = re.search(r"^Implementation-Version: (\S+)", manifest, re.MULTILINE)
    return told[1] if told is not None else "of an unknown version"


def kafka(version: str) -> Callable[[], Path]:
    """Fetches the jars of a release of Kafka; returns a class path."""
    return jars(lambda: class_path(version))


def spark() -> Path:
    """The folder with the jars of Spark's own format. Raises Missing, also without pyspark."""
    if importlib.util.find_spec("pyspark") is None:
        raise Missing("there is no `pyspark` here")
    return jars(spark_jars)()
