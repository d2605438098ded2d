"""Fetch, with sessions and without; offsets by time; leader epochs; records deleted (F, L)."""

from __future__ import annotations

from typing import Any

from tests.oracle.scenarios.transactions import add_partitions
from tests.oracle.script import (
    NO_SUCH_ID,
    THEN_MS,
    Ask,
    Batch,
    Receive,
    Scenario,
    Send,
    Step,
    fetch_body,
    produce_body,
    produced,
    producer,
    scenarios_of,
    topic,
)

_FILLED: list[Step] = [
    *topic(),
    produced(Batch(["a", "b", "c"])),
    produced(Batch(["d", "e"], timestamp_ms=THEN_MS + 100)),
]


def _fetch(name: str, *bodies: dict[str, Any], versions: str = "4-18") -> Scenario:
    return Scenario(name, "Fetch", [*_FILLED, *(Ask("Fetch", body) for body in bodies)], versions)


def _session(
    epoch: int, session: Any = 0, topics: Any = None, forgotten: Any = ()
) -> dict[str, Any]:
    body = fetch_body() if topics is None else {**fetch_body(), "topics": topics}
    return {
        **body,
        "session_id": session,
        "session_epoch": epoch,
        "forgotten_topics_data": list(forgotten),
    }


def _asks(
    partitions: list[dict[str, Any]], name: str = "@t", topic_id: Any = "$t"
) -> list[dict[str, Any]]:
    return [{"topic": name, "topic_id": topic_id, "partitions": partitions}]


def _forgotten(name: str = "@t", topic_id: Any = "$t") -> dict[str, Any]:
    return {"topic": name, "topic_id": topic_id, "partitions": [0]}


_ONE = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
_UNKNOWN = _asks([_ONE, {**_ONE, "partition": 1}], "@unknown", NO_SUCH_ID)
_WITH_ERRORS = [
    {**_ONE, "partition": 9},
    {**_ONE, "fetch_offset": 99},
    {**_ONE, "partition": 8},
]


def list_offset(
    timestamp: int, partition: int = 0, name: str = "@t", isolation: int = 0, epoch: int = -1
) -> Ask:
    asked = {
        "partition_index": partition,
        "timestamp": timestamp,
        "current_leader_epoch": epoch,
    }
    return Ask(
        "ListOffsets",
        {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [{"name": name, "partitions": [asked]}],
            "timeout_ms": 5000,
        },
    )


def _listed(name: str, *steps: Step, versions: str = "1-11") -> Scenario:
    return Scenario(name, "ListOffsets", [*_FILLED, *steps], versions)


def offset_for_epoch(
    epoch: int, current: int = -1, partition: int = 0, name: str = "@t", replica: int = -1
) -> Ask:
    asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    return Ask(
        "OffsetForLeaderEpoch",
        {"replica_id": replica, "topics": [{"topic": name, "partitions": [asked]}]},
    )


def delete_records(offset: int, partition: int = 0, name: str = "@t") -> Ask:
    return Ask(
        "DeleteRecords",
        {
            "timeout_ms": 5000,
            "topics": [
                {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}
            ],
        },
    )


#: A wait in ms for requests that a broker must answer without waiting: it is longer than the
#: scenarios wait for an answer.
_FOR_EVER_MS = 2**31 - 1
#: A wait in ms that is long enough for requests on other connections to be handled before its end.
_A_MOMENT_MS = 1500


def _waiting(
    *partitions: dict[str, Any], min_bytes: int, max_wait_ms: int = _FOR_EVER_MS, **more: Any
) -> dict[str, Any]:
    """The body of a Fetch that waits for `min_bytes`."""
    asked = _asks([{**_ONE, **each} for each in partitions])
    body = {**fetch_body(), "topics": asked, "min_bytes": min_bytes}
    return {**body, "max_wait_ms": max_wait_ms, **more}


_LARGE = Batch(["x" * 2000])


def _sleeps(
    name: str, prepared: list[Step], *partitions: dict[str, Any], min_bytes: int
) -> Scenario:
    """A fetch that waits the whole time: its answer shows the high watermark after a later
    Produce."""
    body = _waiting(*partitions, min_bytes=min_bytes, max_wait_ms=_A_MOMENT_MS)
    late = produced(Batch(["late"]), on="b")
    return Scenario(name, "Fetch", [*prepared, Send(Ask("Fetch", body)), late, Receive()], "4-18")


SCENARIOS = [
    _fetch("fetch-from-start", fetch_body()),
    # --- waiting for bytes ---
    *(
        Scenario(
            f"fetch-large-batch-{name}",
            "Fetch",
            [*topic(partitions=2), *prepared, Ask("Fetch", body)],
            "4-18",
        )
        for name, prepared, body in (
            (
                "over-the-limit",
                [produced(_LARGE)],
                _waiting({"partition_max_bytes": 100}, min_bytes=1000),
            ),
            (
                "with-no-limit-left",
                [produced(_LARGE), produced(_LARGE)],
                _waiting({"partition_max_bytes": 0}, min_bytes=1000),
            ),
            (
                "behind-an-empty-partition",
                [produced(_LARGE, partition=1)],
                _waiting(
                    {"partition_max_bytes": 100},
                    {"partition": 1, "partition_max_bytes": 100},
                    min_bytes=1000,
                ),
            ),
            (
                "with-what-others-have",
                [produced(_LARGE), produced(_LARGE, partition=1)],
                _waiting(
                    {"partition_max_bytes": 100},
                    {"partition": 1, "partition_max_bytes": 3000},
                    min_bytes=3000,
                ),
            ),
            (
                "read-committed",
                [produced(_LARGE)],
                _waiting({"partition_max_bytes": 100}, min_bytes=1000, isolation_level=1),
            ),
        )
    ),
    Scenario(
        "fetch-large-batch-in-a-session",
        "Fetch",
        [
            *topic(),
            Ask("Fetch", _session(0), save={"s": "session_id"}),
            produced(_LARGE),
            Ask(
                "Fetch",
                {
                    **_session(1, "$s", _asks([{**_ONE, "partition_max_bytes": 100}])),
                    "min_bytes": 1000,
                    "max_wait_ms": _FOR_EVER_MS,
                },
            ),
        ],
        "7-18",
    ),
    _sleeps(
        "fetch-waits-for-more-than-a-large-batch",
        [*topic(), produced(_LARGE), produced(_LARGE)],
        {"partition_max_bytes": 100},
        min_bytes=3000,
    ),
    _sleeps(
        "fetch-waits-behind-a-small-batch",
        [*topic(partitions=2), produced(Batch(["s"])), produced(_LARGE, partition=1)],
        {"partition_max_bytes": 100},
        {"partition": 1, "partition_max_bytes": 100},
        min_bytes=1000,
    ),
    _sleeps(
        "fetch-waits-for-what-fits-behind-a-large-batch",
        [*topic(partitions=2), produced(_LARGE), produced(_LARGE, partition=1)],
        {"partition_max_bytes": 100},
        {"partition": 1, "partition_max_bytes": 1000},
        min_bytes=3000,
    ),
    # --- partitions with errors among others ---
    *(
        _fetch(
            f"fetch-errors-{name}",
            *(
                {**fetch_body(isolation_level=level), "topics": [*before, *_asks(asked), *behind]}
                for before, behind in ((_UNKNOWN, []), ([], _UNKNOWN))
            ),
        )
        for name, level, asked in (
            ("in-order", 0, _WITH_ERRORS),
            ("in-order-read-committed", 1, _WITH_ERRORS),
        )
    ),
    Scenario(
        "fetch-errors-in-a-session",
        "Fetch",
        [
            *_FILLED,
            Ask(
                "Fetch",
                {**_session(0, 0, [*_UNKNOWN, *_asks(_WITH_ERRORS)]), "isolation_level": 1},
                save={"s": "session_id"},
            ),
            Ask("Fetch", {**_session(1, "$s", []), "isolation_level": 1}),
        ],
        versions="7-18",
    ),
    _fetch(
        "fetch-read-committed-diverging",
        fetch_body(offset=2, last_fetched_epoch=1, isolation_level=1),
        fetch_body(offset=9, last_fetched_epoch=0, isolation_level=1),
        fetch_body(offset=9, last_fetched_epoch=5, isolation_level=1),
        versions="12-18",
    ),
    _fetch(
        "fetch-read-committed-nothing",
        fetch_body(offset=5, isolation_level=1),
        {**fetch_body(isolation_level=1), "topics": _asks([_ONE, {**_ONE, "partition": 1}])},
        {**fetch_body(isolation_level=1), "max_bytes": 0},
        fetch_body(isolation_level=1, current_leader_epoch=3),
    ),
    *(
        Scenario(
            f"fetch-session-of-a-deleted-topic-{name}",
            "Fetch",
            [
                *_FILLED,
                *topic("@other"),
                Ask(
                    "Fetch",
                    {
                        **_session(0, 0, [*_asks([_ONE]), *_asks([_ONE], "@other", "$other")]),
                        **more,
                    },
                    save={"s": "session_id"},
                ),
                Ask(
                    "DeleteTopics",
                    {"topics": [{"name": "@t"}], "timeout_ms": 10_000},
                    version=6,
                    quiet=True,
                ),
                Ask(
                    "Metadata",
                    {"topics": [{"name": "@t"}], "allow_auto_topic_creation": False},
                    version=9,
                    until={"topics.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
                    ignore=("brokers", "cluster_id", "controller_id"),
                ),
                Ask("Fetch", {**_session(1, "$s", []), **more}),
                Ask("Fetch", {**_session(2, "$s", []), **more}),
            ],
            versions="7-18",
        )
        for name, more in (("uncommitted", {}), ("committed", {"isolation_level": 1}))
    ),
    *scenarios_of(
        {
            ("fetch-session-of-a-topic-made-anew", "Fetch", "7-18"): [
                *_FILLED,
                Ask("Fetch", _session(0), save={"s": "session_id"}),
                Ask(
                    "DeleteTopics",
                    {"topics": [{"name": "@t"}], "timeout_ms": 10_000},
                    version=6,
                    quiet=True,
                ),
                *topic(),
                produced(Batch(["new"])),
                Ask("Fetch", _session(1, "$s", [])),
                Ask("Fetch", _session(2, "$s", [])),
                Ask("Fetch", _session(3, "$s", _asks([_ONE]))),
            ],
            ("fetch-zstd", "Fetch", "4-18"): [
                *topic(),
                produced(Batch(["a" * 50] * 3, codec="ZSTD")),
                Ask("Fetch", fetch_body()),
            ],
        }
    ),
    _fetch("fetch-from-middle-of-batch", fetch_body(offset=1)),
    _fetch("fetch-at-end", fetch_body(offset=5)),
    _fetch("fetch-beyond-end", fetch_body(offset=6)),
    _fetch("fetch-negative-offset", fetch_body(offset=-1)),
    _fetch("fetch-unknown-partition", fetch_body(partition=1), fetch_body(partition=-1)),
    _fetch("fetch-unknown-topic", fetch_body("@unknown", topic_id=NO_SUCH_ID)),
    _fetch("fetch-no-topic-id", fetch_body(topic_id=bytes(16)), versions="13-18"),
    _fetch("fetch-one-byte", {**fetch_body(partition_max_bytes=1)}),
    _fetch("fetch-one-byte-of-all", {**fetch_body(), "max_bytes": 1}),
    _fetch("fetch-no-bytes", fetch_body(partition_max_bytes=0)),
    _fetch("fetch-nothing", {**fetch_body(), "topics": []}),
    _fetch("fetch-one-partition-twice", {**fetch_body(), "topics": _asks([_ONE, _ONE])}),
    _fetch("fetch-isolation-two", fetch_body(isolation_level=2)),
    _fetch("fetch-as-replica", {**fetch_body(), "replica_id": 5}, versions="4-14"),
    _fetch("fetch-leader-epoch-right", fetch_body(current_leader_epoch=0), versions="9-18"),
    _fetch("fetch-leader-epoch-newer", fetch_body(current_leader_epoch=3), versions="9-18"),
    _fetch("fetch-leader-epoch-negative", fetch_body(current_leader_epoch=-2), versions="9-18"),
    _fetch(
        "fetch-last-fetched-epoch",
        fetch_body(offset=2, last_fetched_epoch=0),
        fetch_body(offset=2, last_fetched_epoch=1),
        fetch_body(offset=9, last_fetched_epoch=0),
        fetch_body(offset=9, last_fetched_epoch=5),
        versions="12-18",
    ),
    _fetch(
        "fetch-read-committed",
        fetch_body(isolation_level=1),
        fetch_body(offset=9, isolation_level=1),
    ),
    *scenarios_of(
        {
            ("fetch-below-log-start", "Fetch"): [
                *_FILLED,
                delete_records(3),
                Ask("Fetch", fetch_body(offset=1)),
                Ask("Fetch", fetch_body(offset=3)),
            ],
            # --- sessions ---
            ("fetch-session", "Fetch", "7-18"): [
                *_FILLED,
                Ask("Fetch", _session(0), save={"s": "session_id"}),
                Ask("Fetch", _session(1, "$s", [])),
                produced(Batch(["f"])),
                Ask("Fetch", _session(2, "$s", _asks([{**_ONE, "fetch_offset": 5}]))),
                Ask(
                    "Fetch",
                    _session(3, "$s", [], [_forgotten()]),
                ),
                Ask("Fetch", _session(4, "$s", [])),
            ],
            ("fetch-session-wrong-epoch", "Fetch", "7-18"): [
                *_FILLED,
                Ask("Fetch", _session(0), save={"s": "session_id"}),
                Ask("Fetch", _session(5, "$s", [])),
            ],
            ("fetch-session-unknown", "Fetch", "7-18"): [
                *_FILLED,
                Ask("Fetch", _session(1, 12345, [])),
            ],
            ("fetch-session-closed", "Fetch", "7-18"): [
                *_FILLED,
                Ask("Fetch", _session(0), save={"s": "session_id"}),
                Ask("Fetch", _session(-1, "$s", [])),
                Ask("Fetch", _session(1, "$s", [])),
            ],
            ("fetch-session-with-errors", "Fetch", "7-18"): [
                *_FILLED,
                Ask(
                    "Fetch",
                    _session(0, 0, _asks([_ONE, {**_ONE, "partition": 4}])),
                    save={"s": "session_id"},
                ),
                Ask("Fetch", _session(1, "$s", [])),
            ],
            ("fetch-session-named-and-forgotten", "Fetch", "7-18"): [
                *_FILLED,
                *topic("@u"),
                Ask("Fetch", _session(0), save={"s": "session_id"}),
                Ask(
                    "Fetch", _session(1, "$s", _asks([_ONE], "@u", "$u"), [_forgotten("@u", "$u")])
                ),
                Ask("Fetch", _session(2, "$s", [])),
                Ask("Fetch", _session(3, "$s", _asks([_ONE]), [_forgotten()])),
                Ask("Fetch", _session(4, "$s", [])),
            ],
            ("fetch-session-without-partitions", "Fetch", "7-18"): [
                *_FILLED,
                Ask("Fetch", _session(0, 0, []), save={"s": "session_id"}),
                Ask("Fetch", _session(1, "$s", _asks([_ONE]))),
                Ask("Fetch", _session(0, 0, []), save={"s": "session_id"}),
                Ask("Fetch", _session(1, "$s", [])),
            ],
            ("fetch-out-of-range-after-the-byte-limit", "Fetch", "4-18"): [
                *topic(partitions=2),
                produced(Batch(["a"])),
                Ask(
                    "Fetch",
                    {
                        **fetch_body(),
                        "max_bytes": 1,
                        "topics": _asks([_ONE, {**_ONE, "partition": 1, "fetch_offset": 3}]),
                    },
                ),
            ],
        }
    ),
    # --- offsets by time ---
    _listed("offsets-of-both-ends", list_offset(-1), list_offset(-2)),
    _listed(
        "offsets-by-time",
        *(list_offset(THEN_MS + ms) for ms in (-5, 0, 1, 2, 3, 50, 100, 101, 102)),
    ),
    _listed("offsets-of-largest-timestamp", list_offset(-3)),
    _listed("offsets-of-largest-timestamp-first", produced(Batch(["z"])), list_offset(-3)),
    *(
        _listed(
            f"offsets-of-largest-timestamp-claimed-{name}",
            produced(Batch(["x", "y"], timestamp_ms=THEN_MS + 1000, header={"max_timestamp": ms})),
            list_offset(-3),
            list_offset(THEN_MS + 1001),
            list_offset(THEN_MS + 2000),
            versions="7-8",
        )
        for name, ms in (("too-large", THEN_MS + 9000), ("too-small", 5))
    ),
    *(
        _listed(
            f"offsets-of-largest-timestamp-claimed-as-appended-{name}",
            produced(
                Batch(["x"], timestamp_ms=THEN_MS, header={"max_timestamp": ms, "attributes": 8})
            ),
            list_offset(-3),
            list_offset(THEN_MS),
            list_offset(5),
            versions="7-8",
        )
        for name, ms in (("too-large", THEN_MS + 9000), ("too-small", 5))
    ),
    Scenario(
        "offsets-by-time-below-a-deleted-segment",
        "ListOffsets",
        [
            *topic(configs={"segment.ms": "1000"}),
            produced(Batch(["a", "b"], timestamp_ms=THEN_MS)),
            produced(Batch(["c"], timestamp_ms=THEN_MS + 5000)),
            delete_records(2),
            *(list_offset(THEN_MS + ms) for ms in (0, 1, 2, 6000)),
        ],
        versions="8",
    ),
    Scenario(
        "offsets-stable-in-a-deleted-part-of-a-batch",
        "ListOffsets",
        [
            *topic(),
            *producer(),
            add_partitions(version=3, quiet=True),
            Ask(
                "Produce",
                produce_body(
                    Batch(
                        ["a", "b", "c"],
                        producer_id="$pid",
                        producer_epoch="$pid_epoch",
                        base_sequence=0,
                        transactional=True,
                    ),
                    transactional_id="@id",
                ),
                quiet=True,
            ),
            delete_records(2),
            list_offset(-1, isolation=1),
            Ask("Fetch", fetch_body(offset=2, isolation_level=1), version=12),
        ],
        versions="8",
    ),
    *(
        Scenario(
            f"offsets-of-largest-timestamp-deleted-{name}",
            "ListOffsets",
            [
                *topic(configs={"segment.bytes": "1048576"}),
                produced(Batch(["large" * size], timestamp_ms=THEN_MS + 9000)),
                produced(Batch(["b" * size, "c"], timestamp_ms=THEN_MS)),
                produced(Batch(["d"], timestamp_ms=THEN_MS + 50)),
                list_offset(-3),
                *deleted,
            ],
            versions="8",
        )
        for name, size, deleted in (
            (
                "alone",
                1,
                [
                    delete_records(1),
                    list_offset(-3),
                    list_offset(THEN_MS + 60),
                    list_offset(THEN_MS + 40),
                ],
            ),
            (
                "with-more",
                1,
                [delete_records(2), list_offset(-3), delete_records(3), list_offset(-3)],
            ),
            ("all", 1, [delete_records(-1), list_offset(-3), list_offset(THEN_MS)]),
            (
                "segment",
                150_000,
                [delete_records(1), list_offset(-3), delete_records(3), list_offset(-3)],
            ),
        )
    ),
    _listed("offsets-of-tiers", list_offset(-4), list_offset(-5), list_offset(-6)),
    _listed("offsets-of-odd-times", list_offset(-7), list_offset(-100), list_offset(2**62)),
    _listed(
        "offsets-read-committed", list_offset(-1, isolation=1), list_offset(THEN_MS, isolation=1)
    ),
    _listed("offsets-odd-isolation", list_offset(-1, isolation=2), versions="2-11"),
    _listed("offsets-of-unknown", list_offset(-1, name="@unknown"), list_offset(-1, partition=1)),
    _listed(
        "offsets-with-epochs", *(list_offset(-1, epoch=e) for e in (0, 1, -1, -2)), versions="4-11"
    ),
    Scenario(
        "offsets-of-empty",
        "ListOffsets",
        [*topic(), list_offset(-1), list_offset(-2), list_offset(-3), list_offset(THEN_MS)],
    ),
    _listed(
        "offsets-of-one-partition-twice",
        Ask(
            "ListOffsets",
            {
                "replica_id": -1,
                "topics": [
                    {
                        "name": "@t",
                        "partitions": [
                            {"partition_index": 0, "timestamp": -1},
                            {"partition_index": 0, "timestamp": -2},
                        ],
                    }
                ],
            },
        ),
    ),
    _listed(
        "offsets-of-one-topic-twice",
        Ask(
            "ListOffsets",
            {
                "replica_id": -1,
                "topics": [
                    {"name": "@t", "partitions": [{"partition_index": 0, "timestamp": -1}]},
                    {"name": "@t", "partitions": [{"partition_index": 0, "timestamp": -1}]},
                ],
            },
        ),
    ),
    _listed(
        "offsets-after-deletion",
        delete_records(3),
        list_offset(-2),
        list_offset(THEN_MS),
        list_offset(-1),
    ),
    _listed("offsets-of-nothing", Ask("ListOffsets", {"replica_id": -1})),
    # --- leader epochs ---
    *scenarios_of(
        {
            ("epoch-ends", "OffsetForLeaderEpoch"): [
                *_FILLED,
                *(offset_for_epoch(e) for e in (0, 1, -1, 7)),
                offset_for_epoch(0, replica=-2),
                offset_for_epoch(0, replica=9),
            ],
            ("epoch-ends-of-current", "OffsetForLeaderEpoch"): [
                *_FILLED,
                offset_for_epoch(0, current=0),
                offset_for_epoch(0, current=1),
                offset_for_epoch(0, current=-2),
            ],
            ("epoch-ends-of-unknown", "OffsetForLeaderEpoch"): [
                *_FILLED,
                offset_for_epoch(0, name="@unknown"),
                offset_for_epoch(0, partition=3),
            ],
            ("epoch-ends-of-empty", "OffsetForLeaderEpoch"): [
                *topic(),
                offset_for_epoch(0),
                offset_for_epoch(1),
            ],
            # --- deleted records ---
            ("delete-records", "DeleteRecords"): [
                *_FILLED,
                delete_records(2),
                Ask("Fetch", fetch_body(offset=2), version=11),
                delete_records(1),
                delete_records(-1),
                delete_records(5),
                delete_records(6),
                delete_records(-2),
                Ask("Fetch", fetch_body(offset=5), version=11),
            ],
            ("delete-records-of-unknown", "DeleteRecords"): [
                *_FILLED,
                delete_records(1, name="@unknown"),
                delete_records(1, partition=4),
            ],
            ("delete-records-of-compacted", "DeleteRecords"): [
                *topic(configs={"cleanup.policy": "compact"}),
                produced(Batch(["a"], keys=["k"])),
                delete_records(1),
            ],
            ("delete-records-of-internal", "DeleteRecords"): [
                delete_records(0, name="__consumer_offsets")
            ],
        }
    ),
]
