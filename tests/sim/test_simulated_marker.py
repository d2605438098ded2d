"""Users' own tests in virtual time: `@pytest.mark.simulated`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek import Consumer, Producer
from odradek.errors import AuthenticationFailed
from odradek_testkit.simulation.cluster import SimulatedCluster, run_test
from odradek_testkit.simulation.world import Violation

_SEEDS: list[int] = []


@pytest.mark.simulated(seeds=5, faults=True)
async def test_acknowledged_records_are_read_in_a_simulated_test(
    simulated_cluster: SimulatedCluster,
) -> None:
    _SEEDS.append(simulated_cluster.seed)
    async with Producer(bootstrap_servers=simulated_cluster.bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait("orders", str(number).encode())
    read: list[bytes | None] = []
    async with Consumer(
        "orders", bootstrap_servers=simulated_cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        while len(read) < 5:
            read += [record.value for record in await consumer.poll()]
    assert read == [b"0", b"1", b"2", b"3", b"4"]


def test_a_simulated_test_runs_with_each_seed() -> None:
    if _SEEDS:  # The list is empty if pytest runs only this test.
        assert _SEEDS == [1, 2, 3, 4, 5]


@pytest.mark.simulated(seeds=2)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_dead_member_is_replaced_after_its_session_timeout(
    simulated_cluster: SimulatedCluster, protocol: Any
) -> None:
    """The session timeout of 45 s passes in virtual time, with both protocols."""

    def member() -> Consumer:
        return Consumer(
            "orders",
            bootstrap_servers=simulated_cluster.bootstrap,
            group_id="g",
            group_protocol=protocol,
        )

    joined = asyncio.Event()

    async def first() -> None:
        async with member() as consumer:
            while True:
                await consumer.poll(timeout_ms=100)
                if consumer.assignment():
                    joined.set()

    async with Producer(bootstrap_servers=simulated_cluster.bootstrap) as producer:
        await producer.send_and_wait("orders", b"1")
    simulated_cluster.start_client("first", first)
    await joined.wait()
    simulated_cluster.kill_client("first")
    killed_ms = simulated_cluster.now_ms
    async with member() as second:
        while not second.assignment():
            await second.poll(timeout_ms=100)
    assert 40_000 < simulated_cluster.now_ms - killed_ms < 60_000


def test_a_failed_simulated_test_names_its_seed_and_shows_its_trace() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        cluster.note("about to fail")
        assert cluster.seed < 3

    with pytest.raises(AssertionError) as caught:
        run_test("t", test, range(1, 9), faults=("kill-broker",))
    (note,) = caught.value.__notes__
    assert "seed 3" in note
    assert "about to fail" in note
    assert "is ready" in note


def test_a_simulated_test_is_ended_after_an_hour_of_virtual_time() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        async def main() -> None:
            raise LookupError("what the test waits for")

        cluster.start_client("hopeful", main)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as caught:
        run_test("t", test, [1])
    assert (
        "hopeful      ends with LookupError('what the test waits for')"
        in (caught.value.__notes__[0])
    )


def test_an_unknown_fault_is_named() -> None:
    async def test(cluster: SimulatedCluster) -> None: ...

    with pytest.raises(ValueError, match="no such fault: earthquake; there are kill-broker"):
        run_test("t", test, [1], faults=("earthquake",))


@pytest.mark.simulated(seeds=5)
async def test_k21_a_first_poll_without_a_group_continues_when_metadata_arrive(
    simulated_cluster: SimulatedCluster,
) -> None:
    """A loop that metadata do not wake would wait for a whole second of virtual time."""
    async with Producer(bootstrap_servers=simulated_cluster.bootstrap) as producer:
        await producer.send_and_wait("orders", b"1")
    async with Consumer(
        "orders", bootstrap_servers=simulated_cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        before_ms = simulated_cluster.now_ms
        assert [record.value for record in await consumer.poll(10_000)] == [b"1"]
        assert simulated_cluster.now_ms - before_ms < 1_000


@pytest.mark.full
def test_the_summary_names_the_seed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.simulated(seeds=[4, 7])\n"
        "async def test_it(simulated_cluster):\n"
        "    assert simulated_cluster.seed != 7\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    summary = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert len(summary) == 1
    assert "- seed 7: assert 7 != 7" in summary[0]


_LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
}


@pytest.mark.simulated(
    seeds=2,
    settings={
        "listeners": "PLAINTEXT://broker:9092,SASL_PLAINTEXT://broker:9093",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' user_alice="for tests";'
        ),
    },
)
async def test_a_simulated_sasl_listener_asks_for_passwords(
    simulated_cluster: SimulatedCluster,
) -> None:
    servers = simulated_cluster.listeners["SASL_PLAINTEXT"]
    assert (simulated_cluster.bootstrap, servers) == ("broker:9092", "broker:9093")
    async with Producer(bootstrap_servers=servers, **_LOGIN, sasl_password="for tests") as producer:
        await producer.send_and_wait("orders", b"1")
    with pytest.raises(AuthenticationFailed):
        await Producer(bootstrap_servers=servers, **_LOGIN, sasl_password="guessed").start()


@pytest.mark.parametrize("listener", ["PLAINTEXT://broker:0", "PLAINTEXT://:9092"])
def test_a_listener_without_an_address_is_refused(listener: str) -> None:
    async def test(cluster: SimulatedCluster) -> None: ...

    with pytest.raises(Violation) as caught:
        run_test("t", test, [1], settings={"listeners": listener})
    assert "the simulated network chooses no addresses" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("3", "takes its arguments by name: seeds=3"),
        ("seed=17", "takes no seed; did you mean seeds?"),
        ("fault=True", "takes no fault; did you mean faults?"),
        ("seeds=0", "takes as seeds a number from 1, or a list of numbers"),
        ("seeds='3'", "takes as seeds a number from 1, or a list of numbers"),
        ("settings={'num.partitons': 1}", "did you mean num.partitions?"),
    ],
)
def test_an_argument_of_the_marker_without_effect_fails_the_test(
    arguments: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        f"@pytest.mark.simulated({arguments})\n"
        "async def test_it(simulated_cluster):\n"
        "    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert problem in done.stdout
