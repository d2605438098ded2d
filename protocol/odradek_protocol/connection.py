"""A byte stream divided into frames, without I/O.

Made for `asyncio.BufferedProtocol`: the transport writes into memory of this object, so that a
large frame is received in place and a small one is copied once.

    receiver.get_buffer()     a writable view to receive into
    receiver.received(n)      n bytes are in it; the frames that are whole now

Between the two calls nothing else runs on the thread, which is true on the loops of asyncio and
uvloop: so the connections of a loop share one scratch buffer, and an idle connection uses no
memory.
"""

from __future__ import annotations

from struct import Struct as Packer

from odradek_protocol.primitives import DecodeError

_SIZE = Packer(">i")
_SIZE_BYTES = _SIZE.size
SCRATCH_BYTES = 128 * 1024
#: The memory of an unfinished frame grows in steps of this size, or of `_AHEAD` times the bytes
#: that have arrived, whenever it is full: a length that a peer only states takes no memory.
FIRST_STEP_BYTES = 4 * 1024
_AHEAD = 8


class FrameTooLarge(DecodeError):
    """The length of a frame is negative or above the limit (rule N-01)."""


class TlsBytes(FrameTooLarge):
    """The bytes of the length are the beginning of a TLS record: the peer uses TLS."""


#: The types of TLS records, and the first byte of their version.
_TLS_RECORDS = range(0x14, 0x18)
_TLS_VERSION = 0x03


class FrameReceiver:
    """Divides received bytes into frames without their length prefix.

    `max_frame_bytes`: the largest accepted frame. The memory is at most eight times the received
    bytes of one frame, and `scratch` (SCRATCH_BYTES), which may be shared. A frame is a memoryview
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
        # The bytes of an incomplete length.
        self._length = b""
        self._frame: memoryview | None = None
        self._frame_bytes = 0
        self._frame_filled = 0

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        if self._frame is not None:
            if self._frame_filled == len(self._frame):
                self._grow(self._frame)
            return self._frame[self._frame_filled :]
        if self._length:
            return self._scratch[len(self._length) :]
        return self._scratch

    def received(self, size_bytes: int) -> list[memoryview]:
        """The frames that the received bytes complete. FrameTooLarge ends the connection."""
        if self._frame is not None:
            self._frame_filled += size_bytes
            if self._frame_filled < self._frame_bytes:
                return []
            frame, self._frame = self._frame, None
            return [frame]
        length_bytes = len(self._length)
        if length_bytes:
            self._scratch[:length_bytes] = self._length
            self._length = b""
        return self._split(length_bytes + size_bytes)

    @property
    def idle(self) -> bool:
        """True if there is no unfinished frame."""
        return self._frame is None and not self._length

    @property
    def unfinished(self) -> tuple[int, int]:
        """The received bytes of an unfinished frame, and its size; (0, 0) without one."""
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
        """Keep the first bytes of a frame; memory for the others is taken when `get_buffer` is
        called."""
        self._frame = memoryview(bytearray(arrived))
        self._frame_bytes = size
        self._frame_filled = len(arrived)

    def _grow(self, frame: memoryview) -> None:
        """Replace the full buffer of an unfinished frame by a larger one."""
        step = max(FIRST_STEP_BYTES, _AHEAD * len(frame))
        self._frame = memoryview(bytearray(min(self._frame_bytes, step)))
        self._frame[: len(frame)] = frame
