"""A dispatcher that decodes and encodes every request with the generated codecs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_broker.node import Node
from odradek_broker.server.dispatch import HANDLERS, Dispatcher, Handler
from odradek_protocol.keys import ApiKey


def dispatcher_without_common_shapes(node: Node, control_bytes_max: int) -> Dispatcher:
    """A dispatcher without the special codecs for common Produce and Fetch requests.

    Those codecs are used only with the standard handlers; the handlers here are wrapped, as in a
    broker with fault injection.
    """
    handlers: dict[ApiKey, Handler] = {
        **HANDLERS,
        **{key: _same(HANDLERS[key]) for key in (ApiKey.PRODUCE, ApiKey.FETCH)},
    }
    return Dispatcher(node, control_bytes_max, handlers)


def _same(handler: Callable[..., Any]) -> Handler:
    return lambda node, context, request: handler(node, context, request)
