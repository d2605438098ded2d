"""A byte stream cut into frames, without I/O.

Made for `asyncio.BufferedProtocol`: the transport writes straight into memory that this object
hands out, so that a large frame is received in place and a small one is copied once.

    receiver.get_buffer()     a writable view to receive into
    receiver.received(n)      n bytes are in it; the frames that are whole now
"""

from __future__ import annotations

from struct import Struct as Packer

from odradek_protocol.primitives import DecodeError

_SIZE = Packer(">i")
SCRATCH_BYTES = 128 * 1024
#: A frame gets this much memory at once, and more as its bytes arrive: what a peer claims costs
#: nothing until it is sent.
FIRST_STEP_BYTES = 1024 * 1024 + 64 * 1024


class FrameTooLarge(DecodeError):
    """The length in front of a frame is negative or above the limit (rule N-01)."""


class FrameReceiver:
    """Splits what arrives into frames without their length prefix.

    `max_frame_bytes`: the largest frame taken. Memory held is at most twice what has arrived of
    one such frame, and the scratch buffer. A frame is a memoryview of its own bytearray: it stays valid, and may be
    written to.
    """

    __slots__ = (
        "_filled",
        "_frame",
        "_frame_bytes",
        "_frame_filled",
        "_scratch",
        "_view",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._filled = 0
        self._frame: memoryview | None = None
        self._frame_bytes = 0
        self._frame_filled = 0

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return self._view[self._filled :]

    def received(self, size_bytes: int) -> list[memoryview]:
        """Frames completed by the bytes just written. FrameTooLarge ends the connection."""
        if self._frame is not None:
            self._frame_filled += size_bytes
            if self._frame_filled < len(self._frame):
                return []
            if self._frame_filled < self._frame_bytes:
                self._grow(self._frame)
                return []
            frame, self._frame = self._frame, None
            return [frame]
        return self._split(self._filled + size_bytes)

    @property
    def idle(self) -> bool:
        """Nothing of an unfinished frame is held."""
        return self._frame is None and self._filled == 0

    def _split(self, filled: int) -> list[memoryview]:
        frames = []
        start = 0
        view = self._view
        while filled - start >= 4:
            size = _SIZE.unpack_from(view, start)[0]
            if size < 0 or size > self.max_frame_bytes:
                raise FrameTooLarge(
                    f"a frame of {size} bytes; at most {self.max_frame_bytes} are taken"
                )
            body = start + 4
            if body + size <= filled:
                frames.append(memoryview(bytearray(view[body : body + size])))
                start = body + size
                continue
            if body + size > SCRATCH_BYTES:
                self._begin_large(size, body, filled)
                return frames
            break
        self._keep(start, filled)
        return frames

    def _begin_large(self, size: int, body: int, filled: int) -> None:
        """A frame that does not fit the scratch buffer is received into memory of its own."""
        self._frame = memoryview(bytearray(min(size, FIRST_STEP_BYTES)))
        self._frame_bytes = size
        self._frame_filled = filled - body
        self._frame[: self._frame_filled] = self._view[body:filled]
        self._filled = 0

    def _grow(self, frame: memoryview) -> None:
        """All the memory that a frame has is full, and more of it is to come."""
        self._frame = memoryview(bytearray(min(self._frame_bytes, 2 * len(frame))))
        self._frame[: len(frame)] = frame

    def _keep(self, start: int, filled: int) -> None:
        rest = filled - start
        if start and rest:
            self._scratch[:rest] = self._scratch[start:filled]
        self._filled = rest
