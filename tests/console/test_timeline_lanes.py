"""The lanes of a timeline, made from given events."""

from __future__ import annotations

import pytest

from odradek_client.admin.history import HistoryEvent, Subject
from odradek_console.timeline_lanes import (
    BANDS_MAX,
    LANES_MAX,
    Lanes,
    client_id_of,
    event_tone,
    lane_key,
    lanes_of,
)


def event(at_ms: int, name: str, times: int = 1, **details: str) -> HistoryEvent:
    return HistoryEvent(at_ms, at_ms, times, name, f"sentence of {name}", details)


def bands(lanes: Lanes, key: str) -> list[tuple[int, int | None, str]]:
    return [(band.start_ms, band.end_ms, band.state) for band in lanes.lanes[key].bands]


def test_a_transaction_has_a_band_for_each_state() -> None:
    lanes = lanes_of(
        Subject.TRANSACTIONAL_ID,
        [
            event(10, "transaction_step", before="(unknown)", after="Empty"),
            event(20, "transaction_step", before="Empty", after="Ongoing"),
            event(21, "transaction_step", before="Ongoing", after="Ongoing"),
            event(30, "transaction_step", before="Ongoing", after="PrepareCommit"),
            event(31, "markers_sent"),
            event(35, "transaction_complete", before="PrepareCommit", after="CompleteCommit"),
            event(90, "transaction_expired", before="CompleteCommit"),
        ],
    )
    assert bands(lanes, "state") == [
        (10, 10, "(unknown)"),
        (10, 20, "Empty"),
        (20, 30, "Ongoing"),
        (30, 35, "PrepareCommit"),
        (35, 90, "CompleteCommit"),
    ]


def test_a_rebalance_shows_the_member_that_joins_last() -> None:
    lanes = lanes_of(
        Subject.GROUP,
        [
            event(0, "member_joined", member="a", client="client slow at 10.0.0.1"),
            event(1, "group_stable", before="CompletingRebalance", after="Stable", generation="1"),
            event(10, "member_joined", member="b"),
            event(11, "rebalance_began", before="Stable", after="PreparingRebalance"),
            event(500, "member_rejoined", member="a"),
            event(
                501, "generation_began", before="PreparingRebalance", after="CompletingRebalance"
            ),
            event(
                510, "group_stable", before="CompletingRebalance", after="Stable", generation="2"
            ),
            event(600, "member_removed", member="a"),
        ],
    )
    assert bands(lanes, "member a") == [
        (0, 1, "joins"),
        (1, 11, "generation 1"),
        (11, 500, "to join again"),
        (500, 510, "waits for the others"),
        (510, 600, "generation 2"),
    ]
    assert bands(lanes, "member b") == [(10, 510, "joins"), (510, None, "generation 2")]
    assert lanes.lanes["member a"].label == "slow a"
    assert list(lanes.clients) == ["slow"]
    assert bands(lanes, "state")[-1] == (510, None, "Stable")


def test_members_of_the_consumer_protocol_have_their_epochs() -> None:
    lanes = lanes_of(
        Subject.GROUP,
        [
            event(0, "consumer_joined", member="a"),
            event(0, "consumer_epoch", epoch="1", state="Assigning"),
            event(
                2,
                "consumer_moved",
                member="a",
                epoch="1",
                note="with all that it is to have",
                state="Stable",
            ),
            event(5, "member_left", member="a"),
            event(5, "group_gone"),
        ],
    )
    assert bands(lanes, "member a") == [
        (0, 2, "joins"),
        (2, 5, "epoch 1, with all that it is to have"),
    ]
    assert lanes.lanes["member a"].bands[-1].tone == "good"
    assert bands(lanes, "state") == [(0, 2, "Assigning"), (2, 5, "Stable")]


def test_a_replaced_static_member_ends_where_the_next_begins() -> None:
    lanes = lanes_of(
        Subject.GROUP,
        [
            event(0, "member_joined", member="a-1"),
            event(7, "member_replaced", member="a-2", fenced_member="a-1"),
        ],
    )
    assert bands(lanes, "member a-1") == [(0, 7, "joins")]
    assert bands(lanes, "member a-2") == [(7, None, "joins")]


def test_members_restored_at_a_broker_start_have_lanes() -> None:
    lanes = lanes_of(Subject.GROUP, [event(3, "group_restored", state="Stable", members="a, b")])
    assert bands(lanes, "member b") == [(3, None, "found at the start")]
    assert bands(lanes, "state") == [(3, None, "Stable")]


def test_a_client_lane_shows_its_number_of_connections() -> None:
    lanes = lanes_of(
        Subject.CLIENT,
        [
            event(0, "client_connected"),
            event(1, "client_connected", times=2),
            event(5, "client_disconnected"),
            event(6, "client_disconnected", times=2),
            # The history may have dropped the event of a connection's beginning.
            event(7, "client_disconnected"),
            event(9, "client_connected"),
        ],
    )
    assert bands(lanes, "connections") == [
        (0, 1, "1 connection"),
        (1, 5, "3 connections"),
        (5, 6, "2 connections"),
        (9, None, "1 connection"),
    ]


def test_a_share_record_lane_shows_the_members_that_acquired_it() -> None:
    lanes = lanes_of(
        Subject.SHARE_RECORD,
        [
            event(0, "share_record_acquired", member="m"),
            event(1, "share_record_renewed", member="m"),
            event(2, "share_record_back"),
            event(3, "share_record_acquired", member="n"),
            event(4, "share_record_given_up"),
        ],
    )
    assert [state for _, _, state in bands(lanes, "state")] == [
        "acquired by m",
        "available",
        "acquired by n",
        "archived",
    ]


def test_a_producer_has_a_lane_with_its_epochs_for_each_partition() -> None:
    lanes = lanes_of(
        Subject.PRODUCER_ID,
        [
            event(0, "first_batch", partitions="t-0", epoch="0"),
            event(1, "first_batch", partitions="t-1", epoch="0"),
            event(2, "marker_of_new_epoch", partitions="t-0", epoch="1"),
            event(3, "producer_expired", partitions="t-1"),
            event(4, "batch_refused", partitions="t-0"),
        ],
    )
    assert bands(lanes, "t-0") == [(0, 2, "epoch 0"), (2, None, "epoch 1")]
    assert bands(lanes, "t-1") == [(1, 3, "epoch 0")]


def test_a_partition_whose_compaction_stopped_is_an_error() -> None:
    lanes = lanes_of(
        Subject.PARTITION,
        [event(0, "log_cleaned", offset="7"), event(1, "cleaning_stopped")],
    )
    assert bands(lanes, "state") == [(0, 1, "clean up to 7"), (1, None, "not compacted")]
    assert lanes.lanes["state"].bands[-1].tone == "error"


def test_d11_lanes_and_bands_have_limits() -> None:
    joined = [
        event(number, "member_joined", member=f"m{number}") for number in range(LANES_MAX + 9)
    ]
    lanes = lanes_of(Subject.GROUP, joined)
    assert (len(lanes.lanes), lanes.left_out) == (LANES_MAX, 9)
    states = ("Empty", "Ongoing")
    steps = [
        event(number, "transaction_step", after=states[number % 2])
        for number in range(BANDS_MAX + 50)
    ]
    state = lanes_of(Subject.TRANSACTIONAL_ID, steps).lanes["state"]
    assert len(state.bands) == BANDS_MAX
    assert state.bands[-1].start_ms == BANDS_MAX + 49


def test_no_band_ends_before_it_begins_after_a_clock_was_set_back() -> None:
    lanes = lanes_of(
        Subject.TRANSACTIONAL_ID,
        [
            event(100, "transaction_step", before="Empty", after="Ongoing"),
            event(40, "transaction_step", before="Ongoing", after="PrepareCommit"),
        ],
    )
    assert bands(lanes, "state")[1:] == [(100, 100, "Ongoing"), (40, None, "PrepareCommit")]


@pytest.mark.parametrize(
    ("name", "details", "key"),
    [
        ("member_left", {"member": "a"}, "member a"),
        ("rebalance_began", {}, "state"),
        ("client_connected", {}, "connections"),
        ("batch_refused", {"partitions": "t-0"}, "t-0"),
        ("share_record_acquired", {"member": "a"}, "state"),
        ("of a later broker", {"member": "a"}, "member a"),
    ],
)
def test_an_event_is_drawn_on_the_lane_of_its_subject(
    name: str, details: dict[str, str], key: str
) -> None:
    assert lane_key(event(0, name, 1, **details)) == key


def test_a_connection_closed_by_its_client_is_no_warning() -> None:
    assert event_tone(event(0, "client_disconnected", reason="the client closed it")) == "none"
    assert event_tone(event(0, "client_disconnected", reason="it was lost")) == "warning"
    assert event_tone(event(0, "of a later broker")) == "none"


@pytest.mark.parametrize(
    ("text", "client_id"),
    [
        ("client c-1 at 127.0.0.1", "c-1"),
        ("client a at b at ::1", "a at b"),
        ("client (no id) at 127.0.0.1", None),
        ("", None),
    ],
)
def test_the_client_id_is_read_from_the_words_of_an_event(text: str, client_id: str | None) -> None:
    assert client_id_of(text) == client_id
