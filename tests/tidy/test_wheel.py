"""The wheel contains everything that users need, and works without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from product_modules import PACKAGES

# Building a wheel takes some time.
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def installed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel of this checkout. The compiled codec is left out, because the test does
    not build it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=repository,
        env=os.environ | {"ODRADEK_PURE": "1"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "installed")
    return folder / "installed"


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """Run code in an interpreter that finds the wheel's packages before those of the checkout. It
    writes no byte code."""
    done = subprocess.run(
        [sys.executable, "-B", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_SIMULATED = """
import pytest

from odradek import Producer


@pytest.mark.simulated(seeds=2, faults=True)
async def test_one_record(simulated_cluster):
    async with Producer(bootstrap_servers=simulated_cluster.bootstrap) as producer:
        await producer.send_and_wait("orders", b"one")
"""


def test_d10_simulated_tests_of_users_run_from_any_folder(installed: Path, tmp_path: Path) -> None:
    where = run(
        installed, tmp_path, "-c", "import odradek_testkit.simulation as it; print(it.__file__)"
    )
    assert Path(where.strip()).is_relative_to(installed)
    (tmp_path / "test_orders.py").write_text(_SIMULATED)
    told = run(
        installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"
    )
    assert "1 passed" in told


_NESTED = {
    "conftest.py": """
pytest_plugins = ["pytester"]

def same(one, other):
    assert one == other
""",
    "test_rewritten.py": """
import sys

import odradek_broker.server
import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from odradek.sync import Producer

from conftest import same

_STRICT = ("-W", "error::pytest.PytestAssertRewriteWarning")

def test_none_of_ours_is_rewritten(odradek_clusters):
    rewritten = {
        name.partition(".")[0]
        for name, module in sys.modules.items()
        if isinstance(getattr(module, "__loader__", None), AssertionRewritingHook)
    }
    assert "odradek_client.producer.producer" in sys.modules
    assert {each for each in rewritten if "odradek" in each} <= {"odradek_testkit"}

def test_helpers_of_users_explain_themselves():
    with pytest.raises(AssertionError, match="At index 1 diff: 2 != 3"):
        same([1, 2], [1, 3])

def test_a_nested_run_warns_of_nothing(pytester):
    pytester.makepyfile("def test_inner(unique_topic): pass")
    pytester.runpytest_inprocess(*_STRICT).assert_outcomes(passed=1)
""",
}


def test_pytest_rewrites_none_of_our_modules(installed: Path, tmp_path: Path) -> None:
    for name, text in _NESTED.items():
        (tmp_path / name).write_text(text)
    told = run(installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert "3 passed" in told


def test_the_wheel_has_the_command_line(installed: Path, tmp_path: Path) -> None:
    assert "serve" in run(installed, tmp_path, "-m", "odradek", "--help")


def test_the_wheel_has_only_the_packages_and_the_licence(installed: Path) -> None:
    others = {each.name for each in installed.iterdir()} - PACKAGES.keys()
    assert len(others) == 1 and others.pop().endswith(".dist-info")
    left_over = [
        each.name for each in installed.rglob("*") if each.suffix in {".pyc", ".c", ".jsonl"}
    ]
    assert left_over == []
