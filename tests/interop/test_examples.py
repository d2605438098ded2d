"""The examples in other languages pass, and their tests fail if the fault on which they rely does
not happen.

The toolchains and package registries of the languages are required.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
DEADLINE_S = 500
#: The build directory of cargo: it is kept for the next run, because librdkafka takes minutes to
#: compile.
TARGET = Path.home() / ".cache" / "odradek" / "cargo"
#: The file that users copy, by language.
HELPERS = {
    "java": "src/test/java/Odradek.java",
    "go": "odradek_test.go",
    "node": "odradek.js",
    "rust": "tests/odradek/mod.rs",
}
HELPER_LINES_MAX = 105


class Example:
    """A copy of an example, and the commands that run in it."""

    def __init__(self, language: str, folder: Path) -> None:
        self.folder = folder / language
        shutil.copytree(EXAMPLES / language, self.folder)
        self.odradek = folder / "odradek"
        self.odradek.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
        self.odradek.chmod(0o755)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command; skips the test if the program is not installed."""
        program = shutil.which(command[0])
        if program is None:
            pytest.skip(f"there is no {command[0]}")
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env={**os.environ, "ODRADEK": str(self.odradek), "CARGO_TARGET_DIR": str(TARGET)},
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    def replace(self, file: str, old: str, new: str) -> None:
        """Replace `old`, which must occur exactly once in the file."""
        text = (self.folder / file).read_text("utf-8")
        assert text.count(old) == 1, (file, old)
        (self.folder / file).write_text(text.replace(old, new))


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def check(
    example: Example, command: list[str], passed: str, without_fault: tuple[str, ...]
) -> None:
    """Check that an example's tests pass, and that they fail if the injected fault is replaced by
    one that never happens."""
    done = example.run(*command)
    assert done.returncode == 0, said(done)
    assert passed in done.stdout, said(done)
    example.replace(*without_fault)
    done = example.run(*command)
    assert done.returncode != 0, said(done)


def test_the_java_example_passes_and_fails_without_its_fault(tmp_path: Path) -> None:
    example = Example("java", tmp_path)
    never = ("src/test/java/OrdersTest.java", 'api\\": \\"Produce', 'api\\": \\"DeleteTopics')
    check(example, ["mvn", "-B", "test"], "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0", never)


def test_the_go_example_passes_and_fails_without_its_fault(tmp_path: Path) -> None:
    example = Example("go", tmp_path)
    tidied = example.run("go", "mod", "tidy")
    assert tidied.returncode == 0, said(tidied)
    never = ("orders_test.go", '"Produce"', '"DeleteTopics"')
    check(example, ["go", "test", "./..."], "ok", never)


def test_the_node_example_passes_and_fails_without_its_fault(tmp_path: Path) -> None:
    example = Example("node", tmp_path)
    installed = example.run("npm", "install", "--no-package-lock")
    assert installed.returncode == 0, said(installed)
    check(example, ["npm", "test"], "pass 3", ("orders.test.js", '"Produce"', '"DeleteTopics"'))


def test_the_rust_example_passes_and_fails_without_its_fault(tmp_path: Path) -> None:
    """The compiled librdkafka stays in the cache for the next run."""
    example = Example("rust", tmp_path)
    never = ("tests/orders.rs", '"Produce"', '"DeleteTopics"')
    check(example, ["cargo", "test"], "3 passed", never)


@pytest.mark.parametrize("language", sorted(HELPERS))
def test_the_helper_file_of_an_example_is_short(language: str) -> None:
    lines = (EXAMPLES / language / HELPERS[language]).read_text("utf-8").splitlines()
    assert len(lines) <= HELPER_LINES_MAX
