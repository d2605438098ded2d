"""The additions to a broker that was started for tests, as its server asks for them.

The test kit implements them (`odradek_testkit.fault_control`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from odradek_broker.node import Node
from odradek_broker.platform.seams import Clock, Files
from odradek_broker.server.dispatch import Handler
from odradek_broker.server.http_messages import Order
from odradek_protocol.keys import ApiKey

if TYPE_CHECKING:
    from odradek_broker.platform.machine import RealFiles

#: Carries out an order over HTTP. Returns (status, answer as JSON), or raises HttpError.
TakesOrders = Callable[[Order], Awaitable[tuple[int, Any]]]


class UnderTest(Protocol):
    """The additions to one start of a broker. `files` is called first, then `begin`."""

    def files(self, files: RealFiles, clock: Clock) -> Files:
        """The files that the broker uses instead of `files`."""
        ...

    def begin(self, node: Node, handlers: Mapping[ApiKey, Handler]) -> Mapping[ApiKey, Handler]:
        """The handlers that the broker uses instead of `handlers`."""
        ...

    def taker_of(self, path: str) -> TakesOrders | None:
        """The function that carries out orders to this path; None for every other path."""
        ...

    async def close(self) -> None:
        """End what the orders began. The broker stops."""
        ...
