"""A byte stream cut into frames, without I/O.

Made for `asyncio.BufferedProtocol`: the transport writes straight into memory that this object
hands out, so that a large frame is received in place and a small one is copied once.

    receiver.get_buffer()     a writable view to receive into
    receiver.received(n)      n bytes are in it; the frames that are whole now

Between the two calls nothing else may happen on the thread, which is so on the loops of asyncio and
uvloop: then the connections of a loop can share one scratch buffer, and an idle one holds nothing.
"""

from __future__ import annotations

from struct import Struct as Packer

from odradek_protocol.primitives import DecodeError

_SIZE = Packer(">i")
_SIZE_BYTES = _SIZE.size
SCRATCH_BYTES = 128 * 1024
#: What an unfinished frame gets, or `_AHEAD` times as much as has arrived of it, and the same again
#: whenever that is full and more is to come: what a peer claims costs nothing until it is sent.
FIRST_STEP_BYTES = 4 * 1024
_AHEAD = 8


class FrameTooLarge(DecodeError):
    """The length in front of a frame is negative or above the limit (rule N-01)."""


class TlsBytes(FrameTooLarge):
    """The bytes of the length are the beginning of a TLS record: the peer speaks TLS."""


#: The kinds of TLS records, and the first byte of their version.
_TLS_RECORDS = range(0x14, 0x18)
_TLS_VERSION = 0x03


class FrameReceiver:
    """Splits what arrives into frames without their length prefix.

    `max_frame_bytes`: the largest frame taken. Memory held is at most eight times what has arrived
    of one frame, and `scratch` (SCRATCH_BYTES of it), which may be shared. A frame is a memoryview
    of its own bytearray: it stays valid, and may be written to.
    """

    __slots__ = (
        "_frame",
        "_frame_bytes",
        "_frame_filled",
        "_length",
        "_scratch",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int, scratch: memoryview | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES)) if scratch is None else scratch
        # The bytes of a length that is not whole.
        self._length = b""
        self._frame: memoryview | None = None
        self._frame_bytes = 0
        self._frame_filled = 0

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._frame is not None:
            if self._frame_filled == len(self._frame):
                self._grow(self._frame)
            return self._frame[self._frame_filled :]
        if self._length:
            return self._scratch[len(self._length) :]
        return self._scratch

    def received(self, size_bytes: int) -> list[memoryview]:
        """Frames completed by the bytes just written. FrameTooLarge ends the connection."""
        if self._frame is not None:
            self._frame_filled += size_bytes
            if self._frame_filled < self._frame_bytes:
                return []
            frame, self._frame = self._frame, None
            return [frame]
        held = len(self._length)
        if held:
            self._scratch[:held] = self._length
            self._length = b""
        return self._split(held + size_bytes)

    @property
    def idle(self) -> bool:
        """Nothing of an unfinished frame is held."""
        return self._frame is None and not self._length

    @property
    def unfinished(self) -> tuple[int, int]:
        """Bytes that an unfinished frame holds, and those it will have; (0, 0) without one."""
        return (0, 0) if self._frame is None else (len(self._frame), self._frame_bytes)

    def _split(self, filled: int) -> list[memoryview]:
        frames: list[memoryview] = []
        start = 0
        view = self._scratch
        while filled - start >= _SIZE_BYTES:
            size = _SIZE.unpack_from(view, start)[0]
            if size < 0 or size > self.max_frame_bytes:
                if size >> 24 in _TLS_RECORDS and size >> 16 & 0xFF == _TLS_VERSION:
                    raise TlsBytes("a TLS record in the place of a frame")
                raise FrameTooLarge(
                    f"a frame of {size} bytes; at most {self.max_frame_bytes} are taken"
                )
            body = start + _SIZE_BYTES
            if body + size > filled:
                self._begin(size, view[body:filled])
                return frames
            start = body + size
            frames.append(memoryview(bytearray(view[body:start])))
        self._length = bytes(view[start:filled])
        return frames

    def _begin(self, size: int, arrived: memoryview) -> None:
        """Keep the first bytes of a frame, and take no memory for the others before somebody asks
        where they go."""
        self._frame = memoryview(bytearray(arrived))
        self._frame_bytes = size
        self._frame_filled = len(arrived)

    def _grow(self, frame: memoryview) -> None:
        """Give an unfinished frame whose buffer is full a larger one."""
        step = max(FIRST_STEP_BYTES, _AHEAD * len(frame))
        self._frame = memoryview(bytearray(min(self._frame_bytes, step)))
        self._frame[: len(frame)] = frame
