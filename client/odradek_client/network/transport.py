"""A TCP connection that carries frames to and from a broker.

A transport divides the received bytes into frames and passes the frames to a `TransportOwner`.
Frames are written in the order of the calls. `writable` is False while the send buffer is full.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Protocol, cast

from odradek_protocol.frames import FrameReceiver, TlsBytes
from odradek_protocol.primitives import DecodeError
from odradek_protocol.tls import problems
from odradek_protocol.tls.handshake import telling

Buffer = bytes | bytearray | memoryview

#: The size of the write buffer at which the owner has to stop writing.
WRITE_HIGH_WATER_BYTES = 4 * 1024 * 1024

#: The reason for the end of a plaintext connection if the peer's answer is TLS.
SPEAKS_TLS = "it speaks TLS there"


class TransportOwner(Protocol):
    """The callbacks of a transport."""

    def frame_received(self, frame: memoryview) -> None:
        """Called with the content of each whole frame, without the length in front."""
        ...

    def connection_lost(self, reason: str, *, certain: bool = False) -> None:
        """Called once, when the connection is lost. `certain`: another attempt would fail in the
        same way."""
        ...

    def writable_again(self) -> None:
        """Called when `writable` has become true."""
        ...


def reason(error: OSError) -> str:
    """The reason why there is no connection, in the operating system's words."""
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror})"
    # An error without a number combines the errors of several addresses.
    return str(error) if error.errno is None else os.strerror(error.errno)


class Transport(asyncio.BufferedProtocol):
    """A TCP connection, open from `connect` until `close` or until the peer closes it."""

    def __init__(self, owner: TransportOwner, receive_max_bytes: int, host: str = "") -> None:
        self._owner = owner
        self._host = host
        #: True if the peer has sent any bytes.
        self.heard = False
        self._receiver = FrameReceiver(receive_max_bytes)
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self.writable = False

    @classmethod
    async def connect(
        cls,
        owner: TransportOwner,
        host: str,
        port: int,
        receive_max_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> Transport:
        """Connect, with TLS if the transport has a context for it. OSError (such as ssl.SSLError)
        if the attempt fails."""
        loop = asyncio.get_running_loop()
        if tls is None:
            _, protocol = await loop.create_connection(
                lambda: cls(owner, receive_max_bytes), host, port
            )
            return protocol
        return await telling(
            loop.create_connection(
                lambda: cls(owner, receive_max_bytes, host),
                host,
                port,
                ssl=tls,
                server_hostname=host,
            )
        )

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Write one frame. `buffers` begin with the length of the frame."""
        if self._transport is not None and not self._closed:
            # The writelines of asyncio in CPython 3.12 and 3.13 never pauses the protocol, so it is
            # not used.
            for buffer in buffers:
                self._transport.write(buffer)

    def close(self) -> None:
        """Drop the connection and its unsent data. The owner is not called."""
        self._closed = True
        self.writable = False
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio calls these ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.writable = True
        if self._closed:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = True
        try:
            frames = self._receiver.received(nbytes)
        except TlsBytes:
            self._lost(SPEAKS_TLS, certain=True)
            return
        except DecodeError as error:
            self._lost(f"the broker sent {error}")
            return
        for frame in frames:
            if self._closed:
                return
            self._owner.frame_received(frame)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        if not self._closed:
            self.writable = True
            self._owner.writable_again()

    def eof_received(self) -> bool:
        """Close the connection, because the peer sends no more answers."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Call the owner, because the connection is lost."""
        if isinstance(exc, ssl.SSLError):
            self._lost(problems.at_client(exc, self._host), certain=problems.is_certain(exc))
        else:
            self._lost("the broker closed the connection" if exc is None else str(exc))

    def _lost(self, reason: str, *, certain: bool = False) -> None:
        if self._closed:
            return
        self.close()
        self._owner.connection_lost(reason, certain=certain)
