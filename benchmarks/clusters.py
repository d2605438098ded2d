"""Costs of giving each test its own cluster, measured first without tests and then in a suite of
small tests.

    python -m benchmarks.clusters [--tests 200] [--workers 2] [--rounds 3] [--json]
    python -m benchmarks.clusters --shuffled 20

First, 1,000 clusters are created and deleted, one after the other. The table has the milliseconds
for each cluster, and the memory and open files of the process that makes the clusters. Then a suite
of small tests runs with our client, confluent-kafka and aiokafka. Each test writes three records
and reads them, every second test as a member of a group. The suite runs with `odradek_cluster`,
where all tests use one topic name and one group name; with one broker, where each test has its own
names; and, for confluent-kafka, with a mock broker of librdkafka for each test. `--shuffled N`
instead runs the suite N times in random orders; a test that sees a record of another test fails.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support import Report, Spread, parser, percentile, resident_bytes, say

from odradek.clusters import Clusters

_CHAIN = 1_000
_SUITE_S = 600.0

_CONFTEST = '''
import os
import random

import confluent_kafka
import pytest


@pytest.fixture
def place(request):
    """(bootstrap, topic, group) of a test."""
    way = os.environ["WAY"]
    if way == "cluster":
        return request.getfixturevalue("odradek_cluster").bootstrap, "orders", "workers"
    if way == "names":
        broker = request.getfixturevalue("odradek_broker_session")
        topic = request.getfixturevalue("unique_topic")
        return broker.bootstrap, topic, topic
    held = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(held.list_topics(timeout=20).brokers.values()))
    request.addfinalizer(lambda: held.flush(0))
    return f"{broker.host}:{broker.port}", "orders", "workers"


def pytest_collection_modifyitems(items):
    seed = os.environ.get("SEED")
    if seed:
        random.Random(int(seed)).shuffle(items)
'''

_SUITE = """
import asyncio
import os

import aiokafka
import confluent_kafka
import pytest

from odradek import sync

CLIENTS = os.environ["CLIENTS"].split(",")


def ours(bootstrap, topic, group, values):
    with sync.Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send_and_wait(topic, value)
    read = []
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    with sync.Consumer(topic, bootstrap_servers=bootstrap, **settings) as consumer:
        while len(read) < len(values):
            read += [record.value for record in consumer.poll(timeout_ms=1000)]
    return read


def confluent(bootstrap, topic, group, values):
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap, "group.id": group or "none", "auto.offset.reset": "earliest",
    })
    if group:
        consumer.subscribe([topic])
    else:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read = []
    while len(read) < len(values):
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    return read


def aio(bootstrap, topic, group, values):
    async def main():
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)
        settings = {"group_id": group, "auto_offset_reset": "earliest"}
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, **settings
        ) as consumer:
            return [(await consumer.getone()).value for _ in values]

    return asyncio.run(main())


@pytest.mark.parametrize("number", range(int(os.environ["TESTS"])))
def test_small(place, number):
    bootstrap, topic, group = place
    client = globals()[CLIENTS[number % len(CLIENTS)]]
    as_group = number // len(CLIENTS) % 2 == 1
    values = [b"%d-%d" % (number, each) for each in range(3)]
    assert client(bootstrap, topic, group if as_group else None, values) == values
"""

_PASSED = re.compile(r"(\d+) passed in ([0-9.]+)s")


def chain(report: Report) -> None:
    """Create and delete clusters, one after the other."""
    say(f"{_CHAIN} clusters")
    creating: list[float] = []
    deleting: list[float] = []
    sizes: list[tuple[int, int]] = []
    with Clusters() as clusters:
        process = clusters._process
        assert process is not None
        for number in range(_CHAIN):
            started = time.perf_counter()
            cluster = clusters.create()
            made = time.perf_counter()
            # The pause takes as long as a small test, so that the next broker can be started.
            time.sleep(0.03)
            closing = time.perf_counter()
            cluster.close()
            creating.append((made - started) * 1000)
            deleting.append((time.perf_counter() - closing) * 1000)
            if number in (_CHAIN // 10, _CHAIN - 1):
                files = len(os.listdir(f"/proc/{process.pid}/fd"))
                sizes.append((resident_bytes(process.pid) or 0, files))
    report.table(
        f"{_CHAIN} clusters in a row, each kept for 30 ms",
        ("", "median ms", "p99 ms"),
    )
    for name, times in (("create", creating), ("delete", deleting)):
        median, p99 = percentile(times, 0.5), percentile(times, 0.99)
        report.row((name, f"{median:.1f}", f"{p99:.1f}"), median_ms=median, p99_ms=p99)
    (early, files_early), (late, files_late) = sizes
    report.note(
        f"The process that makes them: {early / 1e6:.1f} MB and {files_early} open files after "
        f"{_CHAIN // 10}, {late / 1e6:.1f} MB and {files_late} at the end."
    )


def run_suite(
    folder: Path, way: str, clients: str, tests: int, *options: str, seed: str = ""
) -> float:
    """Run the suite. Returns the seconds of each test, as pytest reports them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)],
        capture_output=True,
        text=True,
        timeout=_SUITE_S,
        cwd=folder,
        env={**os.environ, "WAY": way, "CLIENTS": clients, "TESTS": str(tests), "SEED": seed},
        check=False,
    )
    found = _PASSED.search(done.stdout)
    if done.returncode or found is None or int(found[1]) != tests:
        raise SystemExit(f"the suite failed ({way}):\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    return float(found[2]) / tests


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--tests", type=int, default=200, help="tests of the suite")
    made.add_argument("--workers", type=int, default=2, help="workers of pytest-xdist")
    made.add_argument("--rounds", type=int, default=3, help="runs of each suite, in turns")
    made.add_argument(
        "--shuffled", type=int, default=0, help="only run the suite, in random orders"
    )
    arguments = made.parse_args()
    report = Report("clusters", as_json=arguments.json)
    with tempfile.TemporaryDirectory(prefix="odradek-suite-") as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(_CONFTEST)
        (folder / "test_suite.py").write_text(_SUITE)
        everyone = "ours,confluent,aio"
        if arguments.shuffled:
            for _ in range(arguments.shuffled):
                seed = str(random.randrange(1_000_000))
                options = (f"-n{arguments.workers}", "--dist=worksteal")
                run_suite(folder, "cluster", everyone, arguments.tests, *options, seed=seed)
                say(f"seed {seed}: no test saw a record of another one")
            return
        report.machine()
        chain(report)
        ways = [
            (clients, way, workers)
            for clients, ways in (
                (everyone, ("cluster", "names")),
                ("ours", ("cluster", "names")),
                ("confluent", ("cluster", "names", "mock")),
                ("aio", ("cluster", "names")),
            )
            for way in ways
            for workers in (0, arguments.workers)
        ]
        seconds: dict[tuple[str, str, int], list[float]] = {each: [] for each in ways}
        for _ in range(arguments.rounds):
            for each in ways:
                clients, way, workers = each
                took = run_suite(folder, way, clients, arguments.tests, f"-n{workers}")
                seconds[each].append(took)
                say(f"{clients} {way} -n{workers}: {took * 1000:.0f} ms a test")
    report.table(
        f"Milliseconds a test in a suite of {arguments.tests}, the start of everything included",
        ("", "one after the other", f"{arguments.workers} workers"),
    )
    for clients, way in dict.fromkeys((clients, way) for clients, way, _ in ways):
        alone = Spread.of([each * 1000 for each in seconds[clients, way, 0]])
        together = Spread.of([each * 1000 for each in seconds[clients, way, arguments.workers]])
        report.row(
            (f"{clients}, {way}", f"{alone.median:.0f}", f"{together.median:.0f}"),
            alone_ms=alone.median,
            workers_ms=together.median,
        )


if __name__ == "__main__":
    main()
