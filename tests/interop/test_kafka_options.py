"""The options `--kafka` and `--bootstrap` of pytest choose the tests that run. With `--kafka`, a
missing Java is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KAFKA_TESTS = "tests/interop/test_kafka_client.py"


def run_pytest(
    repository: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *arguments],
        cwd=repository,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.full
def test_tests_of_kafka_run_only_with_the_option_kafka(repository: Path) -> None:
    without = run_pytest(repository, "--collect-only", KAFKA_TESTS)
    assert without.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, without.stdout
    assert "skipped" not in without.stdout
    with_it = run_pytest(repository, "--collect-only", "--kafka", KAFKA_TESTS)
    assert with_it.returncode == 0, with_it.stdout


@pytest.mark.full
def test_kafka_without_java_or_maven_is_a_failure(repository: Path, tmp_path: Path) -> None:
    ran = run_pytest(
        repository,
        "--kafka",
        f"{KAFKA_TESTS}::test_records_are_written_with_every_acks",
        "--maxfail=1",
        PATH="",
        JAVA_HOME="",
        HOME=str(tmp_path),
        ODRADEK_KAFKA_JARS="",
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout
    assert "--kafka was asked for, and cannot be had" in ran.stdout
    assert "Maven" in ran.stdout or "Java" in ran.stdout


@pytest.mark.full
def test_bootstrap_leaves_out_tests_that_start_their_own_broker(repository: Path) -> None:
    files = [
        "tests/client/consumer/test_restart.py",
        "tests/client/producer/test_transactions_live.py",
    ]
    ran = run_pytest(repository, "--collect-only", "--bootstrap", "127.0.0.1:1", *files)
    assert ran.returncode == 0, ran.stdout
    assert "test_t77_an_admin_ends_prepared_transactions" in ran.stdout
    assert "test_restart" not in ran.stdout
    assert "test_t50_transactions_survive" not in ran.stdout
