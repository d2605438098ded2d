"""Dispatchers that decode and encode every request by the generated codecs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_broker.node import Node
from odradek_broker.server.dispatch import HANDLERS, Dispatcher, Handler
from odradek_protocol.keys import ApiKey


def dispatcher_without_common_shapes(node: Node, control_bytes_max: int) -> Dispatcher:
    """A dispatcher with handlers of its own for Produce and Fetch, like that of a broker under
    test, which has no second codec for their common requests."""
    handlers: dict[ApiKey, Handler] = {
        **HANDLERS,
        **{key: _same(HANDLERS[key]) for key in (ApiKey.PRODUCE, ApiKey.FETCH)},
    }
    return Dispatcher(node, control_bytes_max, handlers)


def _same(handler: Callable[..., Any]) -> Handler:
    return lambda node, context, request: handler(node, context, request)
