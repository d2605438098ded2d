"""Producing, and ids for producers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.oracle.rights.cases.words import (
    READY,
    log_ends,
)
from tests.oracle.rights.cells import (
    Case,
    Right,
    cluster_right,
    id_right,
    topic_right,
)
from tests.oracle.script import (
    NO_SUCH_ID,
    Ask,
    Batch,
    coordinator,
    produce_body,
    producer,
)

from odradek_protocol.acls import PatternType

_WRITTEN = Batch(
    producer_id="$pid", producer_epoch="$pid_epoch", base_sequence=0, transactional=True
)


def _to_write(name: str, prefixed: bool = False, deny: bool = False, **more: Any) -> Right:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return replace(topic_right("WRITE", name), pattern=pattern, deny=deny, **more)


#: The rights of users who send a request that names no topic. The request requires the right to
#: write to some topic.
_SOME_TOPIC = {
    "prefix": [_to_write("@a", prefixed=True)],
    "denied-by-name": [_to_write("@a"), _to_write("@a", deny=True)],
    "denied-by-prefix": [_to_write("@ab"), _to_write("@a", prefixed=True, deny=True)],
    "prefix-denied-by-prefix": [
        _to_write("@ab", prefixed=True),
        _to_write("@a", prefixed=True, deny=True),
    ],
    "prefix-with-a-hole": [
        _to_write("@a", prefixed=True),
        _to_write("@ab", prefixed=True, deny=True),
    ],
    "prefix-and-the-same-name-denied": [
        _to_write("@a", prefixed=True),
        _to_write("@a", deny=True),
    ],
    "all-denied": [_to_write("@a"), _to_write("*", deny=True)],
    "all-but-one": [_to_write("*"), _to_write("@a", deny=True)],
    "from-elsewhere": [_to_write("@a", host="192.0.2.1")],
    "hardcode-denied": [_to_write("@a"), _to_write("hardcode", deny=True)],
}
_PRODUCE = [
    Case(
        "produce",
        "Produce",
        produce_body(Batch(["c"])),
        [topic_right("WRITE")],
        before=READY,
        after=[log_ends()],
        versions="3-13",
        extra={"only-reads": [topic_right("READ")], "may-all": [topic_right("ALL")]},
    ),
    Case(
        "produce-to-no-topic",
        "Produce",
        produce_body(Batch(["c"]), "@absent", topic_id=NO_SUCH_ID),
        [topic_right("WRITE", "@absent")],
        versions="3-13",
    ),
    Case(
        "produce-in-a-transaction",
        "Produce",
        produce_body(_WRITTEN, transactional_id="@id"),
        [id_right("WRITE"), topic_right("WRITE")],
        before=[*READY, *producer()],
        after=[log_ends()],
        versions="12-13",
    ),
    *(
        Case(
            f"init-producer-id-{name}",
            "InitProducerId",
            {"transactional_id": None, "transaction_timeout_ms": 60_000},
            [],
            versions="5-5",
            extra={"asks": rights},
            only=["asks"],
        )
        for name, rights in _SOME_TOPIC.items()
    ),
    Case(
        "init-producer-id",
        "InitProducerId",
        {"transactional_id": None, "transaction_timeout_ms": 60_000},
        [cluster_right("IDEMPOTENT_WRITE")],
        versions="0-5",
        extra={
            "writes-some-topic": [topic_right("WRITE", "@any")],
            "reads-some-topic": [topic_right("READ", "@any")],
        },
    ),
    Case(
        "init-transactional-id",
        "InitProducerId",
        {"transactional_id": "@id", "transaction_timeout_ms": 60_000},
        [id_right("WRITE")],
        before=[coordinator("@id", 1)],
        after=[Ask("DescribeTransactions", {"transactional_ids": ["@id"]})],
        versions="0-5",
        extra={"describes": [id_right("DESCRIBE")]},
    ),
]


CASES: list[Case] = [*_PRODUCE]
