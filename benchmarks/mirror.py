"""A move to another cluster: `odradek mirror` beside MirrorMaker 2.

    python -m benchmarks.mirror [--records 10000000] [--topics 20] [--groups 50] [--kills 0]
        [--ways out,in,mm2-out,mm2-in,mm2-out-once] [--codec none] [--folder DIR] [--json]

The source is one node of Apache Kafka. Each topic has four partitions, filled with numbered records
of 100 bytes; each group has committed a position in every partition of two topics. A way moves
everything to a new target: another node of Kafka (`out`: exactly once; `mm2-out`: at least once;
`mm2-out-once`: exactly once) or a broker of ours (`in`: with the same offsets; `mm2-in`).

Times run from the start of the mirroring process until it ends. MirrorMaker does not end: its time
ends when the target has got its last record, and its groups get another minute. With `--kills N`
the process is killed (signal 9) and started again N times on the way. Afterwards each partition of
the target is read: every record has to be there once and in order, or the table says how many are
lost, doubled or late. "Groups exact": committed positions whose next record is the one that the
group would have read next at the source; the others would read records again, or skip some.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.race.contenders import kafka_is_there
from benchmarks.support import (
    Report,
    cpu_s,
    odradek_broker,
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

from odradek_client.admin import Admin

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from kafka_cluster import LOG_SETTINGS, KafkaCluster, free_ports, java, mirror_class_path

PARTITIONS = 4
_RECORD_BYTES = 100
_TOPICS_OF_A_GROUP = 2
_DEADLINE_S = 3_600.0
_GROUPS_S = 60.0
_LOOK_S = 0.5
#: MirrorMaker has moved everything if the target has got no record for so long.
_STILL_S = 10.0
_READ_AT_ONCE = 10_000
#: Each read of a partition waits for so long when it has come to the end.
_READ_S = 0.2
_NOBODY = -1

Where = tuple[str, int]


@dataclass(frozen=True)
class Load:
    """The records and positions of the source. `counts`: records of each partition; `positions`:
    of each group, the number of the next record in partitions."""

    counts: dict[Where, int]
    positions: dict[str, dict[Where, int]]

    @property
    def records(self) -> int:
        return sum(self.counts.values())


@dataclass
class Cost:
    """The cost of the mirroring processes of one way."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0


@dataclass
class Arrived:
    """The result of reading a target. `at`: for each wanted offset the number of the next record;
    the number behind the last one for the end."""

    lost: int = 0
    doubled: int = 0
    late: int = 0
    at: dict[Where, dict[int, int]] = field(default_factory=dict)


# --- The source -----------------------------------------------------------------------------------


def fill(bootstrap: str, topics: int, records: int, groups: int, codec: str) -> Load:
    """Create topics, records and groups."""
    names = [f"moved-{number:02}" for number in range(topics)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        created.result(60)
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
    each = records // (topics * PARTITIONS)
    padding = "x" * (_RECORD_BYTES - 10)
    for number in range(each):
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
    counts = {(name, partition): each for name in names for partition in range(PARTITIONS)}
    chance = random.Random(1)
    positions = {
        f"group-{number:02}": {
            (name, partition): chance.randint(0, each)
            for name in chance.sample(names, min(_TOPICS_OF_A_GROUP, topics))
            for partition in range(PARTITIONS)
        }
        for number in range(groups)
    }
    run_on_uvloop(_commit(bootstrap, positions))
    return Load(counts, positions)


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
    """A way to move. `ends`: the process ends when all is done."""

    command: Callable[[str, str, Path], list[str]]
    to_kafka: bool
    ends: bool


WAYS = {
    "out": Way(_own, to_kafka=True, ends=True),
    "in": Way(_own, to_kafka=False, ends=True),
    "mm2-out": Way(lambda *where: _mirror_maker(*where, once=False), to_kafka=True, ends=False),
    "mm2-in": Way(lambda *where: _mirror_maker(*where, once=False), to_kafka=False, ends=False),
    "mm2-out-once": Way(lambda *where: _mirror_maker(*where, once=True), to_kafka=True, ends=False),
}


def move(
    held: contextlib.ExitStack,
    way: Way,
    source: str,
    target: str,
    load: Load,
    folder: Path,
    kills: int,
) -> Cost:
    """Run a way to its end. SystemExit if it fails, or takes longer than an hour. `held` ends the
    processes if the benchmark ends before them."""
    cost = Cost()
    started_s = time.perf_counter()
    due = [load.records * (number + 1) // (kills + 1) for number in range(kills)]
    command = way.command(source, target, folder)
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
                there = _records_at(target, load)
            if there != before:
                changed_s = time.perf_counter()
            if due and there >= due[0]:
                due.pop(0)
                say(f"  kill -9 with {there:,} records at the target")
                process.kill()
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
    """The sum of the target's ends; markers count as records. 0 while topics are being created."""
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
    # Not with confluent-kafka 2.16, which crashes on positions with a leader epoch.
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
    """The number of positions that are exact at the target, and of all."""
    pairs = [
        (arrived.at[where].get(positions[group].get(where, _NOBODY)), number)
        for group, wanted in load.positions.items()
        for where, number in wanted.items()
    ]
    return sum(there == number for there, number in pairs), len(pairs)


# --- The table ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _target(way: Way, folder: Path) -> Iterator[str]:
    if not way.to_kafka:
        with odradek_broker("fsync", metrics=False, data_dir=folder / "ours") as broker:
            yield broker.bootstrap
        return
    cluster = KafkaCluster(folder / "kafka")
    cluster.start()
    try:
        yield cluster.bootstrap
    finally:
        cluster.stop()


def run(report: Report, name: str, source: str, load: Load, folder: Path, kills: int) -> None:
    """Move everything in one way, look at the target, and print the row."""
    way = WAYS[name]
    folder.mkdir()
    with _target(way, folder) as target, contextlib.ExitStack() as held:
        say(f"{name}: moving")
        cost = move(held, way, source, target, load, folder, kills)
        say(f"{name}: {cost.seconds:.0f} s; reading the target")
        positions = positions_at(target, list(load.positions))
        wanted: dict[Where, set[int]] = {}
        for found in positions.values():
            for where, offset in found.items():
                wanted.setdefault(where, set()).add(offset)
        arrived = read(target, load, wanted)
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
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--records", type=int, default=10_000_000)
    options.add_argument("--topics", type=int, default=20)
    options.add_argument("--groups", type=int, default=50)
    options.add_argument("--kills", type=int, default=0, help="of the mirroring process")
    options.add_argument("--ways", default=",".join(WAYS), help="which, in this order")
    options.add_argument("--codec", default="none", help="compression of the source's batches")
    options.add_argument("--folder", help="for data; needs ten times the records' bytes")
    arguments = options.parse_args()
    if not kafka_is_there():
        raise SystemExit(1)
    report = Report("mirror", as_json=arguments.json)
    report.machine()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        folder = Path(made)
        cluster = KafkaCluster(folder / "source")
        cluster.start()
        try:
            say("filling the source")
            load = fill(
                cluster.bootstrap,
                arguments.topics,
                arguments.records,
                arguments.groups,
                arguments.codec,
            )
            kills = f", {arguments.kills} kills" if arguments.kills else ""
            report.table(
                f"{load.records:,} records of {_RECORD_BYTES} bytes ({arguments.codec}) in"
                f" {arguments.topics} topics, {arguments.groups} groups{kills}",
                (
                    *("way", "seconds", "records/s", "CPU s", "records/s per core"),
                    *("peak MB", "lost / doubled / late", "groups exact"),
                ),
            )
            for name in arguments.ways.split(","):
                run(report, name, cluster.bootstrap, load, folder / name, arguments.kills)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
