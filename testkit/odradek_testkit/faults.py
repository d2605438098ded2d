"""Orders for faults of a broker under test: `broker.faults` of `Broker` and `SubprocessBroker`.

    with Broker.subprocess(testing=True) as broker:
        broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
        broker.faults.delay("Fetch", 300, times=None)         # until `clear`

`Faults.at("127.0.0.1:PORT")` gives orders to any broker that was started with `--testing`, by the
address of its HTTP endpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from odradek_client.errors import OdradekError
from odradek_testkit.http_orders import HttpOrders

#: The function that sends an HTTP request: (method, path after /faults, body) to the answer.
Send = Callable[[str, str, dict[str, Any] | None], Any]
Apis = str | Sequence[str]


class FaultRefused(OdradekError):
    """The error if the broker refuses an order or is not under test, with the reason."""


class FaultUnused(UserWarning):
    """The warning about a fault that nothing met, for example because its topic is misspelt."""


@dataclass(frozen=True)
class Fault:
    """A fault that a broker was asked to cause. `met`: the number of requests to which the fault
    was applied (for a fault of the disk, the number of writes or flushes).

    `left`: the number of further requests that get the fault; None: all. `over`: true if the fault
    is finished. `order`: the order that was sent to the broker.
    """

    id: int
    met: int
    left: int | None
    over: bool
    order: dict[str, Any]


@dataclass(frozen=True)
class ExpiredLock:
    """Adjacent records whose acquisition locks `expire_lock` has expired."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


def _fault(answer: dict[str, Any]) -> Fault:
    order = dict(answer)
    own = {name: order.pop(name) for name in ("id", "met", "left", "over")}
    return Fault(**own, order=order)


class Faults:
    """The orders for faults of a broker. Raises FaultRefused for an invalid order.

    `api`: the name of a Kafka API, several of them, or "*". All methods with `api` accept

    - `topic`, `partition`, `group`, `transactional_id`, `client_id`: affect only requests with
      these values;
    - `times`: the number of requests to affect, by default 1; None for all until `clear`;
    - `skip`: the number of matching requests to let pass first;
    - `for_ms`: the time after which the fault ends.

    If several faults match a request, the one that was requested first is applied.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._ordered = False

    @classmethod
    def at(cls, http: str) -> Self:
        """The orders for faults of the broker whose HTTP endpoint is at HOST:PORT."""
        orders = HttpOrders(
            http,
            "/faults",
            FaultRefused,
            "takes no orders for faults: start the broker with --testing",
        )
        return cls(orders.send)

    def order(self, fault: str, **fields: Any) -> Any:
        """Send the order for any fault, given by its name and fields as in the JSON sent over HTTP.
        Returns the broker's answer."""
        return self._send("POST", "", {"fault": fault, **fields})

    def _rule(self, fault: str, fields: dict[str, Any]) -> Fault:
        self._ordered = True
        return _fault(self.order(fault, **fields))

    def fail(self, api: Apis, code: str | int, **match: Any) -> Fault:
        """Answer with an error instead of handling the request. `code`: the name or number of
        Kafka's error code.

        If a topic is given, only its part of the request gets the error, and the rest is handled.
        Fetch and Metadata are handled, and their answers contain the error instead of the result.
        """
        return self._rule("fail", {"api": _apis(api), "code": code, **match})

    def delay(self, api: Apis, ms: int, **match: Any) -> Fault:
        """Handle the request, and send the answer after this number of milliseconds."""
        return self._rule("delay", {"api": _apis(api), "ms": ms, **match})

    def drop_reply(self, api: Apis, **match: Any) -> Fault:
        """Handle the request, and send no answer to it or to later requests on its connection, so
        that the client runs into its request timeout. `clear` closes such connections."""
        return self._rule("drop_reply", {"api": _apis(api), **match})

    def cut(self, api: Apis, *, handled: bool = False, **match: Any) -> Fault:
        """Close the connection instead of answering. With `handled`, the request is handled
        first."""
        return self._rule("cut", {"api": _apis(api), "handled": handled, **match})

    def slow_disk(
        self, ms: int, *, times: int | None = None, skip: int = 0, for_ms: int | None = None
    ) -> Fault:
        """Let flushes to disk take `ms` milliseconds longer: the next `times` flushes, or all until
        `clear`."""
        return self._rule("slow_disk", {"ms": ms, "times": times, "skip": skip, "for_ms": for_ms})

    def full_disk(
        self, *, times: int | None = None, skip: int = 0, for_ms: int | None = None
    ) -> Fault:
        """Let writes to disk fail for lack of space: the next `times` writes, or all until
        `clear`."""
        return self._rule("full_disk", {"times": times, "skip": skip, "for_ms": for_ms})

    def lose_leader(self, topic: str, partition: int | None = None, **match: Any) -> Fault:
        """Answer NOT_LEADER_OR_FOLLOWER for a partition, or for all partitions of a topic."""
        return self._rule("lose_leader", {"topic": topic, "partition": partition, **match})

    def move_coordinator(
        self, group: str | None = None, *, transactional_id: str | None = None, **match: Any
    ) -> Fault:
        """Answer NOT_COORDINATOR to the members of a group, or to a transactional producer."""
        fields = {"group": group, "transactional_id": transactional_id, **match}
        return self._rule("move_coordinator", fields)

    def expire_session(self, group: str, member: str | None = None) -> list[str]:
        """Expire sessions immediately, as if the members had sent no heartbeat; returns the ids of
        these members.

        `member`: a member id or a client id; None for all members of the group.
        """
        expired: list[str] = self.order("expire_session", group=group, member=member)["expired"]
        return expired

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction immediately, as if its timeout had passed. This fences the
        producer."""
        self.order("abort_transaction", transactional_id=transactional_id)

    def expire_lock(
        self, group: str, topic: str | None = None, partition: int | None = None
    ) -> list[ExpiredLock]:
        """Expire the locks that a share group has on records, in all topics, in one topic or in one
        partition. The locks expire immediately, as if their duration had passed. Returns the
        records, which the broker then delivers again."""
        fields = {"group": group, "topic": topic, "partition": partition}
        expired = self.order("expire_lock", **fields)["expired"]
        return [ExpiredLock(**each) for each in expired]

    def lose_acknowledgement(
        self,
        group: str,
        topic: str | None = None,
        partition: int | None = None,
        *,
        handled: bool = True,
        **match: Any,
    ) -> Fault:
        """Close the connection instead of answering a request that acknowledges records of a share
        group. With `handled` the acknowledgements take effect before the connection is closed,
        otherwise they have no effect."""
        fields = {"group": group, "topic": topic, "partition": partition, "handled": handled}
        return self._rule("lose_acknowledgement", {**fields, **match})

    def list(self) -> list[Fault]:
        """All faults that were requested and not removed, including finished ones."""
        return [_fault(each) for each in self._send("GET", "", None)["faults"]]

    def remove(self, fault: Fault | int) -> None:
        """Remove a fault."""
        number = fault.id if isinstance(fault, Fault) else fault
        self._send("DELETE", f"/{number}", None)

    def clear(self) -> None:
        """Remove all faults. The effects of `expire_session` and `abort_transaction` stay. Warns of
        faults that nothing met (FaultUnused)."""
        self.warn_of_unused()
        self._send("DELETE", "", None)

    def warn_of_unused(self) -> None:
        """Warn of each ordered fault that nothing has met so far (FaultUnused). The fixtures of
        pytest do so at the end of a test."""
        if not self._ordered:
            return
        self._ordered = False
        for each in self.list():
            if not each.met:
                given = ", ".join(f"{name}={value!r}" for name, value in each.order.items())
                warnings.warn(f"a fault was ordered, and nothing met it: {given}", FaultUnused, 3)


def _apis(api: Apis) -> Apis:
    return api if isinstance(api, str) else list(api)
