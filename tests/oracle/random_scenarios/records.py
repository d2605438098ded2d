"""A partition's log, and a share group that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.fetch import delete_records, list_offset, offset_for_epoch
from tests.oracle.scenarios.share_fetch import (
    FILLED,
    acknowledge_by_fetch,
    share_acknowledge,
    share_fetch,
)
from tests.oracle.script import THEN_MS, Ask, Batch, Step, Wait, fetch_body, produce_body, topic

_TOPICS: Sequence[Mapping[str, str]] = (
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"max.message.bytes": "200"},
    {"cleanup.policy": "compact"},
)
#: The first version of ListOffsets with each of its special timestamps, but for the largest one.
_SPECIAL_TIMES = {-6: 11, -5: 9, -4: 8, -2: 1, -1: 1}
_KINDS = ("write", "write", "write", "list", "list", "list", "trim", "epoch", "fetch")


def log(random: Random) -> list[Step]:
    """Records of several sizes, times and codecs; reads at offsets and times; DeleteRecords."""
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


def share_group(random: Random) -> list[Step]:
    """A member that fetches and acknowledges, also what it does not have, in its share session."""
    # Another session stays open: without one ours forgets the bounds of acquired batches, as Kafka
    # does at a restart.
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
            # Kafka releases the records of a closed session a little later.
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
