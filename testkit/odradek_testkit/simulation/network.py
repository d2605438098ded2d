"""Connections without sockets: bytes are delayed, arrive in pieces, are cut or never arrive.

The bytes of one connection arrive in order, as with TCP; the order between connections depends on
the delays. All random choices come from one `random.Random`, so that a seed always gives the same
network.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any

from odradek_testkit.simulation.process import process_of

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]
_Bytes = bytes | bytearray | memoryview

#: The number of undelivered bytes at which the writer is paused; at a quarter of it, the writer is
#: resumed.
HIGH_WATER_BYTES = 64 * 1024
#: The first port to choose for port 0, and for connecting clients.
_FIRST_PORT = 20_000


@dataclass(slots=True)
class Weather:
    """The delays and the pieces of all data that is sent on a network from now on.

    `delay_ms`: the shortest and the longest delay of a piece. `piece_bytes_max`: the size of the
    largest random piece; 0 leaves each write in one piece.
    """

    delay_ms: tuple[float, float] = (0.0, 0.0)
    piece_bytes_max: int = 0


class SimulatedServer:
    """A listening address, the result of `create_server`."""

    def __init__(self, network: SimulatedNetwork, address: Address) -> None:
        self._network = network
        self.address = address

    def close(self) -> None:
        """Accept no more connections. Existing connections stay open."""
        self._network.stop_listening(self.address)

    def pause(self) -> None:
        """Pause: new connections wait."""
        self._network.pause(self.address)

    def resume(self) -> None:
        """Accept waiting connections."""
        self._network.resume(self.address)

    async def wait_closed(self) -> None:
        """Return immediately."""

    def is_serving(self) -> bool:
        """True if connections are accepted."""
        return self._network.listens(self.address)


class SimulatedTransport(asyncio.Transport):
    """An end of a connection."""

    def __init__(
        self,
        network: SimulatedNetwork,
        protocol: asyncio.BaseProtocol,
        here: Address,
        there: Address,
        context: Context,
    ) -> None:
        super().__init__({"peername": there, "sockname": here})
        self._network = network
        self._protocol = protocol
        #: The context of the protocol's process, in which the protocol is called.
        self._context = context
        self.process = process_of(context)
        self._peer: SimulatedTransport
        self._arrived: deque[bytes] = deque()
        self._reading = True
        self._closing = False
        self._lost = False
        self._ended = False
        self._paused = False
        self._high_bytes = HIGH_WATER_BYTES
        self._low_bytes = HIGH_WATER_BYTES // 4
        #: The number of sent bytes that the peer's protocol has not read.
        self.unread_bytes = 0
        self._on_the_way: deque[Callable[[], None]] = deque()
        #: The arrival time of the last sent piece. No later piece may arrive before this time.
        self._last_arrival_s = 0.0
        #: True if nothing that is sent arrives any more, without an error (a half-open connection).
        self.silent = False

    # --- called by the protocol ---

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that gets the received data."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """True if nothing is sent any more."""
        return self._closing

    def write(self, data: _Bytes) -> None:
        """Send; the bytes are copied. Ignored after `close`."""
        if self._closing or not data:
            return
        for piece in self._network.cut(bytes(data)):
            self.unread_bytes += len(piece)
            self._send(lambda piece=piece: self._peer.arrive(piece))  # type: ignore[misc]
        if self.unread_bytes > self._high_bytes and not self._paused:
            self._paused = True
            self._tell(self._protocol.pause_writing)

    def writelines(self, list_of_data: Iterable[_Bytes]) -> None:
        """Send several buffers in order."""
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        """Always False, because Kafka's protocol does not use half-closed connections."""
        return False

    def close(self) -> None:
        """Send the written data, then close."""
        if not self._closing:
            self._closing = True
            self._send(self._peer.arrive_end)
            self._network.soon(self._tell_lost)

    def abort(self) -> None:
        """Close immediately: undelivered data is lost, and the peer sees a reset."""
        if not self._lost:
            self._closing = True
            peer = self._peer
            self._network.soon(lambda: peer.cut(ConnectionResetError("reset by peer")))
            self._network.soon(self._tell_lost)

    def pause_reading(self) -> None:
        """Buffer the data that arrives instead of delivering it."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver the buffered data, and continue to deliver."""
        if not self._reading:
            self._reading = True
            self._network.soon(self._hand_on)

    def is_reading(self) -> bool:
        """True if arriving data is delivered."""
        return self._reading and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the sizes at which the protocol is paused and resumed; bytes."""
        self._high_bytes = HIGH_WATER_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """The number of bytes that the peer has not read yet."""
        return self.unread_bytes

    # --- called by the network ---

    def join(self, peer: SimulatedTransport) -> None:
        """Connect this end with its peer."""
        self._peer = peer

    def begin(self) -> None:
        """Open the connection, and call the protocol."""
        self._tell(self._protocol.connection_made, self)

    def _tell(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call the protocol in its process, unless the process was killed."""
        if self.process is None or process_of() is self.process:
            return method(*args)
        return self._context.run(method, *args) if self.process.alive else None

    def killed(self) -> None:
        """Reset the connection, as the kernel does after a kill of this end's process."""
        if not self._lost:
            self._lost = self._closing = True
            self._network.forget(self)
            self._send(lambda: self._peer.cut(ConnectionResetError("reset by peer")))

    def _send(self, arrive: Callable[[], None]) -> None:
        """Deliver after the network's delay, and never before data that was sent earlier."""
        at_s = max(self._network.arrival_s(), self._last_arrival_s)
        self._last_arrival_s = at_s
        # Each timer delivers the oldest data, because timers of the same time fire in any order.
        self._on_the_way.append(arrive)
        self._network.at(at_s, self._deliver)

    def _deliver(self) -> None:
        arrive = self._on_the_way.popleft()
        if not self.silent:
            arrive()

    def arrive(self, piece: bytes) -> None:
        """Deliver bytes that the peer has sent."""
        if not self._lost:
            self._arrived.append(piece)
            self._hand_on()

    def arrive_end(self) -> None:
        """Called when the peer has closed."""
        self._ended = True
        self._hand_on()

    def _hand_on(self) -> None:
        while self._arrived and self._reading and not self._closing:
            piece = self._arrived.popleft()
            self._tell(self._receive, piece)
            self._peer.taken(len(piece))
        if self._ended and not self._arrived and not self._closing:
            keep = isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not (keep and self._tell(self._protocol.eof_received)):  # type: ignore[attr-defined]
                self._closing = True
                self._network.soon(self._tell_lost)

    def _receive(self, piece: bytes) -> None:
        self._give(piece)
        if self._network.on_received is not None:
            self._network.on_received(self)

    def _give(self, piece: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(piece)  # type: ignore[attr-defined]
            return
        rest = memoryview(piece)
        while rest and not self._closing:
            room = memoryview(protocol.get_buffer(len(rest)))
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            protocol.buffer_updated(count)
            rest = rest[count:]

    def taken(self, size_bytes: int) -> None:
        """Called when the peer's protocol has read this number of bytes."""
        self.unread_bytes -= size_bytes
        if self._paused and self.unread_bytes <= self._low_bytes and not self._lost:
            self._paused = False
            self._tell(self._protocol.resume_writing)

    def cut(self, problem: Exception | None) -> None:
        """Close this end of the connection; undelivered data is lost."""
        self._closing = True
        self._tell_lost(problem)

    def _tell_lost(self, problem: Exception | None = None) -> None:
        if not self._lost:
            self._lost = True
            self._arrived.clear()
            self._network.forget(self)
            self._tell(self._protocol.connection_lost, problem)


class SimulatedNetwork:
    """Listeners by address, and every open connection.

    `weather` may be changed at any time; `cut_all`, `unreachable` and the transports' `silent` are
    the faults.
    """

    def __init__(self, random: Random | None = None, weather: Weather | None = None) -> None:
        self.random = random or Random(0)
        self.weather = weather or Weather()
        #: The context of calls that belong to no simulated process.
        self._context = Context()
        #: The protocol factory of each listening address, and its context.
        self._listening: dict[Address, tuple[ProtocolFactory, Context]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._next_port = _FIRST_PORT
        #: Every end of every open connection, in the order of creation.
        self.transports: dict[SimulatedTransport, None] = {}
        #: Addresses that cannot be reached although a server listens.
        self.unreachable: set[Address] = set()
        #: Addresses of paused servers, and the event that ends the wait of new connections.
        self._paused: dict[Address, asyncio.Event] = {}
        #: Called when an end has received data.
        self.on_received: Callable[[SimulatedTransport], None] | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop whose time this network uses."""
        self._loop = loop

    # --- Ends ---

    def listen(self, factory: ProtocolFactory, host: str, port: int) -> SimulatedServer:
        """Listen at an address. Raises OSError if the address is in use. Port 0 chooses a free
        port."""
        if not port:
            port = self._free_port()
        address = (host, port)
        if address in self._listening:
            raise OSError(98, f"{host}:{port} is in use")
        self._listening[address] = (factory, copy_context())
        process = process_of()
        if process is not None:
            process.on_killed.append(lambda: self.stop_listening(address))
        return SimulatedServer(self, address)

    def listens(self, address: Address) -> bool:
        """True if connections are accepted at the address."""
        return address in self._listening

    def stop_listening(self, address: Address) -> None:
        """Refuse connections from now on."""
        self._listening.pop(address, None)
        self.resume(address)

    def pause(self, address: Address) -> None:
        """Make new connections wait."""
        self._paused.setdefault(address, asyncio.Event())

    def resume(self, address: Address) -> None:
        """Undo `pause`."""
        paused = self._paused.pop(address, None)
        if paused is not None:
            paused.set()

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """Connect. Raises ConnectionRefusedError if no server listens. If the address cannot be
        reached, raises TimeoutError immediately, while a kernel would first wait."""
        there, here = (host, port), ("client", self._free_port())
        await asyncio.sleep(self.arrival_s() - self._loop.time())
        while there in self._paused:
            await self._paused[there].wait()
        if there in self.unreachable:
            raise TimeoutError(110, f"{host}:{port} cannot be reached")
        listening = self._listening.get(there)
        if listening is None:
            raise ConnectionRefusedError(111, f"connection refused by {host}:{port}")
        accept, context = listening
        near = SimulatedTransport(self, factory(), here, there, copy_context())
        far = SimulatedTransport(self, context.copy().run(accept), there, here, context.copy())
        near.join(far)
        far.join(near)
        self.transports |= {near: None, far: None}
        for end in (far, near):
            if end.process is not None:
                end.process.on_killed.append(end.killed)
            end.begin()
        return near, near.get_protocol()

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def forget(self, transport: SimulatedTransport) -> None:
        """Remove an end that was closed."""
        self.transports.pop(transport, None)

    def cut_all(self, address: Address | None = None) -> int:
        """Cut every connection, or those of the server at `address`. Both ends of a connection see
        the cut at the same time. Returns the number of ends."""
        ends = [
            end
            for end in self.transports
            if address is None
            or address in (end.get_extra_info("peername"), end.get_extra_info("sockname"))
        ]
        for end in ends:
            end.cut(ConnectionResetError("the connection was cut"))
        return len(ends)

    # --- time and random choices ---

    def cut(self, data: bytes) -> list[bytes]:
        """The random pieces in which these bytes are sent."""
        most = self.weather.piece_bytes_max
        if not most:
            return [data]
        pieces = []
        while data:
            size = self.random.randint(1, most)
            pieces.append(data[:size])
            data = data[size:]
        return pieces

    def arrival_s(self) -> float:
        """The time, in seconds, at which a piece that is sent now arrives."""
        least, most = self.weather.delay_ms
        delay_ms = self.random.uniform(least, most) if most else 0.0
        return self._loop.time() + delay_ms / 1000

    def at(self, when_s: float, callback: Callable[[], Any]) -> None:
        """Call `callback` at the time `when_s`, even if a process is killed before that time."""
        self._loop.call_at(when_s, callback, context=self._context)

    def soon(self, callback: Callable[[], Any]) -> None:
        """Call `callback` after all callbacks that are ready now, even if one of them kills a
        process."""
        self._loop.call_soon(callback, context=self._context)
