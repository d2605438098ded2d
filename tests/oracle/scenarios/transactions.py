"""The transaction coordinator: every request in every state; and the log of transactions (T)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.script import (
    Ask,
    Batch,
    Receive,
    Scenario,
    Send,
    Step,
    coordinator,
    fetch_body,
    produce_body,
    producer,
    scenarios_of,
    topic,
)

Id = int | str

_READY: list[Step] = [*topic(), *producer()]


def add_partitions(
    epoch: Id = "$pid_epoch",
    pid: Id = "$pid",
    name: str = "@id",
    partitions: Sequence[int] = (0,),
    topic_name: str = "@t",
    verify_only: bool = False,
    **more: Any,
) -> Ask:
    """An AddPartitionsToTxn request; from version 4 on it has the batched form."""
    topics = [{"name": topic_name, "partitions": list(partitions)}]
    return Ask(
        "AddPartitionsToTxn",
        {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": pid,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": topics,
            "transactions": [
                {
                    "transactional_id": name,
                    "producer_id": pid,
                    "producer_epoch": epoch,
                    "verify_only": verify_only,
                    "topics": topics,
                }
            ],
        },
        **more,
    )


def _written(
    sequence: int = 0,
    epoch: Id = "$pid_epoch",
    pid: Id = "$pid",
    name: str | None = "@id",
    transactional: bool = True,
    **more: Any,
) -> Ask:
    batch = Batch(
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return Ask("Produce", produce_body(batch, transactional_id=name), **more)


def end_transaction(
    committed: bool, epoch: Id = "$pid_epoch", pid: Id = "$pid", name: str = "@id", **more: Any
) -> Ask:
    body = {
        "transactional_id": name,
        "producer_id": pid,
        "producer_epoch": epoch,
        "committed": committed,
    }
    return Ask("EndTxn", body, **more)


def init_producer_id(
    epoch: Id = -1, pid: Id = -1, name: str | None = "@id", timeout_ms: int = 60_000, **more: Any
) -> Ask:
    body = {
        "transactional_id": name,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": pid,
        "producer_epoch": epoch,
    }
    return Ask("InitProducerId", body, **more)


def add_offsets(
    epoch: Id = "$pid_epoch", pid: Id = "$pid", name: str = "@id", group: str = "@g", **more: Any
) -> Ask:
    body = {
        "transactional_id": name,
        "producer_id": pid,
        "producer_epoch": epoch,
        "group_id": group,
    }
    return Ask("AddOffsetsToTxn", body, **more)


def commit_in_transaction(
    offset: int = 5,
    epoch: Id = "$pid_epoch",
    pid: Id = "$pid",
    name: str = "@id",
    group: str = "@g",
    topic_name: str = "@t",
    partition: int = 0,
    member: str = "",
    generation: Id = -1,
    metadata: str | None = "m",
    **more: Any,
) -> Ask:
    body = {
        "transactional_id": name,
        "group_id": group,
        "producer_id": pid,
        "producer_epoch": epoch,
        "generation_id": generation,
        "member_id": member,
        "topics": [
            {
                "name": topic_name,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_metadata": metadata,
                    }
                ],
            }
        ],
    }
    return Ask("TxnOffsetCommit", body, **more)


def _committed(**more: Any) -> Ask:
    group = {"group_id": "@g", "topics": [{"name": "@t", "partition_indexes": [0]}]}
    return Ask("OffsetFetch", {"groups": [group], **more}, version=8)


def _state(wanted: str = "") -> Ask:
    """Describe the transactional id; with `wanted`, wait until it is in that state."""
    path = "transaction_states.0.transaction_state"
    return Ask(
        "DescribeTransactions",
        {"transactional_ids": ["@id"]},
        until={path: wanted} if wanted else {},
        # The markers may or may not be written yet.
        either={} if wanted else {path: ("PrepareAbort", "CompleteAbort")},
        ignore=("transaction_states.0.transaction_start_time_ms",),
    )


def _begun(version: int = 11) -> list[Step]:
    """Preparing steps: write one record in an open transaction."""
    steps: list[Step] = []
    if version < 12:
        steps.append(add_partitions(version=3, quiet=True))
    return [*steps, _written(version=version, quiet=True)]


def _settled(committed: bool) -> list[Step]:
    """Preparing steps: complete a transaction of version 1, including its markers; this does not
    increase the epoch."""
    done = "CompleteCommit" if committed else "CompleteAbort"
    return [*_begun(), end_transaction(committed, version=4, quiet=True), _state(done)]


_LOG: Step = Ask("Fetch", fetch_body(isolation_level=1), version=11)
#: Kafka verifies the transactions of several producers with one request. If the requests of these
#: producers have different versions, Kafka may return either of these two codes for a producer.
_UNVERIFIED = ("INVALID_TXN_STATE", "TRANSACTION_ABORTABLE")
_PENDING = {"error_code": ("NONE", "CONCURRENT_TRANSACTIONS")}


def _scenarios(
    rows: Mapping[tuple[str, str] | tuple[str, str, str], Sequence[Step | Sequence[Step]]],
) -> list[Scenario]:
    return [_scenario(*key[:2], *steps, versions="".join(key[2:])) for key, steps in rows.items()]


def _scenario(name: str, api: str, *steps: Step | Sequence[Step], versions: str = "") -> Scenario:
    flat: list[Step] = []
    for step in steps:
        flat += list(step) if isinstance(step, Sequence) else [step]
    return Scenario(name, api, [*_READY, *flat], versions)


_STATES: dict[str, list[Step]] = {
    "empty": [],
    "ongoing": _begun(),
    "committed": _settled(True),
    "aborted": _settled(False),
}
_EPOCHS: dict[str, Id] = {
    "": "$pid_epoch",
    "-next-epoch": "$pid_epoch+1",
    "-later-epoch": "$pid_epoch+5",
}

SCENARIOS = [
    Scenario(
        "produce-in-a-transaction-without-a-producer",
        "Produce",
        [*_READY, _written(-1, -1, -1), _written(0, 0, -1), _written(1, -1, -1)],
        versions="13",
    ),
    # --- EndTxn ---
    *(
        _scenario(
            f"end-{'commit' if committed else 'abort'}-{state}{suffix}",
            "EndTxn",
            steps,
            end_transaction(committed, epoch),
            _state(),
            versions="0-5",
        )
        for state, steps in _STATES.items()
        for suffix, epoch in _EPOCHS.items()
        for committed in (True, False)
        if not (state == "ongoing" and not suffix)
    ),
    *_scenarios(
        {
            ("end-commit-ongoing", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                end_transaction(True),
                _state("CompleteCommit"),
                _LOG,
            ],
            ("end-abort-ongoing", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                end_transaction(False),
                _state("CompleteAbort"),
                _LOG,
            ],
            ("end-commit-again", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                end_transaction(True),
                _state("CompleteCommit"),
                end_transaction(True),
                end_transaction(False),
            ],
            ("end-abort-again", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                end_transaction(False),
                _state("CompleteAbort"),
                end_transaction(False),
                end_transaction(True),
            ],
            ("end-unknown-id", "EndTxn", "0-5"): [
                end_transaction(True, name="@other"),
                end_transaction(False, name="@other"),
            ],
            ("end-empty-id", "EndTxn", "0-5"): [end_transaction(True, name="")],
            ("end-other-producer-id", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                end_transaction(True, pid="$pid+1000000"),
                end_transaction(True),
            ],
            ("end-negative-producer-id", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                end_transaction(True, pid=-1),
                end_transaction(False, epoch=-1),
            ],
            ("end-after-a-newer-producer", "EndTxn", "0-5"): [
                init_producer_id(
                    version=4, quiet=True, save={"pid2": "producer_id", "e2": "producer_epoch"}
                ),
                end_transaction(True),
                end_transaction(False),
                end_transaction(True, epoch="$e2"),
            ],
            ("end-commit-v2-and-begin-again", "EndTxn", "5"): [
                _begun(12),
                end_transaction(True, save={"pid": "producer_id", "pid_epoch": "producer_epoch"}),
                _state("CompleteCommit"),
                _written(0, version=12),
                end_transaction(True, save={"pid": "producer_id", "pid_epoch": "producer_epoch"}),
                _state("CompleteCommit"),
                _LOG,
            ],
            # --- transactions without a pause ---
            ("end-commit-pipelined-twice", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                Send(end_transaction(True)),
                Send(
                    end_transaction(True, either=_PENDING, ignore=("producer_id", "producer_epoch"))
                ),
                Receive(),
                Receive(),
                _state("CompleteCommit"),
            ],
            ("end-commit-then-abort-pipelined", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                Send(end_transaction(True)),
                Send(
                    end_transaction(
                        False,
                        either={
                            "error_code": ("INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS", "NONE")
                        },
                        ignore=("producer_id", "producer_epoch"),
                    )
                ),
                Receive(),
                Receive(),
                Ask("FindCoordinator", {"key": "@id", "key_type": 1}, version=3, quiet=True),
            ],
            ("end-commit-then-wrong-epoch-pipelined", "EndTxn", "0-5"): [
                _STATES["ongoing"],
                Send(end_transaction(True)),
                Send(
                    end_transaction(
                        True,
                        "$pid_epoch+9",
                        either={
                            "error_code": (
                                "PRODUCER_FENCED",
                                "INVALID_PRODUCER_EPOCH",
                                "CONCURRENT_TRANSACTIONS",
                            )
                        },
                        ignore=("producer_id", "producer_epoch"),
                    )
                ),
                Receive(),
                Receive(),
                _state("CompleteCommit"),
            ],
            ("add-right-behind-commit", "AddPartitionsToTxn", "0-3"): [
                _STATES["ongoing"],
                Send(end_transaction(True, version=4)),
                Send(
                    add_partitions(
                        either={
                            "results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code": (
                                "NONE",
                                "CONCURRENT_TRANSACTIONS",
                            )
                        }
                    )
                ),
                Receive(),
                Receive(),
            ],
            ("init-right-behind-commit", "InitProducerId", "0-5"): [
                _STATES["ongoing"],
                Send(end_transaction(True, version=4)),
                Send(init_producer_id(either=_PENDING, ignore=("producer_id", "producer_epoch"))),
                Receive(),
                Receive(),
            ],
            ("add-offsets-right-behind-commit", "AddOffsetsToTxn"): [
                _STATES["ongoing"],
                Send(end_transaction(True, version=4)),
                Send(add_offsets(either=_PENDING)),
                Receive(),
                Receive(),
            ],
        }
    ),
    # --- InitProducerId ---
    *scenarios_of(
        {
            ("init-without-id", "InitProducerId", "0-5"): [
                init_producer_id(name=None),
                init_producer_id(name=None, timeout_ms=-5),
            ],
            ("init-two-phase", "InitProducerId", "6"): [init_producer_id(name=None)],
            ("init-empty-id", "InitProducerId", "0-5"): [init_producer_id(name="")],
            ("init-timeouts", "InitProducerId", "0-5"): [
                coordinator("@id", 1),
                *(
                    init_producer_id(timeout_ms=ms)
                    for ms in (0, -1, 1, 900_000, 900_001, 2147483647)
                ),
            ],
            ("init-new-id", "InitProducerId", "0-5"): [
                coordinator("@id", 1),
                init_producer_id(),
                init_producer_id(),
                init_producer_id(),
            ],
            ("init-half-an-identity", "InitProducerId", "3-5"): [
                coordinator("@id", 1),
                init_producer_id(epoch=0),
                init_producer_id(pid=5),
                init_producer_id(epoch=0, pid=-1, name=None),
                init_producer_id(pid=5, name=None),
            ],
        }
    ),
    *_scenarios(
        {
            ("init-same-identity", "InitProducerId", "3-5"): [
                init_producer_id("$pid_epoch", "$pid"),
                init_producer_id("$pid_epoch", "$pid"),
                init_producer_id("$pid_epoch+1", "$pid"),
            ],
            ("init-older-epoch", "InitProducerId", "3-5"): [
                init_producer_id(),
                init_producer_id(),
                init_producer_id("$pid_epoch", "$pid"),
            ],
            ("init-later-epoch", "InitProducerId", "3-5"): [
                init_producer_id("$pid_epoch+3", "$pid")
            ],
            ("init-other-producer-id", "InitProducerId", "3-5"): [
                init_producer_id("$pid_epoch", "$pid+1000000")
            ],
            ("init-unknown-id-with-identity", "InitProducerId", "3-5"): [
                init_producer_id(0, 77, name="@other")
            ],
            ("init-ongoing", "InitProducerId", "0-5"): [
                _begun(),
                init_producer_id(either=_PENDING, ignore=("producer_id", "producer_epoch")),
                _state("CompleteAbort"),
                _LOG,
            ],
            ("init-ongoing-with-identity", "InitProducerId", "3-5"): [
                _begun(),
                init_producer_id(
                    "$pid_epoch", "$pid", either=_PENDING, ignore=("producer_id", "producer_epoch")
                ),
                _state("CompleteAbort"),
                _LOG,
            ],
            ("init-exhausts-epochs", "InitProducerId", "3-5"): [init_producer_id(32766, "$pid")],
        }
    ),
    # --- AddPartitionsToTxn ---
    *(
        _scenario(
            f"add-{state}{suffix}",
            "AddPartitionsToTxn",
            steps,
            add_partitions(epoch),
            _state(),
            versions="0-3",
        )
        for state, steps in _STATES.items()
        for suffix, epoch in _EPOCHS.items()
    ),
    *_scenarios(
        {
            ("add-unknown-id", "AddPartitionsToTxn", "0-3"): [add_partitions(name="@other")],
            ("add-empty-id", "AddPartitionsToTxn", "0-3"): [add_partitions(name="")],
            ("add-other-producer-id", "AddPartitionsToTxn", "0-3"): [
                add_partitions(pid="$pid+1000000")
            ],
            ("add-unknown-topic", "AddPartitionsToTxn", "0-3"): [
                add_partitions(topic_name="@none"),
                _state(),
            ],
            ("add-unknown-partition", "AddPartitionsToTxn", "0-3"): [
                add_partitions(partitions=[0, 7]),
                _state(),
            ],
            ("add-twice-the-same", "AddPartitionsToTxn", "0-3"): [
                add_partitions(partitions=[0, 0]),
                add_partitions(),
                _state(),
            ],
            ("add-no-partitions", "AddPartitionsToTxn", "0-3"): [
                add_partitions(partitions=[]),
                _state(),
            ],
            ("add-batched", "AddPartitionsToTxn", "4-5"): [add_partitions(), _state()],
            ("add-verify-only", "AddPartitionsToTxn", "4-5"): [
                add_partitions(verify_only=True),
                _begun(),
                add_partitions(verify_only=True),
            ],
            ("add-verify-other-epoch", "AddPartitionsToTxn", "4-5"): [
                _begun(),
                add_partitions("$pid_epoch+1", verify_only=True),
                add_partitions(verify_only=True, pid="$pid+1000000"),
            ],
            # --- Produce in a transaction ---
            ("produce-not-added", "Produce", "3-12"): [_written(), _state(), _LOG],
            ("produce-added", "Produce", "3-12"): [
                add_partitions(version=3, quiet=True),
                _written(),
                _written(1),
                _LOG,
            ],
            ("produce-added-newer-epoch", "Produce", "3-12"): [
                add_partitions(version=3, quiet=True),
                _written(0, "$pid_epoch+1"),
            ],
            ("produce-other-id", "Produce", "3-12"): [
                add_partitions(version=3, quiet=True),
                _written(name="@other"),
            ],
            ("produce-no-id", "Produce", "3-12"): [
                add_partitions(version=3, quiet=True),
                _written(name=None),
            ],
            ("produce-plain-in-open-transaction", "Produce", "3-12"): [
                _begun(),
                Ask(
                    "Produce",
                    produce_body(
                        Batch(producer_id="$pid", producer_epoch="$pid_epoch", base_sequence=1)
                    ),
                ),
            ],
            ("produce-after-commit", "Produce", "3-12"): [
                _settled(True),
                _written(1, either={"responses.0.partition_responses.0.error_code": _UNVERIFIED}),
            ],
            ("produce-after-a-newer-producer", "Produce", "3-12"): [
                _begun(),
                init_producer_id(
                    version=4, until={"error_code": "NONE"}, ignore=("producer_epoch",)
                ),
                _written(1),
            ],
            # The transactional id of these batches does not have their producer id, as after the
            # last epoch of a producer id.
            ("produce-older-epoch-of-another-id", "Produce", "3-12"): [
                Ask(
                    "WriteTxnMarkers",
                    {
                        "markers": [
                            {
                                "producer_id": "$pid",
                                "producer_epoch": "$pid_epoch+1",
                                "transaction_result": True,
                                "coordinator_epoch": 0,
                                "transaction_version": 0,
                                "topics": [{"name": "@t", "partition_indexes": [0]}],
                            }
                        ]
                    },
                    version=1,
                ),
                _written(1, name="@other"),
                _written(1, "$pid_epoch+1", name="@other"),
            ],
            ("produce-begins-late", "Produce", "11-12"): [_written(3), _state()],
        }
    ),
    # --- offsets in a transaction ---
    *(
        _scenario(
            f"offsets-added-{state}{suffix}",
            "AddOffsetsToTxn",
            coordinator("@g"),
            steps,
            add_offsets(epoch),
            _state(),
        )
        for state, steps in _STATES.items()
        for suffix, epoch in _EPOCHS.items()
    ),
    *_scenarios(
        {
            ("offsets-added-odd", "AddOffsetsToTxn"): [
                add_offsets(name=""),
                add_offsets(name="@other"),
                add_offsets(pid=3),
                add_offsets(group=""),
            ],
            ("txn-offsets-not-added", "TxnOffsetCommit", "0-5"): [
                coordinator("@g"),
                commit_in_transaction(either={"topics.0.partitions.0.error_code": _UNVERIFIED}),
                _state(),
            ],
            ("txn-offsets-committed", "TxnOffsetCommit"): [
                coordinator("@g"),
                add_offsets(version=3, quiet=True),
                commit_in_transaction(),
                _committed(require_stable=True),
                _committed(),
                end_transaction(True, version=4),
                _state("CompleteCommit"),
                _committed(require_stable=True),
            ],
            ("txn-offsets-aborted", "TxnOffsetCommit"): [
                coordinator("@g"),
                add_offsets(version=3, quiet=True),
                commit_in_transaction(),
                end_transaction(False, version=4),
                _state("CompleteAbort"),
                _committed(require_stable=True),
                Ask("DeleteGroups", {"groups_names": ["@g"]}),
            ],
            ("txn-offsets-odd", "TxnOffsetCommit"): [
                coordinator("@g"),
                add_offsets(version=3, quiet=True),
                commit_in_transaction(epoch="$pid_epoch+1"),
                commit_in_transaction(member="nobody", generation=3),
                commit_in_transaction(generation=3),
                commit_in_transaction(topic_name="@none"),
                commit_in_transaction(partition=9),
                commit_in_transaction(metadata="m" * 4097),
                commit_in_transaction(metadata="m" * 4096),
                commit_in_transaction(metadata=None),
                commit_in_transaction(offset=-1),
                commit_in_transaction(group=""),
                commit_in_transaction(name=""),
            ],
            # --- descriptions ---
            ("describe-transactions", "DescribeTransactions"): [
                _state(),
                _begun(),
                _state(),
                Ask("DescribeTransactions", {"transactional_ids": ["@other"]}),
                Ask("DescribeTransactions", {"transactional_ids": [""]}),
                Ask("DescribeTransactions", {"transactional_ids": []}),
            ],
        }
    ),
    *(
        _scenario(
            f"list-transactions-{state}",
            "ListTransactions",
            steps,
            Ask("ListTransactions", {}, mine=True),
            Ask("ListTransactions", {"state_filters": ["Ongoing", "Empty", "Nonsense"]}, mine=True),
            Ask("ListTransactions", {"producer_id_filters": ["$pid", 5]}, mine=True),
            Ask("ListTransactions", {"duration_filter": 0}, mine=True),
            Ask("ListTransactions", {"duration_filter": 3_600_000}, mine=True),
            Ask("ListTransactions", {"transactional_id_pattern": ".*id"}, mine=True),
            Ask("ListTransactions", {"transactional_id_pattern": "("}, mine=True),
            Ask("ListTransactions", {"transactional_id_pattern": ""}, mine=True),
        )
        for state, steps in _STATES.items()
    ),
    *(
        _scenario(
            f"describe-producers-{state}",
            "DescribeProducers",
            steps,
            Ask("DescribeProducers", {"topics": [{"name": "@t", "partition_indexes": [0]}]}),
        )
        for state, steps in _STATES.items()
    ),
    *_scenarios(
        {
            ("describe-producers-odd", "DescribeProducers"): [
                Ask("DescribeProducers", {"topics": [{"name": "@t", "partition_indexes": [3]}]}),
                Ask("DescribeProducers", {"topics": [{"name": "@none", "partition_indexes": [0]}]}),
                Ask("DescribeProducers", {"topics": [{"name": "@t", "partition_indexes": [0, 0]}]}),
                Ask("DescribeProducers", {"topics": [{"name": "b@d!", "partition_indexes": [0]}]}),
            ],
            # The second name has a negative hash, the third the smallest 32-bit integer.
            ("describe-partitions-of-groups", "DescribeTransactions"): [
                *(
                    add_offsets(group=name, version=3, quiet=True)
                    for name in ("hello", "Hello World", "polygenelubricants")
                ),
                _state("Ongoing"),
            ],
        }
    ),
    # --- markers of other senders ---
    *(
        Scenario(
            f"markers-of-nobody-{name}",
            "WriteTxnMarkers",
            [
                *topic(),
                Ask(
                    "WriteTxnMarkers",
                    {
                        "markers": [
                            {
                                "producer_id": pid,
                                "producer_epoch": epoch,
                                "transaction_result": True,
                                "coordinator_epoch": 0,
                                "topics": [{"name": "@t", "partition_indexes": [0]}],
                            }
                        ]
                    },
                ),
                _LOG,
            ],
        )
        for name, pid, epoch in (
            ("no-id", -1, 0),
            ("no-epoch", 4242, -1),
            ("known-to-none", 4242, 0),
        )
    ),
    *(
        _scenario(
            f"produce-again-behind-{name}",
            "Produce",
            _begun(),
            *(end_transaction(committed, version=4, quiet=True), _state(state)),
            steps,
            _written(),
            _state(),
            _LOG,
            versions="3-11",
        )
        for name, committed, state, steps in (
            ("commit", True, "CompleteCommit", []),
            ("abort", False, "CompleteAbort", []),
            ("a-newer-producer", True, "CompleteCommit", [init_producer_id(version=4, quiet=True)]),
            ("the-next-begin", True, "CompleteCommit", [add_partitions(version=3, quiet=True)]),
        )
    ),
    # A refused verification does not use up the sequence number of the batch.
    *(
        _scenario(
            f"produce-after-a-refused-batch-{name}",
            "Produce",
            _written(4, either={"responses.0.partition_responses.0.error_code": _UNVERIFIED}),
            add_partitions(version=3, quiet=True),
            _written(5, transactional=transactional),
            _written(4),
            _LOG,
            versions="3-11",
        )
        for name, transactional in (("transactional", True), ("plain", False))
    ),
    *(
        _scenario(
            f"markers-{name}",
            "WriteTxnMarkers",
            init_producer_id(version=4, quiet=True, save={"pid_epoch": "producer_epoch"}),
            _begun(),
            Ask(
                "WriteTxnMarkers",
                {
                    "markers": [
                        {
                            "producer_id": "$pid",
                            "producer_epoch": epoch,
                            "transaction_result": False,
                            "coordinator_epoch": coordinator_epoch,
                            "transaction_version": version,
                            "topics": [{"name": topic_name, "partition_indexes": partitions}],
                        }
                    ]
                },
            ),
            _LOG,
        )
        for name, epoch, coordinator_epoch, version, topic_name, partitions in (
            ("abort", "$pid_epoch", 0, 0, "@t", [0]),
            ("abort-v2-same-epoch", "$pid_epoch", 0, 2, "@t", [0]),
            ("abort-v2-next-epoch", "$pid_epoch+1", 0, 2, "@t", [0]),
            ("older-epoch", "$pid_epoch-1", 0, 0, "@t", [0]),
            ("older-coordinator", "$pid_epoch", -1, 0, "@t", [0]),
            ("unknown-topic", "$pid_epoch", 0, 0, "@none", [0]),
            ("unknown-partition", "$pid_epoch", 0, 0, "@t", [0, 8]),
        )
    ),
]
