"""The limit on log lines about misbehaving peers, however many peers there are."""

from __future__ import annotations

from structlog.testing import capture_logs

from odradek_broker.platform.peer_log import PeerLog
from odradek_protocol.repeated_lines import REMEMBERED_MAX

#: The lines in a minute, and those about one peer.
LINES_MAX, LINES_PER_PEER_MAX = 200, 20


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_n23_a_problem_of_a_peer_is_logged_again_after_a_while() -> None:
    clock = Clock()
    told = PeerLog(clock)
    with capture_logs() as lines:
        for _ in range(5):
            told.warn("closed a connection", "1.2.3.4", "rubbish")
        told.warn("closed a connection", "1.2.3.4", "other rubbish")
        clock.now_s = 61
        told.warn("closed a connection", "1.2.3.4", "rubbish")
    assert [(line["reason"], line.get("repeated")) for line in lines] == [
        ("rubbish", None),
        ("other rubbish", None),
        ("rubbish", 4),
    ]


def test_n23_many_peers_do_not_fill_the_log_or_the_memory() -> None:
    clock = Clock()
    told = PeerLog(clock)
    with capture_logs() as lines:
        for number in range(5_000):
            told.warn("closed a connection", f"peer {number}")
    assert len(lines) == LINES_MAX
    with capture_logs() as lines:
        for minute in range(1, 20):
            clock.now_s = 61.0 * minute
            for number in range(200):
                told.warn("closed a connection", f"peer {minute} {number}")
    assert lines[0]["lines_left_out"] == 4_800
    assert len(told._lines._told) <= REMEMBERED_MAX


def test_n23_a_peer_with_ever_new_problems_leaves_lines_for_others() -> None:
    """Reasons may have what the peer has chosen, such as the length of a frame."""
    clock = Clock()
    told = PeerLog(clock)
    with capture_logs() as lines:
        for number in range(5_000):
            told.warn("closed a connection", "2001:db8::1", f"a frame of {number} bytes")
            told.warn("closed a connection", f"2001:db8::{number:x}", f"{number} bytes")
        told.warn("refused an authentication", "1.2.3.4", "a wrong password")
    assert len(lines) == LINES_PER_PEER_MAX + 1
    assert lines[-1]["peer"] == "1.2.3.4"
    clock.now_s = 61.0
    with capture_logs() as lines:
        told.warn("closed a connection", "2001:db8::1", "once more")
    assert len(lines) == 1


def test_n23_errors_that_a_peer_causes_do_not_fill_the_log() -> None:
    told = PeerLog(Clock())
    with capture_logs() as lines:
        for number in range(500):
            try:
                raise ValueError(number % 100)
            except ValueError as error:
                told.failed("1.2.3.4", "FETCH", error)
    assert len(lines) == LINES_PER_PEER_MAX
    assert all(line["exc_info"] for line in lines)


def test_n06_the_number_of_remembered_log_reasons_is_limited() -> None:
    clock = Clock()
    told = PeerLog(clock)
    with capture_logs() as lines:
        for minute in range(3):
            clock.now_s = 61.0 * minute
            for peer in ("1.2.3.4", "5.6.7.8"):
                told.warn_once("closed a connection", peer, "key 52")
    assert [line["reason"] for line in lines] == ["key 52"]
    with capture_logs() as lines:
        for number in range(5_000):
            told.warn_once("closed a connection", "1.2.3.4", f"key {number}")
    assert len(lines) <= LINES_PER_PEER_MAX
    with capture_logs() as lines:
        for number in range(150):
            clock.now_s += 61.0
            told.warn_once("closed a connection", "1.2.3.4", f"key {number}")
    assert [line["reason"] for line in lines] == [f"key {number}" for number in range(100, 150)]
