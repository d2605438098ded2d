"""Share groups at the partition leader: ShareFetch and ShareAcknowledge (KIP-932, KIP-1206,
KIP-1222)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import group
from tests.oracle.scenarios.fetch import delete_records
from tests.oracle.scenarios.transactions import add_partitions, end_transaction
from tests.oracle.script import (
    NO_SUCH_ID,
    Ask,
    Batch,
    Step,
    Wait,
    produce_body,
    produced,
    producer,
    scenarios_of,
    topic,
)

_GROUP_RESOURCE = 32
_GAP, _ACCEPT, _RELEASE, _REJECT, _RENEW = range(5)

#: Enable share groups; in a new Kafka they are enabled.
_ON = Ask(
    "UpdateFeatures",
    {
        "timeout_ms": 10_000,
        "feature_updates": [
            {"feature": "share.version", "max_version_level": 1, "upgrade_type": 1}
        ],
    },
    version=2,
    quiet=True,
)


def _configured(**settings: str) -> Step:
    """Preparing step: set these settings of the group, with underscores for dots."""
    return Ask(
        "IncrementalAlterConfigs",
        {
            "resources": [
                {
                    "resource_type": _GROUP_RESOURCE,
                    "resource_name": "@g",
                    "configs": [
                        {"name": name.replace("_", "."), "config_operation": 0, "value": value}
                        for name, value in settings.items()
                    ],
                }
            ]
        },
        quiet=True,
    )


def _joined() -> list[Step]:
    """Preparing steps: the member `m` joins, and the group's states of the topic's partitions are
    initialized."""
    body = {"group_id": "@g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["@t"]}
    again = {"group_id": "@g", "member_id": "m", "member_epoch": "$e"}
    return [
        *group(),
        Wait(300),
        Ask("ShareGroupHeartbeat", body, save={"e": "member_epoch"}, quiet=True),
        Ask("ShareGroupHeartbeat", again, until={"member_epoch": 3}, quiet=True),
    ]


Acks = Sequence[tuple[int, int, Sequence[int]]]


def _batches(acks: Acks) -> list[dict[str, Any]]:
    return [
        {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
        for first, last, types in acks
    ]


def share_fetch(
    epoch: int,
    partitions: Mapping[int, Acks] | None = None,
    *,
    member: str = "m",
    topic_id: Any = "$t",
    forgotten: Sequence[int] = (),
    wait_ms: int = 5_000,
    max_bytes: int = 1 << 20,
    max_records: int = 500,
    batch_size: int = 500,
    on: str = "a",
    quiet: bool = False,
    version: int | None = None,
    **more: Any,
) -> Ask:
    """A ShareFetch request. `partitions`: partition -> acknowledgements; by default partition 0
    without any."""
    named: Mapping[int, Acks] = {0: ()} if partitions is None else partitions
    body = {
        "group_id": "@g",
        "member_id": member,
        "share_session_epoch": epoch,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "max_records": max_records,
        "batch_size": batch_size,
        "topics": [
            {
                "topic_id": topic_id,
                "partitions": [
                    {"partition_index": index, "acknowledgement_batches": _batches(acks)}
                    for index, acks in named.items()
                ],
            }
        ]
        if named
        else [],
        "forgotten_topics_data": [{"topic_id": "$t", "partitions": list(forgotten)}]
        if forgotten
        else [],
        **more,
    }
    return Ask("ShareFetch", body, on=on, quiet=quiet, version=version)


def share_acknowledge(
    epoch: int,
    *acks: tuple[int, int, Sequence[int]],
    member: str = "m",
    partition: int = 0,
    topic_id: Any = "$t",
    on: str = "a",
    **more: Any,
) -> Ask:
    body = {
        "group_id": "@g",
        "member_id": member,
        "share_session_epoch": epoch,
        "topics": [
            {
                "topic_id": topic_id,
                "partitions": [
                    {"partition_index": partition, "acknowledgement_batches": _batches(acks)}
                ],
            }
        ],
        **more,
    }
    return Ask("ShareAcknowledge", body, on=on)


def acknowledge_by_fetch(epoch: int, *acks: tuple[int, int, Sequence[int]], **more: Any) -> Ask:
    """A ShareFetch that only acknowledges. If it also requested records, Kafka would read them
    while it is still storing the acknowledgements."""
    return share_fetch(epoch, {0: acks}, max_records=0, wait_ms=300, **more)


def _nothing(epoch: int, **more: Any) -> Ask:
    """A ShareFetch in the open session; the answer is expected to have no records."""
    return share_fetch(epoch, {}, wait_ms=300, **more)


_EARLIEST = _configured(share_auto_offset_reset="earliest")
_FIVE, _THREE = Batch(list("abcde")), Batch(list("fgh"))
_START: list[Step] = [_ON, *topic(), _EARLIEST, *_joined()]
_ABORTED: list[Step] = [
    *_START,
    _configured(share_isolation_level="read_committed"),
    *producer(),
    add_partitions(version=3, quiet=True),
    *(
        Ask(
            "Produce",
            produce_body(
                Batch(
                    list("abc"),
                    producer_id="$pid",
                    producer_epoch="$pid_epoch",
                    base_sequence=sequence,
                    transactional=True,
                ),
                transactional_id="@id",
            ),
            quiet=True,
        )
        for sequence in (0, 3)
    ),
    end_transaction(False, version=4, quiet=True),
]
FILLED: list[Step] = [*_START, produced(_FIVE), produced(_THREE)]
_ONE_BATCH: list[Step] = [*_START, produced(Batch(list("abcdefgh")))]
_TWO_PARTITIONS: list[Step] = [_ON, *topic(partitions=2), _EARLIEST, *_joined()]
#: The session, now at epoch 1, has acquired two batches with eight records together.
_ACQUIRED: list[Step] = [*FILLED, share_fetch(0, quiet=True)]


_FETCH = scenarios_of(
    {
        ("share-fetch", "ShareFetch", "1-2"): [
            *FILLED,
            share_fetch(0),
            _nothing(1),
            produced(Batch(["i"])),
            share_fetch(2, {}),
            share_fetch(3, {0: [(0, 8, [_ACCEPT])]}, wait_ms=300),
            _nothing(4),
        ],
        ("share-fetch-sessions", "ShareFetch", "1-2"): [
            *FILLED,
            share_fetch(1),
            share_fetch(-1),
            share_fetch(-2),
            share_fetch(0, {0: [(0, 1, [_ACCEPT])]}),
            share_fetch(0),
            share_fetch(0, {0: ()}, wait_ms=300),
            _nothing(2),
            _nothing(1),
            _nothing(1),
            _nothing(2),
            share_fetch(-1, {0: [(0, 7, [_ACCEPT])]}),
            _nothing(3),
            share_fetch(0, {0: ()}, wait_ms=300),
        ],
        ("share-fetch-partitions", "ShareFetch", "1-2"): [
            *_TWO_PARTITIONS,
            produced(_FIVE),
            produced(_THREE, partition=1),
            share_fetch(0, {0: ()}),
            share_fetch(1, {1: ()}, forgotten=[0]),
            _nothing(2),
            share_fetch(3, {7: ()}, wait_ms=300),
            _nothing(4),
            share_fetch(0, {7: (), 8: ()}, wait_ms=300),
        ],
        ("share-fetch-of-two-partitions", "ShareFetch", "1-2"): [
            *_TWO_PARTITIONS,
            produced(_FIVE),
            produced(_THREE, partition=1),
            share_fetch(0, {0: (), 1: ()}),
            _nothing(1),
            _nothing(2),
            produced(_FIVE),
            produced(_THREE, partition=1),
            _nothing(3),
            _nothing(4),
        ],
        ("share-fetch-unknown-topic", "ShareFetch", "1-2"): [
            *_START,
            share_fetch(0, topic_id=NO_SUCH_ID, wait_ms=300),
            share_fetch(1, {0: [(0, 4, [_ACCEPT])]}, topic_id=NO_SUCH_ID, wait_ms=300),
            _nothing(2),
        ],
        ("share-fetch-refused", "ShareFetch", "1-2"): [
            *FILLED,
            share_fetch(0, group_id=None),
            share_fetch(0, member=""),
            share_fetch(0, member_id=None),
            share_fetch(0, member="x" * 37),
            share_fetch(0, member="x" * 36),
        ],
        ("share-fetch-records", "ShareFetch", "1-2"): [
            *FILLED,
            share_fetch(0, max_records=0, wait_ms=300),
            share_fetch(1, {}, max_bytes=0, wait_ms=300),
            share_fetch(2, {}, max_records=1),
            share_fetch(3, {}, max_records=6),
            _nothing(4),
        ],
        ("share-fetch-bytes", "ShareFetch", "1-2"): [
            *FILLED,
            share_fetch(0, max_bytes=1),
            share_fetch(1, {}, max_bytes=1),
        ],
        ("share-fetch-batch-size", "ShareFetch", "1-2"): [
            *FILLED,
            produced(Batch(["i"])),
            produced(Batch(["j", "k"])),
            share_fetch(0, batch_size=2),
            acknowledge_by_fetch(1, (0, 10, [_RELEASE])),
            share_fetch(2, {}, batch_size=1),
        ],
        ("share-fetch-record-limit", "ShareFetch", "2"): [
            *FILLED,
            share_fetch(0, max_records=2, share_acquire_mode=1),
            share_fetch(1, {}, max_records=2, share_acquire_mode=1),
            share_fetch(2, {}, max_records=2, share_acquire_mode=1),
            acknowledge_by_fetch(3, (0, 1, [_RELEASE])),
            share_fetch(4, {}, max_records=9, share_acquire_mode=1),
            share_fetch(5, {}, max_records=9, share_acquire_mode=1, wait_ms=300),
        ],
        ("share-fetch-acknowledges", "ShareFetch", "1-2"): [
            *_ACQUIRED,
            acknowledge_by_fetch(1, (0, 1, [_ACCEPT]), (2, 4, [_RELEASE, _REJECT, _GAP])),
            acknowledge_by_fetch(2, (0, 1, [_ACCEPT])),
            share_fetch(3, {}),
            acknowledge_by_fetch(4, (5, 6, [_ACCEPT]), (7, 9, [_ACCEPT])),
            acknowledge_by_fetch(5, (5, 7, [_ACCEPT])),
            _nothing(6),
        ],
        ("share-fetch-acknowledges-elsewhere", "ShareFetch", "1-2"): [
            *_TWO_PARTITIONS,
            produced(_FIVE),
            share_fetch(0, quiet=True),
            share_fetch(1, {0: [(0, 4, [_ACCEPT])], 1: ()}, max_records=0),
            share_fetch(2, {1: [(0, 4, [_ACCEPT])], 7: [(0, 4, [_ACCEPT])]}, max_records=0),
            share_fetch(-1, {0: [(0, 4, [_ACCEPT])]}),
        ],
        ("share-fetch-renews", "ShareFetch", "2"): [
            *_ACQUIRED,
            acknowledge_by_fetch(1, (0, 4, [_RENEW])),
            share_fetch(2, {0: [(0, 4, [_RENEW])]}, is_renew_ack=True),
            share_fetch(
                2,
                {0: [(0, 4, [_RENEW]), (5, 7, [_ACCEPT])]},
                wait_ms=0,
                min_bytes=0,
                max_bytes=0,
                max_records=0,
                is_renew_ack=True,
            ),
            _nothing(3),
        ],
        ("share-fetch-deliveries", "ShareFetch", "1-2"): [
            *_ONE_BATCH,
            share_fetch(0),
            acknowledge_by_fetch(1, (0, 7, [_RELEASE])),
            share_fetch(2, {}),
            acknowledge_by_fetch(3, (0, 7, [_RELEASE])),
            share_fetch(4, {}),
            acknowledge_by_fetch(5, (0, 7, [_RELEASE])),
            share_fetch(6, {}),
            share_fetch(7, {}),
            acknowledge_by_fetch(8, (0, 7, [_RELEASE])),
            share_fetch(9, {}),
            share_fetch(10, {}),
            acknowledge_by_fetch(11, (0, 1, [_RELEASE])),
            share_fetch(12, {}),
        ],
        ("share-fetch-last-delivery", "ShareFetch", "1-2"): [
            *_ONE_BATCH,
            _configured(share_delivery_count_limit="3"),
            share_fetch(0),
            acknowledge_by_fetch(1, (0, 7, [_RELEASE])),
            share_fetch(2, {}),
            acknowledge_by_fetch(3, (0, 7, [_RELEASE])),
            share_fetch(4, {}),
            acknowledge_by_fetch(5, (0, 0, [_RELEASE])),
            share_fetch(6, {}),
        ],
        ("share-fetch-two-deliveries", "ShareFetch", "1-2"): [
            *_ONE_BATCH,
            _configured(share_delivery_count_limit="2"),
            share_fetch(0),
            acknowledge_by_fetch(1, (0, 7, [_RELEASE])),
            share_fetch(2, {}),
            acknowledge_by_fetch(3, (0, 7, [_RELEASE])),
            _nothing(4),
        ],
        ("share-fetch-lower-limit", "ShareFetch", "1-2"): [
            *_ONE_BATCH,
            share_fetch(0),
            acknowledge_by_fetch(1, (0, 7, [_RELEASE])),
            share_fetch(2, {}),
            acknowledge_by_fetch(3, (0, 3, [_RELEASE])),
            _configured(share_delivery_count_limit="2"),
            share_fetch(4, {}),
            acknowledge_by_fetch(5, (0, 7, [_RELEASE])),
            _nothing(6),
        ],
        ("share-fetch-others", "ShareFetch", "1-2"): [
            *FILLED,
            share_fetch(0, max_records=1),
            share_fetch(0, member="n", on="b"),
            acknowledge_by_fetch(1, (5, 7, [_ACCEPT])),
            acknowledge_by_fetch(1, (0, 1, [_ACCEPT]), member="n", on="b"),
            share_fetch(-1, {}),
            share_fetch(2, {}, member="n", on="b"),
            acknowledge_by_fetch(3, (0, 4, [_ACCEPT]), member="n", on="b"),
        ],
        ("share-fetch-transactions", "ShareFetch", "1-2"): [
            _ON,
            *topic(),
            _configured(share_auto_offset_reset="earliest", share_isolation_level="read_committed"),
            *_joined(),
            *producer(),
            produced(Batch(["a", "b"])),
            Ask(
                "AddPartitionsToTxn",
                {
                    "v3_and_below_transactional_id": "@id",
                    "v3_and_below_producer_id": "$pid",
                    "v3_and_below_producer_epoch": "$pid_epoch",
                    "v3_and_below_topics": [{"name": "@t", "partitions": [0]}],
                },
                quiet=True,
            ),
            Ask(
                "Produce",
                {
                    "transactional_id": "@id",
                    "acks": -1,
                    "timeout_ms": 10_000,
                    "topic_data": [
                        {
                            "name": "@t",
                            "topic_id": "$t",
                            "partition_data": [
                                {
                                    "index": 0,
                                    "records": Batch(
                                        ["c", "d"],
                                        producer_id="$pid",
                                        producer_epoch="$pid_epoch",
                                        base_sequence=0,
                                        transactional=True,
                                    ),
                                }
                            ],
                        }
                    ],
                },
                quiet=True,
            ),
            produced(Batch(["e"])),
            share_fetch(0),
            _nothing(1),
            Ask(
                "EndTxn",
                {
                    "transactional_id": "@id",
                    "producer_id": "$pid",
                    "producer_epoch": "$pid_epoch",
                    "committed": False,
                },
                quiet=True,
            ),
            # The marker is written during this wait.
            Wait(500),
            share_fetch(2, {}),
            acknowledge_by_fetch(3, (0, 1, [_ACCEPT]), (4, 4, [_ACCEPT]), (5, 5, [_GAP])),
        ],
        ("share-fetch-deleted-records", "ShareFetch", "1-2"): [
            *FILLED,
            share_fetch(0, max_records=1),
            acknowledge_by_fetch(1, (0, 4, [_RELEASE])),
            Ask(
                "DeleteRecords",
                {
                    "timeout_ms": 5000,
                    "topics": [{"name": "@t", "partitions": [{"partition_index": 0, "offset": 3}]}],
                },
                quiet=True,
            ),
            share_fetch(2, {}, wait_ms=300),
            share_fetch(3, {}),
            acknowledge_by_fetch(4, (0, 7, [_ACCEPT])),
        ],
        ("share-fetch-latest", "ShareFetch", "1-2"): [
            _ON,
            *topic(),
            *_joined(),
            produced(_FIVE),
            # This fetch lets the broker load the share partition.
            share_fetch(0, wait_ms=1_000, quiet=True),
            produced(_THREE),
            share_fetch(1, {}),
        ],
        ("share-fetch-by-duration", "ShareFetch", "1-2"): [
            _ON,
            *topic(),
            _configured(share_auto_offset_reset="by_duration:PT1H"),
            *_joined(),
            produced(_FIVE),
            share_fetch(0, wait_ms=1_000),
            produced(_THREE),
            share_fetch(1, {}, wait_ms=1_000),
        ],
    }
)

_ACKNOWLEDGE = scenarios_of(
    {
        ("share-acknowledge", "ShareAcknowledge", "1-2"): [
            *_ACQUIRED,
            share_acknowledge(1, (0, 1, [_ACCEPT]), (2, 4, [_RELEASE, _REJECT, _GAP])),
            share_acknowledge(2, (0, 1, [_ACCEPT])),
            share_acknowledge(3, (2, 2, [_ACCEPT])),
            share_acknowledge(4, (5, 7, [_ACCEPT])),
            share_acknowledge(5, (5, 7, [_ACCEPT])),
            share_fetch(6, {}),
        ],
        ("share-acknowledge-sessions", "ShareAcknowledge", "1-2"): [
            *FILLED,
            share_acknowledge(0, (0, 4, [_ACCEPT])),
            share_acknowledge(1, (0, 4, [_ACCEPT])),
            share_acknowledge(-1, (0, 4, [_ACCEPT])),
            share_fetch(0, quiet=True),
            share_acknowledge(0, (0, 4, [_ACCEPT])),
            share_acknowledge(2, (0, 4, [_ACCEPT])),
            share_acknowledge(1, (0, 4, [_ACCEPT])),
            share_acknowledge(1, (5, 7, [_ACCEPT])),
            share_acknowledge(-1, (5, 5, [_ACCEPT])),
            share_acknowledge(2, (6, 7, [_ACCEPT])),
            share_fetch(0),
        ],
        ("share-acknowledge-refused", "ShareAcknowledge", "1-2"): [
            *_ACQUIRED,
            share_acknowledge(1, (0, 4, [_ACCEPT]), group_id=None),
            share_acknowledge(1, (0, 4, [_ACCEPT]), member=""),
            share_acknowledge(1, (0, 4, [_ACCEPT]), member="x" * 37),
            share_acknowledge(1, (4, 0, [_ACCEPT])),
            share_acknowledge(2, (0, 4, [])),
            share_acknowledge(3, (0, 4, [_ACCEPT, _ACCEPT])),
            share_acknowledge(4, (0, 4, [9])),
            share_acknowledge(5, (0, 4, [-1])),
            share_acknowledge(6, (5, 7, [_ACCEPT]), (0, 4, [_ACCEPT])),
            share_acknowledge(7, (0, 4, [_ACCEPT]), (4, 7, [_ACCEPT])),
            share_acknowledge(8),
            share_acknowledge(9, (0, 4, [_RENEW])),
            share_acknowledge(10, (0, 4, [_ACCEPT]), partition=7),
            share_acknowledge(11, (0, 4, [_ACCEPT]), topic_id=NO_SUCH_ID),
        ],
        ("share-acknowledge-unknown-offsets", "ShareAcknowledge", "1-2"): [
            *_ACQUIRED,
            share_acknowledge(1, (8, 9, [_ACCEPT])),
            share_acknowledge(2, (5, 9, [_ACCEPT])),
            share_acknowledge(3, (0, 4, [_ACCEPT]), (8, 9, [_ACCEPT])),
            share_acknowledge(4, (0, 7, [_ACCEPT])),
            share_acknowledge(5, (0, 7, [_ACCEPT])),
            share_acknowledge(6, (0, 4, [_ACCEPT]), partition=0, member="n"),
        ],
        ("share-acknowledge-nothing-loaded", "ShareAcknowledge", "1-2"): [
            *_TWO_PARTITIONS,
            share_fetch(0, {0: ()}, wait_ms=300, quiet=True),
            share_acknowledge(1, (0, 4, [_ACCEPT])),
            share_acknowledge(2, (0, 4, [_ACCEPT]), partition=1),
        ],
        ("share-acknowledge-others", "ShareAcknowledge", "1-2"): [
            *FILLED,
            share_fetch(0, max_records=1, quiet=True),
            share_fetch(0, member="n", on="b", quiet=True),
            share_acknowledge(1, (5, 7, [_ACCEPT])),
            share_acknowledge(2, (0, 7, [_ACCEPT])),
            share_acknowledge(3, (0, 1, [_RELEASE])),
            share_fetch(1, {}, member="n", on="b", quiet=True),
            share_acknowledge(4, (0, 1, [_ACCEPT])),
            share_acknowledge(2, (0, 1, [_ACCEPT]), member="n", on="b"),
        ],
        ("share-acknowledge-what-was-aborted", "ShareAcknowledge"): [
            *_ABORTED,
            share_fetch(0, quiet=True),
            share_acknowledge(1, (1, 1, [_RELEASE])),
            share_acknowledge(2, (9, 9, [_RELEASE])),
        ],
        ("share-acknowledge-below-what-was-aborted", "ShareAcknowledge"): [
            *_ABORTED,
            delete_records(3),
            share_fetch(0, quiet=True),
            share_acknowledge(1, (1, 4, [_RELEASE])),
        ],
        ("share-acknowledge-renews", "ShareAcknowledge", "2"): [
            *_ACQUIRED,
            share_acknowledge(1, (0, 4, [_RENEW]), is_renew_ack=True),
            share_acknowledge(2, (5, 6, [_RENEW]), is_renew_ack=True),
            share_acknowledge(3, (0, 4, [_ACCEPT]), is_renew_ack=True),
            share_acknowledge(4, (0, 4, [_RENEW]), is_renew_ack=True),
            _configured(share_renew_acknowledge_enable="false"),
            share_acknowledge(5, (5, 7, [_RENEW]), is_renew_ack=True),
            share_acknowledge(6, (5, 7, [_ACCEPT])),
        ],
    }
)

SCENARIOS = [*_FETCH, *_ACKNOWLEDGE]
