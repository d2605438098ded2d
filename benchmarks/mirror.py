"""Costs of a move to another cluster: `odradek mirror` compared with MirrorMaker 2.

    python -m benchmarks.mirror [--records 10000000] [--topics 20] [--groups 50] [--queries]
        [--kills 0] [--target-kills 0] [--ways out,mm2-out,mm2-out-once,in,mm2-in]
        [--codec none] [--folder DIR] [--json]

The ways "out" lead from a broker of ours to a node of Apache Kafka (`out`: exactly once; `mm2-out`:
at least once; `mm2-out-once`: exactly once), and the ways "in" from a node of Kafka to a broker of
ours (`in`: with the same offsets; `mm2-in`: at least once). Each topic of the source has four
partitions, filled with numbered records of 100 bytes; each group has committed a position in every
partition of two topics. Each way gets a new target.

Times run from the start of the mirroring process until it ends. MirrorMaker does not end, so its
time is measured until the target has the last record, and it gets another minute for the groups.
With `--kills N` the mirroring process is killed (signal 9) and started again N times during the
move. With `--target-kills N` the target is killed and started again N times. Afterwards each
partition of the target is read. Every record has to be there once and in order; otherwise the table
says how many records are lost, doubled or late. "Groups exact" is the number of committed positions
whose next record is the record that the group would have read next at the source. With any other
position the group would read records again, or skip some.

With `--queries` two Spark queries (`benchmarks.moved_queries`) read the first half of their topics
at the source, and continue at the target: for `out` with checkpoints that `odradek mirror
checkpoint` has translated, for `in` with unchanged checkpoints. "Queries exact" is the number of
queries that in the end have written each record once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.moved_queries import COPY, READS, checkpoint
from benchmarks.race.contenders import kafka_is_there
from benchmarks.support import (
    Report,
    cpu_s,
    parser,
    run_on_uvloop,
    say,
    shown,
)
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from kafka_cluster import LOG_SETTINGS, KafkaCluster, free_ports, java, mirror_class_path

PARTITIONS = 4
_RECORD_BYTES = 100
_TOPICS_OF_A_GROUP = 2
_DEADLINE_S = 3_600.0
_GROUPS_S = 60.0
_LOOK_S = 0.5
#: The time in seconds without a new record at the target after which MirrorMaker has moved
#: everything.
_STILL_S = 10.0
_READ_AT_ONCE = 10_000
#: The time in seconds that each read of a partition waits at the end of the partition.
_READ_S = 0.2
_QUERIES_S = 900
_NOBODY = -1

Where = tuple[str, int]


@dataclass(frozen=True)
class Load:
    """The records and positions of the source. `counts` has the number of records in each
    partition. `positions` has for each group the number of the next record in each of the group's
    partitions.
    """

    counts: dict[Where, int]
    positions: dict[str, dict[Where, int]]

    @property
    def records(self) -> int:
        return sum(self.counts.values())


@dataclass
class Cost:
    """The cost of the mirroring processes for one of `WAYS`."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0


@dataclass
class Arrived:
    """The result of reading a target.

    `at`: partition -> wanted offset -> number in the first record from this offset on. If there
    is no such record, the number is the partition's number of records.
    """

    lost: int = 0
    doubled: int = 0
    late: int = 0
    at: dict[Where, dict[int, int]] = field(default_factory=dict)


# --- The source -----------------------------------------------------------------------------------


def fill(bootstrap: str, options: Namespace, at_half: Callable[[], None]) -> Load:
    """Create topics, records and groups. `at_half` is called when half of the records are
    produced."""
    names = [f"moved-{number:02}" for number in range(options.topics)]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (*names, COPY)]
    for created in admin.create_topics(topics).values():
        created.result(60)
    each = options.records // (options.topics * PARTITIONS)
    _produce(bootstrap, names, range(each // 2), options.codec)
    at_half()
    _produce(bootstrap, names, range(each // 2, each), options.codec)
    counts = {(name, partition): each for name in names for partition in range(PARTITIONS)}
    chance = random.Random(1)
    positions = {
        f"group-{number:02}": {
            (name, partition): chance.randint(0, each)
            for name in chance.sample(names, min(_TOPICS_OF_A_GROUP, options.topics))
            for partition in range(PARTITIONS)
        }
        for number in range(options.groups)
    }
    run_on_uvloop(_commit(bootstrap, positions))
    return Load(counts, positions)


def _produce(bootstrap: str, names: Sequence[str], numbers: range, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 16_384,
            "compression.type": codec,
            "queue.buffering.max.messages": 1_000_000,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    padding = "x" * (_RECORD_BYTES - 10)
    for number in numbers:
        value = f"{number:010}{padding}"
        for name in names:
            for partition in range(PARTITIONS):
                while True:
                    try:
                        producer.produce(name, value, partition=partition)
                        break
                    except BufferError:
                        producer.poll(0.05)
        producer.poll(0)
    if producer.flush(600):
        raise SystemExit("the source did not take all records")


async def _commit(bootstrap: str, positions: dict[str, dict[Where, int]]) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        for group, found in positions.items():
            await admin.alter_group_offsets(group, found)


# --- The ways -------------------------------------------------------------------------------------


def _own(source: str, target: str, _: Path) -> list[str]:
    words = ("mirror", "--from", source, "--to", target, "--topics", "moved-.*")
    return [sys.executable, "-m", "odradek", *words, "--name", "bench"]


def _mirror_maker(source: str, target: str, folder: Path, *, once: bool) -> list[str]:
    lines = {
        "clusters": "source,target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "source->target.topics": "moved-.*",
        "source->target.groups": "group-.*",
        "source->target.sync.group.offsets.enabled": "true",
        "source->target.sync.group.offsets.interval.seconds": "5",
        "source->target.emit.checkpoints.interval.seconds": "5",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "emit.heartbeats.enabled": "false",
        "tasks.max": "4",
    }
    topics = ("checkpoints.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    for name in (*topics, "config.storage", "heartbeats.topic"):
        lines[f"{name}.replication.factor"] = "1"
    lines["replication.factor"] = "1"
    if once:
        lines["target.exactly.once.source.support"] = "enabled"
        lines["dedicated.mode.enable.internal.rest"] = "true"
        lines["listeners"] = f"http://127.0.0.1:{free_ports(1)[0]}"
    file = folder / "mirror-maker.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    log = folder / "log4j2.xml"
    log.write_text(LOG_SETTINGS)
    options = ("-Xms256m", "-Xmx2g", f"-Dlog4j2.configurationFile={log}")
    return [java(), *options, "-cp", mirror_class_path(), main, str(file)]


@dataclass(frozen=True)
class Way:
    """A way to move. `ends`: true if the process ends when everything is moved. `out`: true from
    our broker to Kafka, false from Kafka to our broker."""

    command: Callable[[str, str, Path], list[str]]
    out: bool
    ends: bool


WAYS = {
    "out": Way(_own, out=True, ends=True),
    "mm2-out": Way(lambda *where: _mirror_maker(*where, once=False), out=True, ends=False),
    "mm2-out-once": Way(lambda *where: _mirror_maker(*where, once=True), out=True, ends=False),
    "in": Way(_own, out=False, ends=True),
    "mm2-in": Way(lambda *where: _mirror_maker(*where, once=False), out=False, ends=False),
}


class Place(Protocol):
    """A cluster of one node."""

    @property
    def bootstrap(self) -> str: ...
    def restart(self) -> None:
        """Kill the node (signal 9) and start it again."""


class Ours(Place):
    """Our broker, with durability fsync."""

    def __init__(self, folder: Path) -> None:
        self._broker = SubprocessBroker(
            data_dir=folder / "ours", settings={"log.segment.delete.delay.ms": 0}
        )

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def restart(self) -> None:
        self._broker.kill()
        self._broker.start()

    def __enter__(self) -> Place:
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()


class Theirs(Place):
    """A node of Apache Kafka, as shipped."""

    def __init__(self, folder: Path) -> None:
        self._cluster = KafkaCluster(folder / "kafka")

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def restart(self) -> None:
        (node,) = self._cluster.nodes
        node.kill()
        node.start()
        node.wait_until_up()

    def __enter__(self) -> Place:
        self._cluster.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.stop()


def move(
    held: contextlib.ExitStack,
    way: Way,
    source: str,
    target: Place,
    load: Load,
    folder: Path,
    options: Namespace,
) -> Cost:
    """Mirror everything by one of `WAYS`. Raises SystemExit if that fails or takes an hour.

    `held` ends the mirroring processes if the benchmark ends first.
    """
    cost = Cost()
    started_s = time.perf_counter()
    due = sorted(
        (int(load.records * (number + after) / kills), whom)
        for whom, kills, after in (
            ("mirror", options.kills, 0.3),
            ("target", options.target_kills, 0.6),
        )
        for number in range(kills)
    )
    command = way.command(source, target.bootstrap, folder)
    log_path = folder / "mirror.log"
    there = changed_s = 0.0
    while True:
        with log_path.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        held.callback(process.kill)
        spent_s, done = 0.0, False
        while process.poll() is None and not done:
            time.sleep(_LOOK_S)
            spent_s = cpu_s(process.pid) or spent_s
            cost.peak_mb = max(cost.peak_mb, _peak_mb(process.pid))
            if time.perf_counter() - started_s > _DEADLINE_S:
                process.kill()
                raise SystemExit(f"not done after {_DEADLINE_S} s: see {log_path}")
            before = there
            if due or not way.ends:
                there = _records_at(target.bootstrap, load)
            if there != before:
                changed_s = time.perf_counter()
            if due and there >= due[0][0]:
                _, whom = due.pop(0)
                say(f"  kill -9 of the {whom} with {there:,} records at the target")
                if whom == "mirror":
                    process.kill()
                else:
                    target.restart()
            still = time.perf_counter() - changed_s > _STILL_S
            done = not way.ends and not due and there >= load.records and still
        cost.cpu_s += spent_s
        if process.poll() is None:
            cost.seconds = changed_s - started_s
            time.sleep(_GROUPS_S)
            process.terminate()
        elif process.returncode == 0:
            cost.seconds = time.perf_counter() - started_s
        elif process.returncode != -signal.SIGKILL:
            raise SystemExit(f"exit code {process.returncode}:\n{log_path.read_text()[-2000:]}")
        process.wait()
        if cost.seconds:
            return cost


def _peak_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _records_at(bootstrap: str, load: Load) -> int:
    """The sum of the end offsets at the target, with transaction markers included; 0 while topics
    are being created.
    """
    consumer = _consumer(bootstrap)
    try:
        known = consumer.list_topics(timeout=30).topics
        return sum(
            consumer.get_watermark_offsets(TopicPartition(*where), timeout=30)[1]
            for where in load.counts
            if where[0] in known and where[1] in known[where[0]].partitions
        )
    except KafkaException:
        return 0
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-the-benchmark",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 65_536,
            "log_level": 0,
        }
    )


# --- The target, read -----------------------------------------------------------------------------


def read(bootstrap: str, load: Load, wanted: dict[Where, set[int]]) -> Arrived:
    """Read every partition of the target, one after the other."""
    arrived = Arrived()
    consumer = _consumer(bootstrap)
    for where, count in load.counts.items():
        consumer.assign([TopicPartition(*where, 0)])
        open_offsets = sorted(wanted.get(where, ()), reverse=True)
        found = arrived.at.setdefault(where, {})
        seen = bytearray(count)
        highest = -1
        at_end = False
        while not at_end:
            for message in consumer.consume(_READ_AT_ONCE, timeout=_READ_S):
                if message.error() is not None:
                    at_end = True
                    continue
                value, offset = message.value(), message.offset()
                assert value is not None
                assert offset is not None
                number = int(value[:10])
                while open_offsets and open_offsets[-1] <= offset:
                    found[open_offsets.pop()] = number
                if seen[number]:
                    arrived.doubled += 1
                elif number < highest:
                    arrived.late += 1
                seen[number] = 1
                highest = max(highest, number)
        arrived.lost += count - sum(seen)
        for offset in open_offsets:
            found[offset] = count
    consumer.close()
    return arrived


def positions_at(bootstrap: str, groups: Sequence[str]) -> dict[str, dict[Where, int]]:
    """The committed offsets of groups at the target."""
    return run_on_uvloop(_positions_at(bootstrap, groups))


async def _positions_at(bootstrap: str, groups: Sequence[str]) -> dict[str, dict[Where, int]]:
    # Our client is used, because confluent-kafka 2.16 crashes on positions with a leader epoch.
    async with Admin(bootstrap_servers=bootstrap) as admin:
        return {
            group: {
                (tp.topic, tp.partition): found.offset
                for tp, found in (await admin.list_group_offsets(group)).items()
                if found is not None
            }
            for group in groups
        }


def exact(load: Load, positions: dict[str, dict[Where, int]], arrived: Arrived) -> tuple[int, int]:
    """(the number of positions that are exact at the target, the number of all positions)."""
    pairs = [
        (arrived.at[where].get(positions[group].get(where, _NOBODY)), number)
        for group, wanted in load.positions.items()
        for where, number in wanted.items()
    ]
    return sum(there == number for there, number in pairs), len(pairs)


# --- The table ------------------------------------------------------------------------------------


class Queries:
    """The two Spark queries, with the output that they have written at the source.

    Spark's list of written files has absolute paths, so the queries must continue in the same
    `folder`. For each way, the folder is restored to its state at the source.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._begun = folder, folder.with_name("queries-begun")

    def begin(self, source: str) -> None:
        """Let the queries read all records at the source."""
        _spark("run", source, self._folder)
        shutil.copytree(self._folder, self._begun)

    def go_on(self, target: str, load: Load, *, translate: bool) -> int:
        """Let the queries continue at a target. Returns the number of queries that have written
        each record once."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._begun, self._folder)
        if translate:
            for query in READS:
                new = checkpoint(self._folder, query)
                shutil.rmtree(new)
                words = (str(checkpoint(self._begun, query)), str(new))
                _odradek("mirror", "checkpoint", *words, "--to", target, "--name", "bench")
        _spark("run", target, self._folder)
        found: dict[str, tuple[int, int]] = json.loads(_spark("count", target, self._folder))
        exact = 0
        for query, topic in READS.items():
            count = sum(number for where, number in load.counts.items() if where[0] == topic)
            rows, distinct = found[query]
            if rows == distinct == count:
                exact += 1
            else:
                say(f"  query {query}: {rows:,} rows, {distinct:,} differ, of {count:,}")
        return exact


def _spark(action: str, bootstrap: str, folder: Path) -> str:
    command = [sys.executable, "-m", "benchmarks.moved_queries", action, bootstrap, str(folder)]
    return _output(command, {**os.environ, "PYSPARK_PYTHON": sys.executable})


def _odradek(*words: str) -> str:
    return _output([sys.executable, "-m", "odradek", *words], None)


def _output(command: Sequence[str], environment: dict[str, str] | None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_QUERIES_S, env=environment
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    return done.stdout


@dataclass
class Source:
    """A filled source cluster."""

    bootstrap: str
    load: Load
    queries: Queries | None


def filled(held: contextlib.ExitStack, way: Way, folder: Path, options: Namespace) -> Source:
    """Start the source cluster for one of `WAYS`, and fill it."""
    folder.mkdir()
    place = held.enter_context(Ours(folder) if way.out else Theirs(folder))
    say(f"filling the source of the ways {'out' if way.out else 'in'}")
    queries = Queries(folder / "queries") if options.queries else None

    def at_half() -> None:
        if queries is not None:
            queries.begin(place.bootstrap)

    return Source(place.bootstrap, fill(place.bootstrap, options, at_half), queries)


def run(report: Report, name: str, source: Source, folder: Path, options: Namespace) -> None:
    """Mirror everything by one of `WAYS`, check the target, and print the row."""
    way, load = WAYS[name], source.load
    folder.mkdir()
    queries_exact = None
    with contextlib.ExitStack() as held:
        target = held.enter_context(Theirs(folder) if way.out else Ours(folder))
        say(f"{name}: moving")
        cost = move(held, way, source.bootstrap, target, load, folder, options)
        say(f"{name}: {cost.seconds:.0f} s; reading the target")
        positions = positions_at(target.bootstrap, list(load.positions))
        wanted: dict[Where, set[int]] = {}
        for found in positions.values():
            for where, offset in found.items():
                wanted.setdefault(where, set()).add(offset)
        arrived = read(target.bootstrap, load, wanted)
        if source.queries is not None and way.ends:
            if not way.out:
                _odradek("mirror", "promote", "--to", target.bootstrap, "--topics", "moved-.*")
            queries_exact = source.queries.go_on(target.bootstrap, load, translate=way.out)
    shutil.rmtree(folder)
    same, of = exact(load, positions, arrived)
    per_s, per_core = load.records / cost.seconds, load.records / (cost.cpu_s or 1)
    report.row(
        (
            name,
            *(f"{cost.seconds:,.0f}", f"{per_s:,.0f}", f"{cost.cpu_s:,.0f}", f"{per_core:,.0f}"),
            shown(cost.peak_mb),
            f"{arrived.lost:,} / {arrived.doubled:,} / {arrived.late:,}",
            f"{same:,} of {of:,}",
            "" if queries_exact is None else f"{queries_exact} of {len(READS)}",
        ),
        seconds=cost.seconds,
        records_per_s=per_s,
        cpu_s=cost.cpu_s,
        records_per_core_s=per_core,
        peak_mb=cost.peak_mb,
        lost=arrived.lost,
        doubled=arrived.doubled,
        late=arrived.late,
        positions_exact=same,
        positions=of,
        queries_exact=queries_exact,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--records", type=int, default=10_000_000)
    options.add_argument("--topics", type=int, default=20)
    options.add_argument("--groups", type=int, default=50)
    options.add_argument("--queries", action="store_true", help="two Spark queries move too")
    options.add_argument("--kills", type=int, default=0, help="of the mirroring process")
    options.add_argument("--target-kills", type=int, default=0, help="of the target")
    options.add_argument("--ways", default=",".join(WAYS), help="which, in this order")
    options.add_argument("--codec", default="none", help="compression of the source's batches")
    options.add_argument("--folder", help="for data; needs ten times the records' bytes")
    arguments = options.parse_args()
    if not kafka_is_there():
        raise SystemExit(1)
    report = Report("mirror", as_json=arguments.json)
    report.machine()
    kills = f", {arguments.kills} kills of the mirror" if arguments.kills else ""
    kills += f", {arguments.target_kills} of the target" if arguments.target_kills else ""
    report.table(
        f"{arguments.records:,} records of {_RECORD_BYTES} bytes ({arguments.codec}) in"
        f" {arguments.topics} topics, {arguments.groups} groups{kills}",
        (
            *("way", "seconds", "records/s", "CPU s", "records/s per core"),
            *("peak MB", "lost / doubled / late", "groups exact", "queries exact"),
        ),
    )
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder) as made,
        contextlib.ExitStack() as held,
    ):
        folder = Path(made)
        sources: dict[bool, Source] = {}
        for name in arguments.ways.split(","):
            way = WAYS[name]
            if way.out not in sources:
                place = folder / ("source-out" if way.out else "source-in")
                sources[way.out] = filled(held, way, place, arguments)
            run(report, name, sources[way.out], folder / name, arguments)


if __name__ == "__main__":
    main()
