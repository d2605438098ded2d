"""The stored state of share partitions (KIP-932): InitializeShareGroupState, ReadShareGroupState,
WriteShareGroupState, DeleteShareGroupState and ReadShareGroupStateSummary.

Brokers send these requests to each other, and no broker checks the cluster's features for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.malformed import spoiled
from tests.oracle.script import (
    APIS_BY_NAME,
    NO_SUCH_ID,
    Ask,
    Padded,
    Scenario,
    Step,
    scenarios_of,
    topic,
)

_Batch = tuple[int, int, int, int]

_AVAILABLE, _ACKNOWLEDGED, _ARCHIVED = 0, 2, 4

#: Kafka creates the internal topic when its metadata are requested.
STATES_TOPIC = Ask(
    "Metadata",
    {"topics": [{"name": "__share_group_state"}], "allow_auto_topic_creation": True},
    version=8,
    quiet=True,
)


def _body(
    *partitions: Mapping[str, Any], group_id: Any = "@g", topic_id: Any = "$t"
) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "topics": [{"topic_id": topic_id, "partitions": list(partitions)}],
    }


def initialize_state(
    partition: int = 0,
    state_epoch: int = 1,
    start_offset: int = 0,
    quiet: bool = False,
    **more: Any,
) -> Ask:
    part = {"partition": partition, "state_epoch": state_epoch, "start_offset": start_offset}
    return Ask("InitializeShareGroupState", _body(part, **more), quiet=quiet)


def read_state(partition: int = 0, leader_epoch: int = 0, **more: Any) -> Ask:
    part = {"partition": partition, "leader_epoch": leader_epoch}
    return Ask("ReadShareGroupState", _body(part, **more))


def read_state_summary(partition: int = 0, leader_epoch: int = 0, **more: Any) -> Ask:
    part = {"partition": partition, "leader_epoch": leader_epoch}
    return Ask("ReadShareGroupStateSummary", _body(part, **more))


def _written(
    *batches: _Batch,
    partition: int = 0,
    state_epoch: int = 1,
    leader_epoch: int = 0,
    start_offset: int = -1,
    complete: int = 0,
) -> dict[str, Any]:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return {
        "partition": partition,
        "state_epoch": state_epoch,
        "leader_epoch": leader_epoch,
        "start_offset": start_offset,
        "delivery_complete_count": complete,
        "state_batches": [dict(zip(names, batch, strict=True)) for batch in batches],
    }


def write_state(*batches: _Batch, body: Mapping[str, Any] | None = None, **more: Any) -> Ask:
    return Ask("WriteShareGroupState", _body(_written(*batches, **more), **(body or {})))


def delete_state(partition: int = 0, **more: Any) -> Ask:
    return Ask("DeleteShareGroupState", _body({"partition": partition}, **more))


_TOPICS: list[Step] = [*topic(partitions=3), STATES_TOPIC]
#: The last step is repeated until the coordinator has loaded.
STATES_START: list[Step] = [*_TOPICS, initialize_state(quiet=True)]

_INITIALIZE = scenarios_of(
    {
        ("share-state-initialize", "InitializeShareGroupState"): [
            *STATES_START,
            read_state(),
            read_state_summary(),
            initialize_state(partition=1, state_epoch=5, start_offset=17),
            read_state(partition=1),
            read_state_summary(partition=1),
            initialize_state(partition=2, state_epoch=0, start_offset=-1),
            read_state(partition=2),
            read_state_summary(partition=2),
        ],
        ("share-state-initialize-again", "InitializeShareGroupState"): [
            *STATES_START,
            write_state((0, 9, _ACKNOWLEDGED, 1), complete=10),
            initialize_state(start_offset=5),
            read_state(),
            read_state_summary(),
            initialize_state(state_epoch=7, start_offset=3),
            read_state_summary(),
            initialize_state(state_epoch=6),
            initialize_state(state_epoch=-1, start_offset=2),
            read_state_summary(),
            initialize_state(state_epoch=6),
            initialize_state(state_epoch=7),
            initialize_state(state_epoch=-2),
        ],
        ("share-state-initialize-forgets-no-leader", "InitializeShareGroupState"): [
            *STATES_START,
            read_state(leader_epoch=5),
            read_state_summary(),
            initialize_state(state_epoch=2),
            read_state_summary(),
            read_state(leader_epoch=4),
            read_state(leader_epoch=5),
            read_state_summary(),
        ],
        ("share-state-initialize-unknown", "InitializeShareGroupState"): [
            *STATES_START,
            initialize_state(topic_id=NO_SUCH_ID),
            initialize_state(topic_id=bytes(16)),
            initialize_state(partition=3),
            initialize_state(partition=-1),
            initialize_state(group_id=""),
            initialize_state(start_offset=-5, partition=1),
            read_state(partition=1),
        ],
    }
)

_READ = scenarios_of(
    {
        ("share-state-read-uninitialized", "ReadShareGroupState"): [
            *STATES_START,
            read_state(partition=1),
            read_state(topic_id=NO_SUCH_ID),
            read_state(topic_id=bytes(16)),
            read_state(partition=3),
            read_state(partition=-1),
            read_state(group_id="@other"),
            read_state(group_id=""),
            write_state((0, 0, _ACKNOWLEDGED, 1), partition=1),
        ],
        ("share-state-read-with-leader-epochs", "ReadShareGroupState"): [
            *STATES_START,
            write_state(
                (0, 4, _ACKNOWLEDGED, 1), (5, 9, _AVAILABLE, 1), start_offset=2, complete=3
            ),
            read_state(leader_epoch=-1),
            read_state(leader_epoch=3),
            read_state_summary(),
            read_state(leader_epoch=2),
            read_state(leader_epoch=-1),
            read_state(leader_epoch=3),
            write_state(leader_epoch=2),
            write_state(leader_epoch=-1),
            write_state(leader_epoch=9),
            read_state_summary(),
            read_state(leader_epoch=4),
            read_state(leader_epoch=3),
        ],
    }
)

_WRITE = scenarios_of(
    {
        ("share-state-write", "WriteShareGroupState"): [
            *STATES_START,
            write_state((0, 9, _AVAILABLE, 1)),
            read_state(),
            write_state((4, 5, _ACKNOWLEDGED, 1), complete=2),
            read_state(),
            read_state_summary(),
            write_state((2, 7, _ARCHIVED, 1), complete=6),
            read_state(),
            write_state(start_offset=5, complete=3),
            read_state(),
            read_state_summary(),
            write_state(start_offset=-1, complete=-1),
            read_state_summary(),
            write_state(start_offset=100, complete=0),
            read_state(),
            write_state(start_offset=3),
            read_state(),
            write_state((0, 9, _AVAILABLE, 2)),
            read_state(),
        ],
        ("share-state-write-with-state-epochs", "WriteShareGroupState"): [
            *_TOPICS,
            initialize_state(state_epoch=5, quiet=True),
            write_state((0, 0, _ACKNOWLEDGED, 1), state_epoch=4),
            write_state((1, 1, _ACKNOWLEDGED, 1), state_epoch=5),
            write_state((2, 2, _ACKNOWLEDGED, 1), state_epoch=6),
            write_state((3, 3, _ACKNOWLEDGED, 1), state_epoch=-1),
            write_state((4, 4, _ACKNOWLEDGED, 1), state_epoch=4, leader_epoch=-2),
            write_state((5, 5, _ACKNOWLEDGED, 1), state_epoch=-2),
            read_state(),
            read_state_summary(),
        ],
        ("share-state-write-unknown", "WriteShareGroupState"): [
            *STATES_START,
            write_state(partition=1),
            write_state(partition=3),
            write_state(partition=-1),
            write_state(body={"topic_id": NO_SUCH_ID}),
            write_state(body={"group_id": "@other"}),
            write_state(body={"group_id": ""}),
        ],
        ("share-state-write-odd-values", "WriteShareGroupState"): [
            *STATES_START,
            write_state((0, 9, 1, 1), (10, 19, 3, 1)),
            read_state(),
            write_state((20, 29, -1, 0), (30, 39, 100, -5), complete=-7),
            read_state(),
            read_state_summary(),
            write_state((-10, -5, _AVAILABLE, 1)),
            read_state(),
            write_state(start_offset=-3),
            read_state(),
            write_state(
                (1 << 62, (1 << 63) - 1, _AVAILABLE, 1), ((1 << 63) - 1, (1 << 63) - 1, 2, 1)
            ),
            read_state(),
        ],
        ("share-state-write-a-batch-that-ends-before-it-begins", "WriteShareGroupState", "1"): [
            *STATES_START,
            write_state((9, 5, _AVAILABLE, 1)),
            read_state(),
        ],
    }
)


def _merges(name: str, *writes: Sequence[_Batch], start_offset: int = -1) -> Scenario:
    """A scenario that writes batches, in one request or several, and reads the state after each."""
    steps: list[Step] = []
    for batches in writes:
        steps += [write_state(*batches), read_state()]
    if start_offset != -1:
        steps += [write_state(start_offset=start_offset), read_state()]
    return Scenario(name, "WriteShareGroupState", [*STATES_START, *steps], versions="1")


#: Batches in every position relative to the batch from offset 10 to 19.
_POSITIONS = (
    *((10, 19), (10, 14), (15, 19), (12, 16), (5, 14), (15, 24), (5, 24)),
    *((5, 9), (20, 24), (5, 8), (21, 24), (10, 24), (5, 19)),
)


def _with(offsets: tuple[int, int], state_and_count: tuple[int, int]) -> _Batch:
    return (*offsets, *state_and_count)


def _pairs(name: str, first: tuple[int, int], second: tuple[int, int]) -> Scenario:
    """A scenario that writes a batch and then another one, in every position relative to the first.
    `first`, `second`: the (delivery state, delivery count) of each batch."""
    steps: list[Step] = []
    for batch in _POSITIONS:
        steps += [
            initialize_state(quiet=True),
            write_state(_with((10, 19), first)),
            write_state(_with(batch, second)),
            read_state(),
        ]
    return Scenario(
        f"share-state-merge-{name}", "WriteShareGroupState", [*STATES_START, *steps], versions="1"
    )


_MERGES = [
    _pairs("equal", (0, 1), (0, 1)),
    _pairs("higher-state", (0, 1), (2, 1)),
    _pairs("lower-state", (2, 1), (0, 1)),
    _pairs("higher-count", (2, 1), (0, 2)),
    _merges(
        "share-state-merge-many",
        [(0, 4, 2, 1), (5, 9, 0, 1), (5, 9, 2, 1)],
        [(0, 99, 0, 1)],
        [(10, 12, 2, 1), (11, 20, 0, 2), (15, 40, 4, 1), (30, 35, 2, 3), (32, 33, 2, 3)],
        [(0, 50, 0, 2), (49, 60, 2, 2), (50, 55, 4, 2)],
        [(7, 7, 4, 5), (7, 7, 2, 6), (6, 8, 2, 5)],
        start_offset=7,
    ),
    _merges(
        "share-state-merge-neighbours",
        [(0, 0, 2, 1), (2, 2, 2, 1), (4, 4, 2, 1)],
        [(1, 1, 2, 1), (3, 3, 2, 1)],
        [(5, 5, 0, 1), (6, 6, 0, 1), (7, 7, 0, 2)],
        [(5, 6, 2, 1)],
        [(7, 7, 2, 1)],
        [(4, 8, 4, 1)],
    ),
]

_DELETE = scenarios_of(
    {
        ("share-state-delete", "DeleteShareGroupState"): [
            *STATES_START,
            read_state(leader_epoch=5),
            delete_state(),
            read_state(leader_epoch=5),
            read_state_summary(),
            write_state(),
            delete_state(),
            initialize_state(state_epoch=0),
            read_state(leader_epoch=1),
            read_state_summary(),
        ],
        ("share-state-delete-unknown", "DeleteShareGroupState"): [
            *STATES_START,
            delete_state(partition=1),
            delete_state(partition=3),
            delete_state(partition=-1),
            delete_state(topic_id=NO_SUCH_ID),
            delete_state(topic_id=bytes(16)),
            delete_state(group_id="@other"),
            delete_state(group_id=""),
        ],
    }
)

_SUMMARY = [
    Scenario(
        "share-state-summary",
        "ReadShareGroupStateSummary",
        [
            *STATES_START,
            read_state_summary(partition=1),
            read_state_summary(partition=3),
            read_state_summary(partition=-1),
            read_state_summary(topic_id=NO_SUCH_ID),
            read_state_summary(topic_id=bytes(16)),
            read_state_summary(group_id="@other"),
            read_state_summary(group_id=""),
            write_state((3, 5, _ACKNOWLEDGED, 1), start_offset=3, complete=3),
            read_state_summary(),
            read_state_summary(leader_epoch=7),
            read_state(leader_epoch=5),
            read_state_summary(leader_epoch=1),
            read_state_summary(leader_epoch=-1),
        ],
    ),
]


def _topics(api: str, *topics: tuple[Any, Sequence[Mapping[str, Any]]], group: Any = "@g") -> Ask:
    named = [{"topic_id": topic_id, "partitions": list(parts)} for topic_id, parts in topics]
    return Ask(api, {"group_id": group, "topics": named})


_PARTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "InitializeShareGroupState": [
        {"partition": index, "state_epoch": index, "start_offset": index} for index in range(4)
    ],
    "ReadShareGroupState": [{"partition": index, "leader_epoch": index} for index in range(4)],
    "WriteShareGroupState": [
        _written((index, index, _ACKNOWLEDGED, 1), partition=index) for index in range(4)
    ],
    "DeleteShareGroupState": [{"partition": index} for index in range(4)],
    "ReadShareGroupStateSummary": [
        {"partition": index, "leader_epoch": index} for index in range(4)
    ],
}
#: These scenarios are played in every version: the earlier versions only lack a field of the newest
#: version.
_FORMS = [
    Scenario(
        f"share-state-forms-{api}".lower(),
        api,
        [
            *STATES_START,
            initialize_state(partition=1, quiet=True),
            _topics(api),
            _topics(api, ("$t", [])),
            _topics(api, ("$t", parts[:1]), (NO_SUCH_ID, [])),
            _topics(api, (NO_SUCH_ID, []), ("$t", parts[:1])),
            _topics(api, ("$t", [parts[1], parts[0]])),
            _topics(api, ("$t", [parts[0], parts[0]])),
            _topics(api, ("$t", parts[:1]), ("$t", parts[1:2])),
            _topics(api, ("$t", parts[:1]), ("$t", [parts[2], parts[0]])),
            _topics(api, ("$t", parts)),
            _topics(api, ("$t", parts[:1]), group=Padded("@g", 200)),
            read_state(),
            read_state(partition=1, leader_epoch=1),
        ],
    )
    for api, parts in _PARTS.items()
]


def _of_no_topic(part: Mapping[str, Any]) -> dict[str, Any]:
    """A body that changes nothing in any broker."""
    return _body(part, group_id="no-such-group", topic_id=NO_SUCH_ID)


#: A request that is refused, repeated until the coordinator has loaded.
_REFUSED = Ask(
    "ReadShareGroupStateSummary",
    _of_no_topic(_PARTS["ReadShareGroupStateSummary"][0]),
    until={"results.0.partitions.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
)
_MALFORMED = [
    Scenario(
        f"share-state-malformed-{api}-{version}".lower(),
        api,
        [STATES_TOPIC, _REFUSED, *spoiled(api, version, _of_no_topic(parts[0]))],
        versions=str(version),
    )
    for api, parts in _PARTS.items()
    for version in APIS_BY_NAME[api].versions
]

SCENARIOS = (
    *_INITIALIZE,
    *_READ,
    *_WRITE,
    *_MERGES,
    *_DELETE,
    *_SUMMARY,
    *_FORMS,
    *_MALFORMED,
)
