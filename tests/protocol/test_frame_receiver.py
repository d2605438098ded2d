"""A byte stream cut into frames: every possible split, large frames, limits."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol import frames as frames_module
from odradek_protocol.frames import FIRST_STEP_BYTES, SCRATCH_BYTES, FrameReceiver, FrameTooLarge

LIMIT = 8 * 1024 * 1024
LARGEST = 100 * 1024 * 1024


def _stream(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def _feed(receiver: FrameReceiver, data: bytes, pieces: list[int]) -> list[bytes]:
    """Receive `data` in pieces of these sizes (the last size is repeated). Returns the frames."""
    got: list[memoryview] = []
    position = 0
    turn = 0
    while position < len(data):
        buffer = receiver.get_buffer()
        assert len(buffer) > 0
        size = min(len(buffer), pieces[min(turn, len(pieces) - 1)], len(data) - position)
        buffer[:size] = data[position : position + size]
        got += receiver.received(size)
        if random.Random(turn).randrange(2):
            while receiver.uncut:
                got += receiver.received(0)
        position += size
        turn += 1
    while receiver.uncut:
        got += receiver.received(0)
    # The frames are copied only now, to check that they have not been overwritten.
    return [bytes(frame) for frame in got]


def _frame(size: int, seed: int = 0) -> bytes:
    return random.Random(size + seed).randbytes(size)


def test_n01_every_split_of_a_stream_gives_the_same_frames() -> None:
    frames = [b"", b"a", b"four", _frame(300), b"", _frame(17)]
    data = _stream(frames)
    for cut in range(len(data) + 1):
        receiver = FrameReceiver(LIMIT)
        got = _feed(receiver, data[:cut], [cut or 1]) + _feed(receiver, data[cut:], [len(data)])
        assert got == frames
        assert receiver.idle


@pytest.mark.parametrize("at_once", [1, 2, 3, 6])
def test_n14_a_few_frames_at_once_are_the_same_frames(at_once: int) -> None:
    frames = [b"", b"a", b"four", _frame(300), b"", _frame(17), _frame(400_000), b"x"]
    data = _stream(frames)
    for cut in range(0, len(data) + 1, len(data) // 1_000):
        receiver = FrameReceiver(LIMIT)
        receiver.frames_at_once = at_once
        got = _feed(receiver, data, [cut or 1, 100, len(data)])
        assert got == frames
        assert receiver.idle


@pytest.mark.parametrize("more", range(-20, 21, 5))
def test_n14_a_frame_that_begins_with_uncut_bytes_is_whole(more: int) -> None:
    frames = [b"first", _frame(21 * SCRATCH_BYTES + more)]
    receiver = FrameReceiver(LIMIT)
    receiver.frames_at_once = 1
    data, got = memoryview(_stream(frames)), list[memoryview]()
    while data:
        buffer = receiver.get_buffer()
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        got += receiver.received(size)
        data = data[size:]
    assert got == frames


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 4096])
def test_n01_every_piece_size_gives_the_same_frames(piece: int) -> None:
    frames = [_frame(size) for size in (0, 1, 3, 4, 5, 100, 1000)] * 3
    receiver = FrameReceiver(LIMIT)
    assert _feed(receiver, _stream(frames), [piece]) == frames
    assert receiver.idle


@given(
    st.lists(st.integers(0, 3 * SCRATCH_BYTES), max_size=4),
    st.lists(st.integers(1, 2 * SCRATCH_BYTES), min_size=1, max_size=8),
)
def test_n01_frames_of_about_the_size_of_the_scratch_buffer_are_received(
    sizes: list[int], pieces: list[int]
) -> None:
    frames = [_frame(size) for size in sizes]
    # The last piece is not tiny, because it would be repeated hundreds of thousands of times.
    assert _feed(FrameReceiver(LIMIT), _stream(frames), [*pieces, 50_000]) == frames


@pytest.mark.parametrize(
    "size",
    [
        SCRATCH_BYTES - 5,
        SCRATCH_BYTES - 4,
        SCRATCH_BYTES - 3,
        SCRATCH_BYTES,
        SCRATCH_BYTES + 1,
        FIRST_STEP_BYTES - 1,
        FIRST_STEP_BYTES,
        FIRST_STEP_BYTES + 1,
        2 * FIRST_STEP_BYTES,
        5_000_000,
    ],
)
@pytest.mark.parametrize("before", [0, 1, 1000, SCRATCH_BYTES - 100])
def test_n01_large_frames_between_small_ones_are_received(size: int, before: int) -> None:
    frames = [_frame(before), _frame(size), b"after", _frame(size, 1), b"last"]
    receiver = FrameReceiver(LIMIT)
    assert _feed(receiver, _stream(frames), [65_537]) == frames
    assert receiver.idle


def test_a_received_frame_is_writable_and_not_overwritten() -> None:
    receiver = FrameReceiver(LIMIT)
    data = _stream([b"first", b"second"])
    receiver.get_buffer()[: len(data)] = data
    first, second = receiver.received(len(data))
    first[0] = ord("F")
    receiver.get_buffer()[: len(data)] = bytes(len(data))
    assert (bytes(first), bytes(second)) == (b"First", b"second")


@pytest.mark.parametrize("claimed", [LIMIT + 1, 2**31 - 1, -1, -(2**31)])
@pytest.mark.parametrize("before", [b"", _stream([b"whole"])])
def test_n01_a_frame_length_over_the_limit_is_refused_without_memory(
    claimed: int, before: bytes
) -> None:
    receiver = FrameReceiver(LIMIT)
    data = before + claimed.to_bytes(4, "big", signed=True)
    receiver.get_buffer()[: len(data)] = data
    tracemalloc.start()
    with pytest.raises(FrameTooLarge, match=f"a frame of {claimed} bytes; at most {LIMIT}"):
        receiver.received(len(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Threads that earlier tests have left allocate memory too.
    assert peak < LIMIT // 8


def test_n01_a_frame_of_exactly_the_limit_is_received() -> None:
    receiver = FrameReceiver(500_000)
    assert _feed(receiver, _stream([_frame(500_000)]), [100_000]) == [_frame(500_000)]


def test_d11_a_frame_takes_memory_only_for_received_bytes() -> None:
    tracemalloc.start()
    receiver = FrameReceiver(100 * 1024 * 1024)
    receiver.get_buffer()[:4] = (100 * 1024 * 1024).to_bytes(4, "big")
    assert receiver.received(4) == []
    claimed = tracemalloc.get_traced_memory()[1]
    arrived = 0
    while arrived < 3_000_000:
        size = len(receiver.get_buffer()[:65_536])
        assert receiver.received(size) == []
        arrived += size
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert claimed < FIRST_STEP_BYTES + 2 * SCRATCH_BYTES
    assert held < 8 * arrived + 2 * SCRATCH_BYTES
    assert not receiver.idle


@pytest.mark.parametrize("size", [300_000, 917_505, 7_000_001, 64 * 1024 * 1024 + 5, LARGEST])
@pytest.mark.parametrize("pieces", [[4, 65_536], [130_000, 262_144], [4, 900_000]])
def test_n57_no_callback_copies_more_of_a_large_frame_than_it_received(
    size: int, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[int] = []
    move = FrameReceiver._move

    def counting(
        self: FrameReceiver, former: memoryview, frame: memoryview, most_bytes: int
    ) -> None:
        before = self._moved
        move(self, former, frame, most_bytes)
        copied.append(self._moved - before)

    monkeypatch.setattr(FrameReceiver, "_move", counting)
    receiver = FrameReceiver(LARGEST)
    pattern = bytes(range(251)) * 4_000
    data = memoryview(size.to_bytes(4, "big") + pattern * (1 + size // len(pattern)))[: 4 + size]
    frames: list[memoryview] = []
    position = turn = 0
    while position < len(data):
        buffer = receiver.get_buffer()
        count = min(len(buffer), pieces[min(turn, 1)], len(data) - position)
        buffer[:count] = data[position : position + count]
        copied.clear()
        frames += receiver.received(count)
        assert sum(copied) <= max(count, SCRATCH_BYTES)
        held_bytes, _ = receiver.unfinished
        assert held_bytes <= max(8 * (position + count), 2 * FIRST_STEP_BYTES)
        position += count
        turn += 1
    assert len(frames) == 1 and frames[0] == data[4:]
    assert receiver.idle and receiver._former is None
    # A bytearray of this size is filled with zeros first, which takes long.
    assert size <= 4 * 1024 * 1024 or not isinstance(frames[0].obj, bytearray)


def test_n14_the_end_of_a_connection_takes_no_memory() -> None:
    """A loop asks for a buffer and only then learns that no more bytes come."""
    receiver = FrameReceiver(1_000_000)
    assert _feed(receiver, _stream([_frame(1_000_000)])[:90_000], [90_000]) == []
    before = receiver.unfinished
    assert len(receiver.get_buffer()) > 0
    assert receiver.unfinished == before


@given(
    st.lists(st.lists(st.integers(0, 40_000), max_size=6), min_size=2, max_size=5),
    st.lists(st.integers(1, 50_000), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_n01_connections_that_share_a_scratch_buffer_receive_their_frames(
    sizes: list[list[int]], pieces: list[int], order: random.Random
) -> None:
    """The shared buffer may be used for another connection next, even in the middle of a frame."""
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    sent = [[_frame(size, seed) for size in each] for seed, each in enumerate(sizes)]
    streams = [_stream(frames) for frames in sent]
    receivers = [FrameReceiver(LIMIT, scratch) for _ in streams]
    got: list[list[bytes]] = [[] for _ in streams]
    turn = 0
    while any(streams):
        number = order.choice([at for at, stream in enumerate(streams) if stream])
        piece = streams[number][: pieces[turn % len(pieces)]]
        got[number] += _feed(receivers[number], piece, [len(piece)])
        streams[number] = streams[number][len(piece) :]
        turn += 1
    assert got == sent
    assert all(receiver.idle for receiver in receivers)


def test_d11_a_receiver_holds_no_memory_between_frames() -> None:
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    data = _stream([_frame(1000)]) * 20
    tracemalloc.start()
    receivers = [FrameReceiver(LIMIT, scratch) for _ in range(100)]
    for receiver in receivers:
        _feed(receiver, data, [777])
    found = tracemalloc.take_snapshot()
    tracemalloc.stop()
    # Other threads of the test process also allocate memory.
    own = found.filter_traces([tracemalloc.Filter(True, frames_module.__file__)])
    held = sum(trace.size for trace in own.traces)
    assert held < 100 * 500


def test_a_receiver_is_idle_unless_a_frame_is_unfinished() -> None:
    receiver = FrameReceiver(LIMIT)
    assert receiver.idle
    receiver.get_buffer()[:3] = b"\0\0\0"
    assert receiver.received(3) == []
    assert not receiver.idle
    receiver.get_buffer()[:2] = b"\x01x"
    assert [bytes(frame) for frame in receiver.received(2)] == [b"x"]
    assert receiver.idle
    receiver.get_buffer()[:4] = (SCRATCH_BYTES + 1).to_bytes(4, "big")
    assert receiver.received(4) == []
    assert not receiver.idle


def test_an_answer_of_http_is_named() -> None:
    receiver = FrameReceiver(LIMIT)
    with pytest.raises(FrameTooLarge, match="an answer of HTTP"):
        _feed(receiver, b"HTTP/1.1 400 Bad Request\r\n", [26])
