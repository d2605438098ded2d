"""Requests while the markers of a decided transaction are in flight (T-65), and the member ids of a
deleted group (G-25)."""

from __future__ import annotations

from typing import Any

from tests.oracle.group_steps import group, join_body
from tests.oracle.script import (
    Ask,
    Batch,
    Receive,
    Scenario,
    Send,
    Step,
    produce_body,
    producer,
    topic,
)

#: Enough partitions for the next request to arrive before all markers are written.
_PARTITIONS = 40
_SETTLED = ("producer_id", "producer_epoch")

_DECIDED: list[Step] = [
    *topic(partitions=_PARTITIONS),
    *producer(),
    Ask(
        "Produce",
        produce_body(
            Batch(
                producer_id="$pid", producer_epoch="$pid_epoch", base_sequence=0, transactional=True
            ),
            transactional_id="@id",
        ),
        version=12,
        quiet=True,
    ),
    Ask(
        "AddPartitionsToTxn",
        {
            "v3_and_below_transactional_id": "@id",
            "v3_and_below_producer_id": "$pid",
            "v3_and_below_producer_epoch": "$pid_epoch",
            "v3_and_below_topics": [{"name": "@t", "partitions": list(range(_PARTITIONS))}],
        },
        version=3,
        quiet=True,
    ),
]


def _end(committed: bool, epoch: str, pid: str = "$pid", **more: Any) -> Ask:
    body = {
        "transactional_id": "@id",
        "producer_id": pid,
        "producer_epoch": epoch,
        "committed": committed,
    }
    return Ask("EndTxn", body, version=5, **more)


def _behind(name: str, api: str, asked: Ask, versions: str = "5") -> Scenario:
    commit = _end(True, "$pid_epoch")
    return Scenario(
        name, api, [*_DECIDED, Send(commit), Send(asked), Receive(), Receive()], versions
    )


def _told(*codes: str) -> dict[str, Any]:
    return {"either": {"error_code": ("CONCURRENT_TRANSACTIONS", *codes)}, "ignore": _SETTLED}


def _init(epoch: str, pid: str) -> Ask:
    body = {
        "transactional_id": "@id",
        "transaction_timeout_ms": 60_000,
        "producer_id": pid,
        "producer_epoch": epoch,
    }
    return Ask("InitProducerId", body, **_told("PRODUCER_FENCED"))


SCENARIOS = [
    # A producer that continues immediately already uses the next epoch, and must not be fenced
    # because of it.
    _behind(
        "end-abort-next-epoch-right-behind",
        "EndTxn",
        _end(False, "$pid_epoch+1", **_told("NONE")),
    ),
    _behind(
        "end-commit-next-epoch-right-behind",
        "EndTxn",
        _end(True, "$pid_epoch+1", **_told("INVALID_TXN_STATE")),
    ),
    _behind(
        "end-other-producer-right-behind",
        "EndTxn",
        _end(True, "$pid_epoch", "$pid+1000000", **_told("INVALID_PRODUCER_ID_MAPPING")),
    ),
    _behind(
        "init-other-producer-right-behind",
        "InitProducerId",
        _init("$pid_epoch", "$pid+1000000"),
        "4-5",
    ),
    Scenario(
        "delete-group-of-handed-out-ids",
        "DeleteGroups",
        [
            *group(),
            Ask("JoinGroup", join_body(), version=5, save={"m": "member_id"}),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            Ask("JoinGroup", join_body("$m"), version=5),
        ],
        "0-2",
    ),
]
