"""Fault control of a broker that was started with `--testing`.

It takes orders over HTTP for faults and for virtual clusters, and causes the faults, in front of
the broker's handlers and files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import Any

import structlog

from odradek_broker.deferred import Deferred
from odradek_broker.node import Node
from odradek_broker.platform.machine import RealFiles
from odradek_broker.platform.seams import Clock, Files
from odradek_broker.request import CloseConnection, HandlerReply, RequestContext
from odradek_broker.server.dispatch import Handler
from odradek_broker.server.http_messages import HttpError, Order, number_of
from odradek_broker.server.under_test import TakesOrders
from odradek_broker.slices import Work
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.message import Message
from odradek_testkit.fault_control.answers import ANSWERED_FIRST, named_in, refuse, spoil
from odradek_testkit.fault_control.orders import (
    AbortTransaction,
    BadOrder,
    ExpireLock,
    ExpireSession,
    parse_order,
)
from odradek_testkit.fault_control.rules import (
    DiskFaults,
    FaultEffect,
    FaultRule,
    FaultRules,
    TooManyRules,
)
from odradek_testkit.virtual_clusters.relay import ClusterRelay
from odradek_testkit.virtual_clusters.settings import inherited

log = structlog.get_logger("odradek.faults")

#: Dropped answers keep their connection open; beyond this number of dropped answers, connections
#: are closed instead.
DROPPED_MAX = 1_000

Reply = HandlerReply | Deferred[HandlerReply]
_PATH = "/faults"
_TEXT = "a fault that was ordered"


class FaultControl:
    """The additions to one start of a broker under test (`server/under_test.py`)."""

    def __init__(self) -> None:
        self._rules = FaultRules()
        self._dropped: dict[Deferred[HandlerReply], None] = {}
        self._node: Node
        #: The broker's handlers, each behind the faults.
        self.handlers: dict[ApiKey, Handler] = {}
        #: The relay to the host process of clusters; None until the first order for a cluster.
        self._clusters: ClusterRelay | None = None

    # --- The broker under test ---

    def files(self, files: RealFiles, clock: Clock) -> Files:
        """The broker's files, with the faults of the disk."""
        disk = DiskFaults(self._rules, clock, time.sleep, Lock())
        return files.with_files(disk.wrap, disk.wrap_blocks)

    def begin(self, node: Node, handlers: Mapping[ApiKey, Handler]) -> Mapping[ApiKey, Handler]:
        """The broker's handlers, with the faults of requests. Later changes of `self.handlers` take
        effect."""
        self._node = node
        self.handlers = {key: self.behind_faults(key, handler) for key, handler in handlers.items()}
        return self.handlers

    def behind_faults(self, key: ApiKey, handler: Handler) -> Handler:
        """The handler, called for the requests that the faults let through."""
        return partial(self._handle, APIS[key], handler)

    def taker_of(self, path: str) -> TakesOrders | None:
        """The function that carries out orders to /faults or to /clusters."""
        if path.startswith(_PATH):
            return self.carry_out
        if path.startswith("/clusters"):
            if self._clusters is None:
                self._clusters = ClusterRelay(inherited(self._node.metadata.config))
            return self._clusters.carry_out
        return None

    async def close(self) -> None:
        """Clear the faults, and end the clusters."""
        self.clear()
        if self._clusters is not None:
            await self._clusters.close()

    # --- Orders ---

    def order(self, order: object) -> dict[str, Any]:
        """Carry out an order that takes effect immediately, and return what was affected. For any
        other order, add a rule, and return the rule as `list` shows it. Raises BadOrder and
        TooManyRules."""
        now_ms = self._node.clock.monotonic_ms()
        parsed = parse_order(order, now_ms)
        log.warning("a fault is injected on request", order=order)
        if isinstance(parsed, ExpireSession):
            return {"expired": self._expire(parsed)}
        if isinstance(parsed, AbortTransaction):
            return {"aborted": self._abort(parsed)}
        if isinstance(parsed, ExpireLock):
            return {"expired": self._expire_locks(parsed)}
        return self._described(self._rules.add(parsed, now_ms))

    def _expire(self, order: ExpireSession) -> list[str]:
        expired = self._node.groups.expire_sessions(order.group, order.member)
        if not expired:
            who = "a member" if order.member is None else f"the member {order.member!r}"
            raise BadOrder(f"the group {order.group!r} has not got {who} with a session")
        return expired

    def _expire_locks(self, order: ExpireLock) -> list[dict[str, Any]]:
        expired = self._node.share_partitions.expire_locks(*order)
        if not expired:
            where = "" if order.topic is None else f" of {order.topic!r}"
            where += "" if order.partition is None else f", partition {order.partition}"
            raise BadOrder(f"no member of the share group {order.group!r} has a record{where}")
        fields = ("topic", "partition", "first_offset", "last_offset")
        return [dict(zip(fields, each, strict=True)) for each in expired]

    def _abort(self, order: AbortTransaction) -> str:
        if not self._node.transactions.abort_open(order.transactional_id):
            raise BadOrder(f"{order.transactional_id!r} has no open transaction")
        return order.transactional_id

    async def carry_out(self, order: Order) -> tuple[int, Any]:
        """(status, answer as JSON) of an order over HTTP. Raises Refused.

        GET /faults lists the faults, POST /faults orders a fault, DELETE /faults clears all faults,
        and DELETE /faults/ID removes one fault.
        """
        number = number_of(order.path, _PATH)
        if order.method not in (("GET", "POST", "DELETE") if number is None else ("DELETE",)):
            raise HttpError(405, "GET, POST and DELETE of /faults, and DELETE of /faults/ID")
        if order.method == "GET":
            return 200, {"faults": self.list()}
        if order.method == "DELETE":
            if number is None:
                self.clear()
            elif not self.remove(number):
                raise HttpError(404, f"there is no fault {number}")
            return 200, {}
        if order.body is None:
            raise HttpError(400, "the order is no JSON: it is empty")
        try:
            return 200, self.order(order.body)
        except (BadOrder, TooManyRules) as problem:
            raise HttpError(400, str(problem)) from problem

    def list(self) -> list[dict[str, Any]]:
        """All rules that were not cleared, as JSON objects.

        Each object has the fields of the order, its id, the number of requests that it was applied
        to, the number of requests that it still applies to (null for all), and whether it is
        finished.
        """
        return [self._described(rule) for rule in self._rules.all()]

    def _described(self, rule: FaultRule) -> dict[str, Any]:
        return {
            **rule.order,
            "id": rule.number,
            "met": rule.met,
            "left": rule.left,
            "over": rule.is_over(self._node.clock.monotonic_ms()),
        }

    def remove(self, number: int) -> bool:
        """Remove a rule; False if there is no rule with this number."""
        return self._rules.remove(number)

    def clear(self) -> None:
        """Remove all rules, and close the connections whose answers were dropped."""
        self._rules.clear()
        dropped, self._dropped = self._dropped, {}
        for answered in dropped:
            answered.resolve(CloseConnection(f"{_TEXT} was cleared: its answer was dropped"))

    # --- Requests ---

    def _handle(
        self, api: Api, handler: Handler, node: Node, context: RequestContext, request: Message
    ) -> Reply:
        """Handle a request: call its handler, and cause the faults of the rules that match."""
        if not self._rules:
            return handler(node, context, request)
        if api.key in ANSWERED_FIRST:
            reply = handler(node, context, request)
            return self._after(reply, lambda answer: self._spoilt(api, context, answer))
        rule = self._met(api, context, request)
        if rule is None:
            return handler(node, context, request)
        if rule.action is FaultEffect.FAIL:
            return self._failed(rule, api, handler, context, request)
        if rule.action is FaultEffect.CUT and not rule.handled:
            return CloseConnection(_TEXT)
        reply = handler(node, context, request)
        return self._after(reply, lambda answer: self._late(rule, answer))

    def _met(self, api: Api, context: RequestContext, message: Message) -> FaultRule | None:
        named = named_in(message, self._node.metadata.topic_name)
        now_ms = self._node.clock.monotonic_ms()
        return self._rules.meet(api.key, named, context.client_id, now_ms)

    def _failed(
        self, rule: FaultRule, api: Api, handler: Handler, context: RequestContext, request: Message
    ) -> Reply:
        try:
            refused = refuse(
                api,
                context.api_version,
                request,
                rule.code,
                _TEXT,
                rule.chooses,
                self._node.metadata.topic_name,
            )
        except CloseConnection as closing:
            return closing
        parts = refused.parts
        if parts is None or not refused.rest:
            return refused.answer
        rows = getattr(refused.answer, parts)

        def together(answer: HandlerReply) -> HandlerReply:
            if isinstance(answer, Message):
                getattr(answer, parts).extend(rows)
            return answer

        return self._after(handler(self._node, context, request), together)

    def _after(self, reply: Reply, change: Callable[[HandlerReply], Reply]) -> Reply:
        """The reply that `change` returns for `reply`, immediately or when `reply` arrives."""
        if not isinstance(reply, Deferred):
            return change(reply)
        if reply.done:
            return change(reply.result())
        if isinstance(reply, Work):
            return self._node.slices.changed(reply, change)
        return _Flow(reply, change)

    def _spoilt(self, api: Api, context: RequestContext, answer: HandlerReply) -> Reply:
        if not isinstance(answer, Message):
            return answer
        rule = self._met(api, context, answer)
        if rule is None:
            return answer
        if rule.action is not FaultEffect.FAIL:
            return self._late(rule, answer)
        spoil(answer, rule.code, rule.chooses, self._node.metadata.topic_name)
        return answer

    def _late(self, rule: FaultRule, answer: HandlerReply) -> Reply:
        """The answer to a request that was handled; a fault delays, drops or cuts the answer."""
        if rule.action is FaultEffect.CUT:
            return CloseConnection(_TEXT)
        answered: Deferred[HandlerReply] = Deferred()
        if rule.action is FaultEffect.DELAY:
            timer = self._node.scheduler.call_later(rule.delay_ms, lambda: answered.resolve(answer))
            answered.on_abandon = timer.cancel
        elif len(self._dropped) >= DROPPED_MAX:
            return CloseConnection(_TEXT)
        else:
            self._dropped[answered] = None
            answered.on_abandon = lambda: self._dropped.pop(answered, None)
        return answered


class _Flow(Deferred[HandlerReply]):
    """An answer that is made from another answer when the other answer arrives.

    Abandoning the flow also abandons the other answer.
    """

    __slots__ = ("_waits_for",)

    def __init__(
        self, reply: Deferred[HandlerReply], change: Callable[[HandlerReply], Reply]
    ) -> None:
        super().__init__()
        self._wait(reply, lambda answer: self._changed(change(answer)))

    def _wait(self, reply: Deferred[HandlerReply], then: Callable[[HandlerReply], None]) -> None:
        self.on_abandon = reply.abandon
        reply.then(then)

    def _changed(self, reply: Reply) -> None:
        if isinstance(reply, Deferred):
            if self.abandoned:
                reply.abandon()
            self._wait(reply, self.resolve)
        else:
            self.resolve(reply)


__all__ = ["BadOrder", "FaultControl", "TooManyRules"]
