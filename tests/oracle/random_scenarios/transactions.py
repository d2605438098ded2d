"""Two producers with the same transactional id; the newer one has fenced the older one."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.oracle.group_steps import group
from tests.oracle.random_scenarios.records import PRODUCERS
from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.fetch import list_offset
from tests.oracle.scenarios.transactions import (
    add_offsets,
    add_partitions,
    commit_in_transaction,
    end_transaction,
    init_producer_id,
)
from tests.oracle.script import Ask, Batch, Step, fetch_body, produce_body, producer, topic

#: The version ranges of requests of transactions v1, and of transactions v2.
_V1 = {"Produce": (3, 11), "EndTxn": (0, 4), "TxnOffsetCommit": (0, 4)}
_V2 = {"Produce": (12, 13), "EndTxn": (5, 5), "TxnOffsetCommit": (5, 5)}

#: Wait until the markers of the last transaction are written.
_MARKED = Ask(
    "DescribeTransactions",
    {"transactional_ids": ["@id"]},
    while_in={"transaction_states.0.transaction_state": ("PrepareCommit", "PrepareAbort")},
    ignore=("transaction_states.0.transaction_start_time_ms",),
)
#: The errors with which Kafka answers until its connection to the coordinator is open.
_NOT_YET = {
    "responses.0.partition_responses.0.error_code": (
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_ENOUGH_REPLICAS",
    )
}
_SAVE = {"new": "producer_id", "new_epoch": "producer_epoch"}
_KINDS = ("init", "add", "offsets", "commit", "write", "write", "write", "end", "end", "look")


def transactions(random: Random) -> list[Step]:
    """The steps of a random scenario."""
    return _Transactions(random).steps()


class _Transactions:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._versions = random.choice([_V1, _V2, _V2])
        self._sequences = [0, 0]

    def steps(self) -> list[Step]:
        steps: list[Step] = [*topic(partitions=2), *group()]
        steps += [*producer(save="old"), *producer(save="new")]
        for _ in range(self._random.randint(6, 22)):
            steps += self._step()
        return [
            *steps,
            _MARKED,
            *(Ask("Fetch", fetch_body(partition=p, isolation_level=1), version=12) for p in (0, 1)),
            PRODUCERS,
            Ask("OffsetFetch", {"groups": [{"group_id": "@g", "topics": None}]}, version=9),
        ]

    def _step(self) -> list[Step]:
        random = self._random
        name = "new" if random.random() < 0.85 else "old"
        pid, epoch = f"${name}", f"${name}_epoch"
        chance = random.random()
        if chance < 0.04:
            epoch += "+1"
        elif chance < 0.08 and name == "new":
            epoch += "-1"
        match random.choice(_KINDS):
            case "init":
                return self._init(pid, epoch)
            case "add":
                partitions = random.choice([(0,), (1,), (0, 1), (0, 7)])
                verify_only = random.random() < 0.2
                ask = add_partitions(epoch, pid, partitions=partitions, verify_only=verify_only)
                return [any_version(random, ask)]
            case "offsets":
                return [any_version(random, add_offsets(epoch, pid))]
            case "commit":
                offset, partition = random.randint(-1, 9), random.randint(0, 2)
                ask = commit_in_transaction(offset, epoch, pid, partition=partition)
                return [any_version(random, ask, among=self._versions)]
            case "write":
                partition = random.randint(0, 1)
                write = self._write(pid, epoch, partition)
                if self._versions is _V2 or random.random() < 0.2:
                    return [write]
                ask = add_partitions(epoch, pid, partitions=(partition,), version=3)
                return [ask, write]
            case "end":
                return self._end(pid, epoch)
            case _:
                return [self._look()]

    def _init(self, pid: str, epoch: str) -> list[Step]:
        # Kafka lets a fenced producer abort the transaction of its successor; our broker does not.
        known = self._random.random() < 0.4 and epoch == "$new_epoch"
        ask = init_producer_id(*((epoch, pid) if known else (-1, -1)), save=_SAVE)
        ask = replace(ask, while_in={"error_code": ("CONCURRENT_TRANSACTIONS",)})
        self._sequences = [0, 0]
        return [any_version(self._random, ask, first=3 if known else 0), _MARKED]

    def _write(self, pid: str, epoch: str, partition: int) -> Step:
        random = self._random
        sequence = self._sequences[partition]
        if random.random() < 0.1:
            sequence += random.choice([-1, 1])
        else:
            self._sequences[partition] += 1
        batch = Batch(
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=max(0, sequence),
            transactional=random.random() < 0.95,
        )
        body = produce_body(batch, partition=partition, transactional_id="@id")
        return any_version(random, Ask("Produce", body, while_in=_NOT_YET), among=self._versions)

    def _end(self, pid: str, epoch: str) -> list[Step]:
        random = self._random
        ask = end_transaction(random.random() < 0.6, epoch, pid)
        ask = any_version(random, ask, among=self._versions)
        if self._versions is _V2 and random.random() < 0.8:
            ask = replace(ask, save=_SAVE)
            self._sequences = [0, 0]
        return [ask, _MARKED]

    def _look(self) -> Step:
        random = self._random
        groups = [{"group_id": "@g", "topics": None}]
        offsets = {"groups": groups, "require_stable": random.random() < 0.5}
        filters = {"state_filters": [], "producer_id_filters": ["$new"]}
        return random.choice(
            [
                PRODUCERS,
                any_version(random, Ask("Fetch", fetch_body(isolation_level=1)), first=4),
                any_version(random, list_offset(-1, isolation=1), first=2),
                Ask("OffsetFetch", offsets, version=9),
                Ask("ListTransactions", filters, version=1),
            ]
        )
