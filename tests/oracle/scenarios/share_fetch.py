"""Share groups at the leader: ShareFetch and ShareAcknowledge (KIP-932, KIP-1206, KIP-1222)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import group
from tests.oracle.script import (
    NO_SUCH_ID,
    Ask,
    Batch,
    Scenario,
    Step,
    Wait,
    produced,
    producer,
    topic,
)

_GROUP_RESOURCE = 32
_GAP, _ACCEPT, _RELEASE, _REJECT, _RENEW = range(5)

#: Share groups are switched on, as they are in a new Kafka.
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
    """The group has these settings, with underscores for points."""
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
    """The member `m` has joined, so that the group's states in the partitions of the topic are
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


def _fetch(
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
    """`partitions`: the acknowledgements of each partition that is named."""
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


def _acknowledge(
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


def _only(epoch: int, *acks: tuple[int, int, Sequence[int]], **more: Any) -> Ask:
    """Acknowledgements in a fetch that asks for no records: in one that does, Kafka reads while the
    acknowledgements are being stored."""
    return _fetch(epoch, {0: acks}, max_records=0, wait_ms=300, **more)


def _nothing(epoch: int, **more: Any) -> Ask:
    """A fetch of the session that is expected to bring nothing."""
    return _fetch(epoch, {}, wait_ms=300, **more)


_EARLIEST = _configured(share_auto_offset_reset="earliest")
_FIVE, _THREE = Batch(list("abcde")), Batch(list("fgh"))
_START: list[Step] = [_ON, *topic(), _EARLIEST, *_joined()]
_FILLED: list[Step] = [*_START, produced(_FIVE), produced(_THREE)]
_ONE_BATCH: list[Step] = [*_START, produced(Batch(list("abcdefgh")))]
_TWO_PARTITIONS: list[Step] = [_ON, *topic(partitions=2), _EARLIEST, *_joined()]
#: Two batches of eight records together are acquired by the session at epoch 1.
_ACQUIRED: list[Step] = [*_FILLED, _fetch(0, quiet=True)]


def _fetches(name: str, steps: Sequence[Step], versions: str = "1-2") -> Scenario:
    return Scenario(name, "ShareFetch", steps, versions)


def _acknowledges(name: str, steps: Sequence[Step], versions: str = "1-2") -> Scenario:
    return Scenario(name, "ShareAcknowledge", steps, versions)


_FETCH = [
    _fetches(
        "share-fetch",
        [
            *_FILLED,
            _fetch(0),
            _nothing(1),
            produced(Batch(["i"])),
            _fetch(2, {}),
            _fetch(3, {0: [(0, 8, [_ACCEPT])]}, wait_ms=300),
            _nothing(4),
        ],
    ),
    _fetches(
        "share-fetch-sessions",
        [
            *_FILLED,
            _fetch(1),
            _fetch(-1),
            _fetch(-2),
            _fetch(0, {0: [(0, 1, [_ACCEPT])]}),
            _fetch(0),
            _fetch(0, {0: ()}, wait_ms=300),
            _nothing(2),
            _nothing(1),
            _nothing(1),
            _nothing(2),
            _fetch(-1, {0: [(0, 7, [_ACCEPT])]}),
            _nothing(3),
            _fetch(0, {0: ()}, wait_ms=300),
        ],
    ),
    _fetches(
        "share-fetch-partitions",
        [
            *_TWO_PARTITIONS,
            produced(_FIVE),
            produced(_THREE, partition=1),
            _fetch(0, {0: ()}),
            _fetch(1, {1: ()}, forgotten=[0]),
            _nothing(2),
            _fetch(3, {7: ()}, wait_ms=300),
            _nothing(4),
            _fetch(0, {7: (), 8: ()}, wait_ms=300),
        ],
    ),
    _fetches(
        "share-fetch-unknown-topic",
        [
            *_START,
            _fetch(0, topic_id=NO_SUCH_ID, wait_ms=300),
            _fetch(1, {0: [(0, 4, [_ACCEPT])]}, topic_id=NO_SUCH_ID, wait_ms=300),
            _nothing(2),
        ],
    ),
    _fetches(
        "share-fetch-refused",
        [
            *_FILLED,
            _fetch(0, group_id=None),
            _fetch(0, member=""),
            _fetch(0, member_id=None),
            _fetch(0, member="x" * 37),
            _fetch(0, member="x" * 36),
        ],
    ),
    _fetches(
        "share-fetch-records",
        [
            *_FILLED,
            _fetch(0, max_records=0, wait_ms=300),
            _fetch(1, {}, max_bytes=0, wait_ms=300),
            _fetch(2, {}, max_records=1),
            _fetch(3, {}, max_records=6),
            _nothing(4),
        ],
    ),
    _fetches("share-fetch-bytes", [*_FILLED, _fetch(0, max_bytes=1), _fetch(1, {}, max_bytes=1)]),
    _fetches(
        "share-fetch-batch-size",
        [
            *_FILLED,
            produced(Batch(["i"])),
            produced(Batch(["j", "k"])),
            _fetch(0, batch_size=2),
            _only(1, (0, 10, [_RELEASE])),
            _fetch(2, {}, batch_size=1),
        ],
    ),
    _fetches(
        "share-fetch-record-limit",
        [
            *_FILLED,
            _fetch(0, max_records=2, share_acquire_mode=1),
            _fetch(1, {}, max_records=2, share_acquire_mode=1),
            _fetch(2, {}, max_records=2, share_acquire_mode=1),
            _only(3, (0, 1, [_RELEASE])),
            _fetch(4, {}, max_records=9, share_acquire_mode=1),
            _fetch(5, {}, max_records=9, share_acquire_mode=1, wait_ms=300),
        ],
        "2",
    ),
    _fetches(
        "share-fetch-acknowledges",
        [
            *_ACQUIRED,
            _only(1, (0, 1, [_ACCEPT]), (2, 4, [_RELEASE, _REJECT, _GAP])),
            _only(2, (0, 1, [_ACCEPT])),
            _fetch(3, {}),
            _only(4, (5, 6, [_ACCEPT]), (7, 9, [_ACCEPT])),
            _only(5, (5, 7, [_ACCEPT])),
            _nothing(6),
        ],
    ),
    _fetches(
        "share-fetch-acknowledges-elsewhere",
        [
            *_TWO_PARTITIONS,
            produced(_FIVE),
            _fetch(0, quiet=True),
            _fetch(1, {0: [(0, 4, [_ACCEPT])], 1: ()}, max_records=0),
            _fetch(2, {1: [(0, 4, [_ACCEPT])], 7: [(0, 4, [_ACCEPT])]}, max_records=0),
            _fetch(-1, {0: [(0, 4, [_ACCEPT])]}),
        ],
    ),
    _fetches(
        "share-fetch-renews",
        [
            *_ACQUIRED,
            _only(1, (0, 4, [_RENEW])),
            _fetch(2, {0: [(0, 4, [_RENEW])]}, is_renew_ack=True),
            _fetch(
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
        "2",
    ),
    _fetches(
        "share-fetch-deliveries",
        [
            *_ONE_BATCH,
            _fetch(0),
            _only(1, (0, 7, [_RELEASE])),
            _fetch(2, {}),
            _only(3, (0, 7, [_RELEASE])),
            _fetch(4, {}),
            _only(5, (0, 7, [_RELEASE])),
            _fetch(6, {}),
            _fetch(7, {}),
            _only(8, (0, 7, [_RELEASE])),
            _fetch(9, {}),
            _fetch(10, {}),
            _only(11, (0, 1, [_RELEASE])),
            _fetch(12, {}),
        ],
    ),
    _fetches(
        "share-fetch-last-delivery",
        [
            *_ONE_BATCH,
            _configured(share_delivery_count_limit="3"),
            _fetch(0),
            _only(1, (0, 7, [_RELEASE])),
            _fetch(2, {}),
            _only(3, (0, 7, [_RELEASE])),
            _fetch(4, {}),
            _only(5, (0, 0, [_RELEASE])),
            _fetch(6, {}),
        ],
    ),
    _fetches(
        "share-fetch-two-deliveries",
        [
            *_ONE_BATCH,
            _configured(share_delivery_count_limit="2"),
            _fetch(0),
            _only(1, (0, 7, [_RELEASE])),
            _fetch(2, {}),
            _only(3, (0, 7, [_RELEASE])),
            _nothing(4),
        ],
    ),
    _fetches(
        "share-fetch-lower-limit",
        [
            *_ONE_BATCH,
            _fetch(0),
            _only(1, (0, 7, [_RELEASE])),
            _fetch(2, {}),
            _only(3, (0, 3, [_RELEASE])),
            _configured(share_delivery_count_limit="2"),
            _fetch(4, {}),
            _only(5, (0, 7, [_RELEASE])),
            _nothing(6),
        ],
    ),
    _fetches(
        "share-fetch-others",
        [
            *_FILLED,
            _fetch(0, max_records=1),
            _fetch(0, member="n", on="b"),
            _only(1, (5, 7, [_ACCEPT])),
            _only(1, (0, 1, [_ACCEPT]), member="n", on="b"),
            _fetch(-1, {}),
            _fetch(2, {}, member="n", on="b"),
            _only(3, (0, 4, [_ACCEPT]), member="n", on="b"),
        ],
    ),
    _fetches(
        "share-fetch-transactions",
        [
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
            _fetch(0),
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
            # Until the marker is there.
            Wait(500),
            _fetch(2, {}),
            _only(3, (0, 1, [_ACCEPT]), (4, 4, [_ACCEPT]), (5, 5, [_GAP])),
        ],
    ),
    _fetches(
        "share-fetch-deleted-records",
        [
            *_FILLED,
            _fetch(0, max_records=1),
            _only(1, (0, 4, [_RELEASE])),
            Ask(
                "DeleteRecords",
                {
                    "timeout_ms": 5000,
                    "topics": [{"name": "@t", "partitions": [{"partition_index": 0, "offset": 3}]}],
                },
                quiet=True,
            ),
            _fetch(2, {}, wait_ms=300),
            _fetch(3, {}),
            _only(4, (0, 7, [_ACCEPT])),
        ],
    ),
    _fetches(
        "share-fetch-latest",
        [
            _ON,
            *topic(),
            *_joined(),
            produced(_FIVE),
            # Until the share partition is loaded.
            _fetch(0, wait_ms=1_000, quiet=True),
            produced(_THREE),
            _fetch(1, {}),
        ],
    ),
    _fetches(
        "share-fetch-by-duration",
        [
            _ON,
            *topic(),
            _configured(share_auto_offset_reset="by_duration:PT1H"),
            *_joined(),
            produced(_FIVE),
            _fetch(0, wait_ms=1_000),
            produced(_THREE),
            _fetch(1, {}, wait_ms=1_000),
        ],
    ),
]

_ACKNOWLEDGE = [
    _acknowledges(
        "share-acknowledge",
        [
            *_ACQUIRED,
            _acknowledge(1, (0, 1, [_ACCEPT]), (2, 4, [_RELEASE, _REJECT, _GAP])),
            _acknowledge(2, (0, 1, [_ACCEPT])),
            _acknowledge(3, (2, 2, [_ACCEPT])),
            _acknowledge(4, (5, 7, [_ACCEPT])),
            _acknowledge(5, (5, 7, [_ACCEPT])),
            _fetch(6, {}),
        ],
    ),
    _acknowledges(
        "share-acknowledge-sessions",
        [
            *_FILLED,
            _acknowledge(0, (0, 4, [_ACCEPT])),
            _acknowledge(1, (0, 4, [_ACCEPT])),
            _acknowledge(-1, (0, 4, [_ACCEPT])),
            _fetch(0, quiet=True),
            _acknowledge(0, (0, 4, [_ACCEPT])),
            _acknowledge(2, (0, 4, [_ACCEPT])),
            _acknowledge(1, (0, 4, [_ACCEPT])),
            _acknowledge(1, (5, 7, [_ACCEPT])),
            _acknowledge(-1, (5, 5, [_ACCEPT])),
            _acknowledge(2, (6, 7, [_ACCEPT])),
            _fetch(0),
        ],
    ),
    _acknowledges(
        "share-acknowledge-refused",
        [
            *_ACQUIRED,
            _acknowledge(1, (0, 4, [_ACCEPT]), group_id=None),
            _acknowledge(1, (0, 4, [_ACCEPT]), member=""),
            _acknowledge(1, (0, 4, [_ACCEPT]), member="x" * 37),
            _acknowledge(1, (4, 0, [_ACCEPT])),
            _acknowledge(2, (0, 4, [])),
            _acknowledge(3, (0, 4, [_ACCEPT, _ACCEPT])),
            _acknowledge(4, (0, 4, [9])),
            _acknowledge(5, (0, 4, [-1])),
            _acknowledge(6, (5, 7, [_ACCEPT]), (0, 4, [_ACCEPT])),
            _acknowledge(7, (0, 4, [_ACCEPT]), (4, 7, [_ACCEPT])),
            _acknowledge(8),
            _acknowledge(9, (0, 4, [_RENEW])),
            _acknowledge(10, (0, 4, [_ACCEPT]), partition=7),
            _acknowledge(11, (0, 4, [_ACCEPT]), topic_id=NO_SUCH_ID),
        ],
    ),
    _acknowledges(
        "share-acknowledge-unknown-offsets",
        [
            *_ACQUIRED,
            _acknowledge(1, (8, 9, [_ACCEPT])),
            _acknowledge(2, (5, 9, [_ACCEPT])),
            _acknowledge(3, (0, 4, [_ACCEPT]), (8, 9, [_ACCEPT])),
            _acknowledge(4, (0, 7, [_ACCEPT])),
            _acknowledge(5, (0, 7, [_ACCEPT])),
            _acknowledge(6, (0, 4, [_ACCEPT]), partition=0, member="n"),
        ],
    ),
    _acknowledges(
        "share-acknowledge-nothing-loaded",
        [
            *_TWO_PARTITIONS,
            _fetch(0, {0: ()}, wait_ms=300, quiet=True),
            _acknowledge(1, (0, 4, [_ACCEPT])),
            _acknowledge(2, (0, 4, [_ACCEPT]), partition=1),
        ],
    ),
    _acknowledges(
        "share-acknowledge-others",
        [
            *_FILLED,
            _fetch(0, max_records=1, quiet=True),
            _fetch(0, member="n", on="b", quiet=True),
            _acknowledge(1, (5, 7, [_ACCEPT])),
            _acknowledge(2, (0, 7, [_ACCEPT])),
            _acknowledge(3, (0, 1, [_RELEASE])),
            _fetch(1, {}, member="n", on="b", quiet=True),
            _acknowledge(4, (0, 1, [_ACCEPT])),
            _acknowledge(2, (0, 1, [_ACCEPT]), member="n", on="b"),
        ],
    ),
    _acknowledges(
        "share-acknowledge-renews",
        [
            *_ACQUIRED,
            _acknowledge(1, (0, 4, [_RENEW]), is_renew_ack=True),
            _acknowledge(2, (5, 6, [_RENEW]), is_renew_ack=True),
            _acknowledge(3, (0, 4, [_ACCEPT]), is_renew_ack=True),
            _acknowledge(4, (0, 4, [_RENEW]), is_renew_ack=True),
            _configured(share_renew_acknowledge_enable="false"),
            _acknowledge(5, (5, 7, [_RENEW]), is_renew_ack=True),
            _acknowledge(6, (5, 7, [_ACCEPT])),
        ],
        "2",
    ),
]

SCENARIOS = [*_FETCH, *_ACKNOWLEDGE]
