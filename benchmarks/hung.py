"""The time that a producer waits for acknowledgements while one broker of three hangs.

    python -m benchmarks.hung [--rounds 3] [--json]

One of three nodes of Apache Kafka (which needs Java) is stopped with SIGSTOP, and continued after
half a minute. Before and during the stop, our producer and that of confluent-kafka (librdkafka),
both with their default settings, send a record every 50 ms to each of three partitions with
different leaders. The result is the longest time from a record to its acknowledgement: first for
the partition of the hanging node, and second for the worse of the other partitions. On these other
partitions, too, nothing is acknowledged until Kafka has noticed the stop (broker.session.timeout.ms
is 9 s) and elected leaders. So the second number is caused by Kafka, and the difference of the two
numbers by the client.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

from benchmarks.support import Report, Spread, parser, say

from odradek import Admin, NewTopic, Producer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from kafka_cluster import KafkaCluster

PARTITIONS = 3
_PERIOD_S = 0.05
_BEFORE_S, _HUNG_S, _AFTER_S = 5.0, 30.0, 5.0
#: The longest wait for an acknowledgement in each partition, in seconds.
Waits = dict[int, float]


async def ours(bootstrap: str, topic: str, until: float) -> Waits:
    waits: Waits = defaultdict(float)

    async def one(producer: Producer, partition: int) -> None:
        began = time.monotonic()
        await producer.send_and_wait(topic, b"x", partition=partition)
        waits[partition] = max(waits[partition], time.monotonic() - began)

    async with Producer(bootstrap_servers=bootstrap) as producer, asyncio.TaskGroup() as group:
        while time.monotonic() < until:
            for partition in range(PARTITIONS):
                group.create_task(one(producer, partition))
            await asyncio.sleep(_PERIOD_S)
    return waits


def librdkafka(bootstrap: str, topic: str, until: float, waits: Waits) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )

    def acknowledged(began: float, partition: int, *_: object) -> None:
        waits[partition] = max(waits.get(partition, 0.0), time.monotonic() - began)

    while time.monotonic() < until:
        began = time.monotonic()
        for partition in range(PARTITIONS):
            producer.produce(
                topic,
                b"x",
                partition=partition,
                on_delivery=partial(acknowledged, began, partition),
            )
        while time.monotonic() < began + _PERIOD_S:
            producer.poll(0.005)
    producer.flush()


async def round_of(cluster: KafkaCluster, number: int) -> tuple[int, Waits, Waits]:
    """(the partition of the hanging node, the waits of our producer, the waits of librdkafka's
    producer)."""
    topic = f"hung-{number}"
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
        described = (await admin.describe_topics([topic]))[topic]
    leaders = {each.partition: each.leader for each in described.partitions}
    victim = cluster.nodes[number % len(cluster.nodes)]
    (partition,) = [each for each, leader in leaders.items() if leader == victim.node_id]
    until = time.monotonic() + _BEFORE_S + _HUNG_S + _AFTER_S
    theirs: Waits = {}
    other = threading.Thread(target=librdkafka, args=(cluster.bootstrap, topic, until, theirs))
    other.start()
    mine = asyncio.create_task(ours(cluster.bootstrap, topic, until))
    await asyncio.sleep(_BEFORE_S)
    victim.suspend()
    await asyncio.sleep(_HUNG_S)
    victim.resume()
    await mine
    await asyncio.to_thread(other.join)
    await asyncio.sleep(10)  # until the node leads again
    return partition, mine.result(), theirs


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    report = Report("hung", as_json=options.json)
    report.machine()
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaCluster(Path(folder), 3) as cluster,
    ):
        for number in range(options.rounds):
            say(f"round {number + 1}")
            partition, *both = asyncio.run(round_of(cluster, number))
            for name, waits in zip(("odradek", "librdkafka"), both, strict=True):
                others = max(wait for each, wait in waits.items() if each != partition)
                found[name].append((waits[partition], others))
    report.table(
        "A broker of three hangs: the longest wait for an acknowledgement, s",
        ("producer", "partition that it leads", "other partitions"),
    )
    for name, rounds in found.items():
        led = Spread.of([each for each, _ in rounds])
        elsewhere = Spread.of([each for _, each in rounds])
        report.row((name, str(led), str(elsewhere)), led_s=led.median, others_s=elsewhere.median)


if __name__ == "__main__":
    main()
