"""Rights that are removed or granted while their user is active: sessions, parked requests,
members, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.group_steps import group, join_body, sync_body
from tests.oracle.rights.cases.words import READY, log_ends
from tests.oracle.rights.cells import (
    PRINCIPAL,
    USER,
    Case,
    Right,
    acl,
    created,
    group_right,
    id_right,
    topic_right,
)
from tests.oracle.script import (
    Ask,
    Batch,
    Receive,
    Send,
    Step,
    fetch_body,
    produce_body,
    produced,
    producer,
    topic,
)

#: An ACL of another user, created after a change of rights: when it is in force, so is the change.
_MARKER = Right(topic_right("READ").kind, topic_right("READ").operation, "@m", principal="User:-")
_READ, _WRITE = topic_right("READ"), topic_right("WRITE")


def _granted(*rights: Right) -> list[Step]:
    return created([acl(right) for right in rights])


def _taken(*rights: Right) -> list[Step]:
    filters = [
        {
            "resource_type_filter": int(right.kind),
            "resource_name_filter": right.name,
            "pattern_type_filter": int(right.pattern),
            "principal_filter": PRINCIPAL,
            "host_filter": None,
            "operation": int(right.operation),
            "permission_type": 3,
        }
        for right in rights
    ]
    return [
        Ask("DeleteAcls", {"filters": filters}, quiet=True, version=3),
        *created([acl(_MARKER)]),
    ]


def _session(session_id: int | str = 0, epoch: int = 0, **more: Any) -> dict[str, Any]:
    body = {**fetch_body("@t"), "session_id": session_id, "session_epoch": epoch, **more}
    return body if epoch == 0 else {**body, "topics": []}


def _opened(**more: Any) -> Ask:
    return Ask("Fetch", _session(), on=USER, version=12, save={"s": "session_id"}, **more)


def _member(*rights: Right) -> list[Step]:
    """Make a group whose only member is the user."""
    return [
        *group(),
        *_granted(*rights),
        Ask(
            *("JoinGroup", join_body()),
            on=USER,
            version=3,
            quiet=True,
            save={"m": "member_id", "gen": "generation_id"},
        ),
        Ask(
            *("SyncGroup", sync_body(assignments={"$m": b"\xaa"})),
            on=USER,
            version=3,
            quiet=True,
        ),
    ]


def _changed(
    name: str, api: str, body: Any, before: Sequence[Step], version: int, **more: Any
) -> Case:
    return Case(
        f"changed-{name}", api, body, before=before, versions=str(version), only=("nobody",), **more
    )


_HEARTBEAT = {"group_id": "@g", "generation_id": "$gen", "member_id": "$m"}
_COMMIT = {
    "group_id": "@g",
    "generation_id_or_member_epoch": "$gen",
    "member_id": "$m",
    "topics": [{"name": "@t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
}
_ID = id_right("WRITE")
_PRODUCER = {"producer_id": "$pid", "producer_epoch": "$pid_epoch"}
_IN_TRANSACTION: list[Step] = [
    *topic(),
    *_granted(_ID, _WRITE),
    *producer(on=USER),
    Ask(
        "AddPartitionsToTxn",
        {
            "v3_and_below_transactional_id": "@id",
            "v3_and_below_producer_id": "$pid",
            "v3_and_below_producer_epoch": "$pid_epoch",
            "v3_and_below_topics": [{"name": "@t", "partitions": [0]}],
        },
        on=USER,
        version=3,
        quiet=True,
    ),
]


def _batch(sequence: int) -> Batch:
    return Batch(
        ["x"],
        producer_id="$pid",
        producer_epoch="$pid_epoch",
        base_sequence=sequence,
        transactional=True,
    )


_WRITTEN = Ask(
    "Produce", produce_body(_batch(0), transactional_id="@id"), on=USER, version=11, quiet=True
)
_STATE = Ask(
    "DescribeTransactions",
    {"transactional_ids": ["@id"]},
    version=0,
    ignore=("transaction_states.0.transaction_start_time_ms",),
    either={
        "transaction_states.0.transaction_state": ("PrepareAbort", "CompleteAbort"),
    },
)
#: The log end after the record and its marker; Kafka writes the marker after it has answered
#: EndTxn.
_ENDED = replace(log_ends(), until={"topics.0.partitions.0.offset": 2})
_COMMITTED = {"transactional_id": "@id", **_PRODUCER, "committed": True}

CASES = [
    _changed(
        "session-whose-topic-is-taken-away",
        "Fetch",
        _session("$s", 1),
        [*READY, *_granted(_READ), _opened(), *_taken(_READ)],
        12,
        after=[Ask("Fetch", _session("$s", 2), on=USER, version=12)],
    ),
    _changed(
        "session-whose-topic-comes-back",
        "Fetch",
        _session("$s", 2),
        [
            *READY,
            *_granted(_READ),
            _opened(),
            *_taken(_READ),
            Ask("Fetch", _session("$s", 1), on=USER, version=12),
            *_granted(_READ),
        ],
        12,
        after=[Ask("Fetch", _session("$s", 3), on=USER, version=12)],
    ),
    _changed(
        "session-of-a-topic-that-is-given-later",
        "Fetch",
        _session("$s", 1),
        [*READY, _opened(), *_granted(_READ)],
        12,
        after=[Ask("Fetch", _session("$s", 2), on=USER, version=12)],
    ),
    _changed(
        "waiting-fetch-whose-topic-is-taken-away",
        "Fetch",
        _session("$s", 1),
        [
            *topic(),
            *_granted(_READ),
            Send(
                Ask(
                    "Fetch",
                    {**_session(), "max_wait_ms": 20_000},
                    on=USER,
                    version=12,
                    save={"s": "session_id"},
                )
            ),
            *_taken(_READ),
            produced(Batch(["late"])),
            Receive(USER),
        ],
        12,
    ),
    _changed(
        "member-whose-group-is-taken-away",
        "Heartbeat",
        _HEARTBEAT,
        [*_member(group_right("READ")), *_taken(group_right("READ"))],
        4,
        after=[
            Ask(
                "DescribeGroups",
                {"groups": ["@g"]},
                version=5,
                ignore=("groups.*.members.*.client_host",),
            ),
            Ask(
                "LeaveGroup",
                {"group_id": "@g", "members": [{"member_id": "$m"}]},
                on=USER,
                version=5,
            ),
        ],
    ),
    _changed(
        "waiting-join-whose-group-is-taken-away",
        "SyncGroup",
        sync_body("$n", assignments={"$n": b"\xaa"}),
        [
            *group(),
            *_granted(group_right("READ")),
            Ask(
                *("JoinGroup", join_body()),
                version=3,
                quiet=True,
                save={"m": "member_id", "gen": "generation_id"},
            ),
            Send(
                Ask(
                    *("JoinGroup", join_body()),
                    on=USER,
                    version=3,
                    quiet=True,
                    save={"n": "member_id", "gen": "generation_id"},
                )
            ),
            *_taken(group_right("READ")),
            Ask(
                "LeaveGroup",
                {"group_id": "@g", "member_id": "$m", "members": [{"member_id": "$m"}]},
                version=4,
                quiet=True,
            ),
            Receive(USER),
        ],
        5,
    ),
    _changed(
        "commit-to-a-topic-that-is-taken-away",
        "OffsetCommit",
        _COMMIT,
        [*topic(), *_member(group_right("READ"), _READ), *_taken(_READ)],
        8,
    ),
    _changed(
        "commit-of-a-group-that-is-taken-away",
        "OffsetCommit",
        _COMMIT,
        [*topic(), *_member(group_right("READ"), _READ), *_taken(group_right("READ"))],
        8,
    ),
    _changed(
        "transactional-produce-to-a-topic-that-is-taken-away",
        "Produce",
        produce_body(_batch(1), transactional_id="@id"),
        [*_IN_TRANSACTION, _WRITTEN, *_taken(_WRITE)],
        11,
        after=[Ask("EndTxn", _COMMITTED, on=USER, version=3), _ENDED],
    ),
    _changed(
        "transactional-produce-of-an-id-that-is-taken-away",
        "Produce",
        produce_body(_batch(1), transactional_id="@id"),
        [*_IN_TRANSACTION, _WRITTEN, *_taken(_ID)],
        11,
        after=[_STATE, log_ends()],
    ),
    _changed(
        "end-of-a-transaction-whose-id-is-taken-away",
        "EndTxn",
        _COMMITTED,
        [*_IN_TRANSACTION, _WRITTEN, *_taken(_ID)],
        3,
        after=[_STATE, Ask("EndTxn", {**_COMMITTED, "committed": False}, version=3), _ENDED],
    ),
    _changed(
        "end-of-a-transaction-whose-topic-is-taken-away",
        "EndTxn",
        _COMMITTED,
        [*_IN_TRANSACTION, _WRITTEN, *_taken(_WRITE)],
        3,
        after=[_ENDED],
    ),
    _changed(
        "offsets-in-a-transaction-of-a-group-that-is-taken-away",
        "TxnOffsetCommit",
        {
            "transactional_id": "@id",
            "group_id": "@g",
            **_PRODUCER,
            "generation_id": -1,
            "topics": _COMMIT["topics"],
        },
        [
            *group(),
            *_granted(group_right("READ"), _READ),
            *_IN_TRANSACTION,
            Ask(
                "AddOffsetsToTxn",
                {"transactional_id": "@id", **_PRODUCER, "group_id": "@g"},
                on=USER,
                version=3,
                quiet=True,
            ),
            *_taken(group_right("READ")),
        ],
        3,
    ),
    _changed(
        "denial-in-the-middle-of-a-session",
        "Fetch",
        _session("$s", 1),
        [*READY, *_granted(_READ), _opened(), *_granted(replace(_READ, deny=True))],
        12,
    ),
]
