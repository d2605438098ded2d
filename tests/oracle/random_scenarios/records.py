"""A partition's log, an idempotent producer, fetch sessions, and a share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.fetch import delete_records, list_offset, offset_for_epoch
from tests.oracle.scenarios.share_fetch import (
    FILLED,
    acknowledge_by_fetch,
    share_acknowledge,
    share_fetch,
)
from tests.oracle.script import (
    NO_SUCH_ID,
    THEN_MS,
    Ask,
    Batch,
    Step,
    Wait,
    fetch_body,
    produce_body,
    producer,
    topic,
)

_TOPICS: Sequence[Mapping[str, str]] = (
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"max.message.bytes": "200"},
    {"cleanup.policy": "compact"},
)
#: Special timestamp -> the first version of ListOffsets that supports the timestamp. The special
#: timestamp -3 (the largest timestamp) is left out.
_SPECIAL_TIMES = {-6: 11, -5: 9, -4: 8, -2: 1, -1: 1}
PRODUCERS = Ask(
    "DescribeProducers",
    {"topics": [{"name": "@t", "partition_indexes": [0, 1]}]},
    ignore=("topics.*.partitions.*.active_producers.*.last_timestamp",),
)
_KINDS = ("write", "write", "write", "list", "list", "list", "trim", "epoch", "fetch")


def log(random: Random) -> list[Step]:
    """Write records of several sizes, times and codecs, read at offsets and times, and delete
    records."""
    settings = random.choice(_TOPICS)
    steps: list[Step] = [*topic(configs=settings)]
    time_ms = THEN_MS
    for _ in range(random.randint(5, 18)):
        match random.choice(_KINDS):
            case "write":
                time_ms += random.choice([-50, 0, 1, 100])
                keyed = "cleanup.policy" in settings and random.random() < 0.8
                steps.append(_write(random, time_ms, keyed))
            case "list":
                when = random.choice([*_SPECIAL_TIMES, 0, time_ms, time_ms + 1, time_ms - 40])
                first = _SPECIAL_TIMES.get(when, 1)
                steps.append(any_version(random, list_offset(when), first))
            case "trim":
                steps.append(any_version(random, delete_records(random.randint(-1, 8))))
            case "epoch":
                ask = offset_for_epoch(random.randint(-1, 2), random.randint(-1, 1))
                steps.append(any_version(random, ask))
            case _:
                body = fetch_body(offset=random.randint(0, 8), isolation_level=random.randint(0, 1))
                body["max_bytes"] = random.choice([1, 150, 1 << 20])
                steps.append(any_version(random, Ask("Fetch", body), first=10))
    return steps


def _write(random: Random, time_ms: int, keyed: bool) -> Step:
    count = random.randint(1, 4)
    batch = Batch(
        [random.choice(["a", "b" * 100, "", None]) for _ in range(count)],
        [random.choice("kl") for _ in range(count)] if keyed else None,
        timestamp_ms=time_ms,
        codec=random.choice(["NONE", "NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"]),
    )
    first = 7 if batch.codec == "ZSTD" else 3
    return any_version(random, Ask("Produce", produce_body(batch)), first)


def idempotent(random: Random) -> list[Step]:
    """Batches of two idempotent producers: in order, repeated, with gaps, and of other epochs."""
    steps: list[Step] = [*topic(partitions=2), *producer(None), *producer(None, save="other")]
    # The next sequence by producer and partition.
    following: dict[tuple[str, int], int] = {}
    bumps = 0
    for _ in range(random.randint(6, 20)):
        pid = random.choice(["pid", "pid", "other"])
        partition = random.randint(0, 1)
        kind = random.choice(["next", "next", "next", "next", "repeat", "any", "bump", "look"])
        if kind == "look":
            steps.append(_look(random))
            continue
        count = random.randint(1, 3)
        sequence = following.get((pid, partition), 0)
        if kind == "repeat":
            sequence = max(0, sequence - random.randint(1, 8))
        elif kind == "any":
            sequence = random.choice([sequence + 1, 0, 5, 2**31 - 2, 2**31 - 1, -1])
        elif kind == "bump":
            bumps += 1
            sequence = random.choice([0, 0, 0, sequence, 1])
        batch = Batch(
            ["a"] * count,
            producer_id=f"${pid}",
            producer_epoch=f"${pid}_epoch+{max(0, bumps + random.choice([0, 0, 0, 0, 0, -1]))}",
            base_sequence=sequence,
        )
        if kind in ("next", "bump"):
            following[pid, partition] = sequence + count
        body = produce_body(batch, partition=partition, acks=random.choice([-1, 1]))
        steps.append(any_version(random, Ask("Produce", body), 3))
    return [*steps, PRODUCERS, *(Ask("Fetch", fetch_body(partition=p), version=12) for p in (0, 1))]


def _look(random: Random) -> Ask:
    trim = delete_records(random.randint(-1, 4))
    return random.choice([PRODUCERS, any_version(random, trim)])


#: The partitions that sessions fetch. Topics have two partitions, so partition 2 of `@t` does not
#: exist; neither does the topic `@absent`.
_FETCHED = (("@t", 0), ("@t", 1), ("@u", 0), ("@u", 1), ("@t", 2), ("@absent", 0))


def fetch_sessions(random: Random) -> list[Step]:
    """Fetches in a session, with partitions that are added, changed, forgotten or do not exist."""
    steps: list[Step] = [*topic(partitions=2), *topic("@u", partitions=2)]
    epoch = 0
    open_session = False
    # Requests have topic names before version 13, and topic ids from version 13 on; a fetch session
    # cannot change from names to ids or back.
    versions = random.choice([(7, 12), (13, 17)])
    for _ in range(random.randint(5, 16)):
        kind = random.choice(["write", "write", "fetch", "fetch", "fetch", "trim", "close"])
        if kind == "write":
            name, partition = random.choice(_FETCHED[:4])
            body = produce_body(Batch(["n"] * random.randint(1, 3)), name, partition)
            steps.append(Ask("Produce", body, quiet=True))
            continue
        if kind == "trim":
            steps.append(delete_records(random.randint(0, 3)))
            continue
        used = epoch
        if random.random() < 0.1:
            used = random.choice([0, epoch + 1, epoch - 1, -1])
        if kind == "close" and random.random() < 0.3:
            used = -1
        body = _session_body(random, used if open_session else 0, whole=not open_session)
        save = {}
        if used == 0 or not open_session:
            body["session_id"] = 0
            save = {"s": "session_id"}
            open_session, used = True, 0
        ask = Ask("Fetch", body, save=save, version=random.randint(*versions))
        steps.append(ask)
        epoch = used + 1
        if used == -1:
            open_session = False
    return steps


def _session_body(random: Random, epoch: int, *, whole: bool) -> dict[str, Any]:
    named = random.sample(_FETCHED, k=random.randint(1, 4) if whole else random.randint(0, 2))
    forgotten = [] if whole else random.sample(_FETCHED, k=random.choice([0, 0, 1]))
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, partition in named:
        topics.setdefault(name, []).append(
            {
                "partition": partition,
                "current_leader_epoch": random.choice([-1, -1, -1, 0, 1]),
                "fetch_offset": random.choice([0, 0, 1, 2, 3, 50]),
                "partition_max_bytes": random.choice([1 << 20, 1 << 20, 1, 100]),
            }
        )
    return {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": random.choice([1 << 20, 1 << 20, 1, 200]),
        "isolation_level": 0,
        "session_id": "$s",
        "session_epoch": epoch,
        "topics": [
            {"topic": name, "topic_id": _topic_id(name), "partitions": parts}
            for name, parts in topics.items()
        ],
        "forgotten_topics_data": [
            {"topic": name, "topic_id": _topic_id(name), "partitions": [partition]}
            for name, partition in forgotten
        ],
    }


def _topic_id(name: str) -> Any:
    return NO_SUCH_ID if name == "@absent" else "$" + name.lstrip("@")


def share_group(random: Random) -> list[Step]:
    """Fetch and acknowledge in a member's share session. Some of the acknowledged records are not
    acquired by the member."""
    # The session of another member stays open: without any session our broker forgets the bounds of
    # acquired batches, as Kafka does after a restart.
    other = share_fetch(0, member="n", max_bytes=0, max_records=0, wait_ms=0, quiet=True)
    steps: list[Step] = [*FILLED, other]
    epoch = 0
    for _ in range(random.randint(4, 14)):
        used = epoch if random.random() < 0.9 else random.choice([-1, 0, epoch + 1, epoch - 1])
        acks = _acknowledgements(random)
        match random.choice(["fetch", "fetch", "ack", "ack", "fetch-ack", "write", "end"]):
            case "fetch":
                ask = share_fetch(
                    used,
                    wait_ms=300,
                    max_records=random.choice([1, 3, 500]),
                    batch_size=random.choice([1, 2, 500]),
                    share_acquire_mode=random.randint(0, 1),
                )
            case "ack":
                ask = share_acknowledge(used, *acks)
            case "fetch-ack":
                ask = acknowledge_by_fetch(used, *acks)
            case "write":
                body = produce_body(Batch(["n"] * random.randint(1, 3)))
                steps.append(Ask("Produce", body, quiet=True))
                continue
            case _:
                used = -1
                ask = share_acknowledge(-1, *acks)
                if random.random() < 0.5:
                    ask = share_fetch(-1, {0: acks}, wait_ms=300, max_bytes=0, max_records=0)
        steps.append(any_version(random, ask))
        if used == -1:
            # Kafka releases the records of a closed session a moment later.
            steps.append(Wait(300))
        epoch = used + 1
    return steps


def _acknowledgements(random: Random) -> list[tuple[int, int, list[int]]]:
    acks = []
    first = random.randint(0, 6)
    for _ in range(random.randint(0, 2)):
        last = first + random.randint(0, 2)
        kinds = [random.choice([0, 1, 1, 2, 2, 3]) for _ in range(last - first + 1)]
        acks.append((first, last, kinds if random.random() < 0.5 else kinds[:1]))
        first = last + random.randint(1, 2)
    return acks
