"""A test with aiokafka passes in virtual time, and docs/use/testing.md shows the same code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import aiokafka
import pytest

from odradek_testkit.simulation.cluster import SimulatedCluster, run_test
from snippets import snippets

pytestmark = pytest.mark.own_broker

PAGE = Path(__file__).parents[2] / "docs" / "use" / "testing.md"
#: The compiled codec of aiokafka writes real time into records, which may be far after the broker's
#: virtual time.
SETTINGS = {"log.message.timestamp.after.max.ms": 2**62}
VALUES = [str(number).encode() for number in range(10)]


async def ten_records(cluster: SimulatedCluster) -> None:
    """Send ten records, and check that they are read once and in order."""
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, enable_idempotence=True
    ) as producer:
        for value in VALUES:
            await producer.send_and_wait("orders", value)
    read = []
    async with aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        while VALUES[-1] not in read:
            read.append((await consumer.getone()).value)
    assert read == VALUES


def test_an_idempotent_producer_of_aiokafka_stores_each_record_once() -> None:
    run_test("aiokafka", ten_records, range(1, 21), faults=True, settings=SETTINGS)


@pytest.mark.full
def test_the_simulated_tests_of_the_documentation_pass(tmp_path: Path) -> None:
    blocks = [
        each.code
        for each in snippets(PAGE.read_text("utf-8"), PAGE.name)
        if each.language == "python" and "@pytest.mark.simulated" in each.code
    ]
    assert len(blocks) == 3
    for number, code in enumerate(blocks):
        (tmp_path / f"test_block_{number}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"{len(blocks)} passed" in done.stdout
