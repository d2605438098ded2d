"""Every command and every program in README.md and docs runs as written.

Only the address of the broker is changed. A block that cannot be run has a comment above it with
the reason: `<!-- not run: ... -->`. With `<!-- continues ... -->` a block uses the names that
earlier blocks of its page have defined. The blocks of a page run in their order, and all pages use
the same broker.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import budget
from odradek import NewTopic, sync
from odradek.broker import SubprocessBroker
from odradek.spark import SHORT_JOB_OPTIONS, JavaNotFound, session, shut_down
from odradek_broker.config.broker import parse_config, parse_properties
from snippets import Snippet, snippets

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: The largest allowed number of blocks that no test runs. Avoid raising this limit.
NOT_RUN_MAX = 25
LANGUAGES = {"python", "sh", "properties", "text", "mermaid"}
PATIENCE_S = 120.0

_ADDRESS = re.compile(r"(localhost|127\.0\.0\.1):9092")
#: A reason for not running a block here: another test, which the reason names, runs it.
_TESTED = re.compile(r"tests/(?:cli|interop|spark)/test_")


ALL = [
    each
    for page in PAGES
    for each in snippets(page.read_text("utf-8"), str(page.relative_to(ROOT)))
]


def test_every_code_block_is_run_or_names_a_reason() -> None:
    for each in ALL:
        assert each.language in LANGUAGES, f"{each.name}: say what it is"
        assert each.reason is None or len(each.reason) > 10, f"{each.name}: why not?"
    reasons = [each.reason for each in ALL if each.reason is not None]
    assert sum(_TESTED.search(reason) is None for reason in reasons) <= NOT_RUN_MAX
    assert sum(each.is_run for each in ALL) >= 20


@pytest.mark.parametrize(
    "code", [each.code for each in ALL if each.language == "properties"], ids=lambda code: code[:20]
)
def test_documented_configuration_files_are_valid(code: str) -> None:
    _, notices = parse_config(parse_properties(code))
    assert notices == []


#: Blocks that contain tests of pytest or unittest.
_TESTS = re.compile(r"^(async )?def test_|TestCase\):$", re.MULTILINE)


class Reader:
    """A reader who tries the blocks of a page in an empty directory."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._known: dict[str, Any] = {}
        command = folder / "bin" / "odradek"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
        command.chmod(0o755)
        self._environment = {
            **os.environ,
            "ODRADEK_BOOTSTRAP": bootstrap,
            "PATH": os.pathsep.join([str(command.parent), os.environ["PATH"]]),
        }

    def run(self, snippet: Snippet) -> None:
        code = _ADDRESS.sub(self._bootstrap, snippet.code)
        if snippet.language == "sh":
            self._run_shell(snippet, code)
        elif _TESTS.search(code):
            self._run_tests(snippet, code)
        elif snippet.language == "python":
            self._run_python(snippet, code)

    def _run_shell(self, snippet: Snippet, code: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{snippet.name}\n{done.stdout}\n{done.stderr}"

    def _run_tests(self, snippet: Snippet, code: str) -> None:
        """Run the tests of a block with pytest, as a reader does."""
        file = self._folder / f"test_line_{snippet.line}.py"
        file.write_text(code)
        self._run_shell(
            snippet, f"{sys.executable} -m pytest -q -n0 -o asyncio_mode=auto {file.name}"
        )

    def _run_python(self, snippet: Snippet, code: str) -> None:
        names: dict[str, Any] = {"__name__": "__main__"}
        if snippet.continues:
            names |= self._known
        # Java resolves a relative path from the folder in which Java was started.
        code = code.replace('"checkpoints/', f'"{self._folder}/checkpoints/')
        program = compile(code, snippet.name, "exec")
        with contextlib.chdir(self._folder), contextlib.redirect_stdout(io.StringIO()):
            exec(program, names)  # noqa: S102  that is the point
        self._known |= names


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topics that the pages assume."""
    settings = {
        "log.durability": "page-cache",
        # Some pages are about ACLs; this user may do everything.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with SubprocessBroker(settings=settings) as broker:
        with (
            sync.Admin(bootstrap_servers=broker.bootstrap) as admin,
            sync.Producer(bootstrap_servers=broker.bootstrap) as producer,
        ):
            admin.create_topics(NewTopic("flights", 2))
            for number in range(20):
                row = json.dumps({"carrier": "AA", "number": number}).encode()
                producer.send("flights", row, b"AA")
        yield broker.bootstrap


def pages(*, with_spark: bool) -> list[str]:
    return sorted({each.page for each in ALL if each.is_run and each.needs_spark is with_spark})


def run_page(page: str, bootstrap: str, folder: Path, *, with_spark: bool) -> None:
    reader = Reader(bootstrap, folder)
    for each in ALL:
        if each.page == page and each.is_run and each.needs_spark is with_spark:
            reader.run(each)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", budget.of_which(pages(with_spark=False), ["README.md"]))
def test_the_code_blocks_of_a_page_run(page: str, bootstrap: str, tmp_path: Path) -> None:
    if page == "docs/use/consumer.md":
        with sync.Producer(bootstrap_servers=bootstrap) as producer:
            producer.send_and_wait("orders", b"the last one")
    run_page(page, bootstrap, tmp_path, with_spark=False)


@pytest.fixture(scope="module")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The Spark session of all pages. It stops after this module, because other tests need other
    settings."""
    folder = tmp_path_factory.mktemp("spark")
    try:
        made = session(
            "odradek documents",
            "local[2]",
            log_file=folder / "spark.log",
            spark_local_dir=str(folder),
            spark_sql_warehouse_dir=str(folder / "warehouse"),
            spark_driver_extraJavaOptions=f"{SHORT_JOB_OPTIONS} -Djava.io.tmpdir={folder}",
            spark_sql_shuffle_partitions="2",
        )
    except JavaNotFound as error:
        pytest.skip(str(error))
    yield
    shut_down(made)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark_session")
@pytest.mark.parametrize("page", budget.of_which(pages(with_spark=True), []))
def test_the_spark_code_blocks_of_a_page_run(page: str, bootstrap: str, tmp_path: Path) -> None:
    with sync.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait("greetings", b"hello", b"en")
    run_page(page, bootstrap, tmp_path, with_spark=True)
