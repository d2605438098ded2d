"""Test suites that only send requests, run with Apache Kafka: command line, client, transactions.

Each suite runs in a separate pytest, because `--bootstrap` applies to a whole run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]

#: The settings that KIP-939 needs in Kafka 4.3.
TWO_PHASE = {"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"}


@pytest.fixture(scope="module")
def two_phase_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("kafka-2pc"), 1, TWO_PHASE) as cluster:
        yield cluster


def run_suite(repository: Path, bootstrap: str, *files: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"),
            *("--bootstrap", bootstrap, *files),
        ],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    "files",
    [
        ["tests/cli/test_produce_consume.py", "tests/cli/test_cluster.py"],
        ["tests/cli/test_groups.py", "tests/cli/test_transactions.py"],
        ["tests/client/producer/test_transactions_live.py", "tests/client/admin/test_groups.py"],
        [
            "tests/client/test_sync.py",
            "tests/client/consumer/test_poll_arrow.py",
            "tests/client/consumer/test_consumer.py",
            "tests/client/consumer/group/test_cooperative.py",
            "tests/client/consumer/group/test_consumer_loop.py",
            "tests/client/consumer/test_subscription_state.py",
        ],
    ],
    ids=["records and topics", "groups and transactions", "transactions and admin", "consumers"],
)
def test_our_test_suites_pass_against_kafka(
    repository: Path, two_phase_kafka: KafkaCluster, files: list[str]
) -> None:
    run_suite(repository, two_phase_kafka.bootstrap, *files)


def test_explain_says_that_kafka_has_no_history(kafka: KafkaCluster) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "odradek", "explain", "txn", "any"),
            *("--bootstrap", kafka.bootstrap),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "this broker keeps no history for people" in done.stderr
    assert "Apache Kafka has nothing like it" in done.stderr
    assert "odradek txn describe" in done.stderr
    assert "too old" not in done.stderr and "switched off" not in done.stderr
