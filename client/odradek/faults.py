"""Faults that are ordered of a broker under test: `broker.faults` of `Broker` and
`SubprocessBroker`.

    with Broker.subprocess(testing=True) as broker:
        broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
        broker.faults.delay("Fetch", 300, times=None)         # until `clear`

`Faults.at("127.0.0.1:PORT")` gives orders to any broker that was started with `--testing`, by the
address of its HTTP endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from odradek_client.errors import OdradekError

#: (method, path behind /faults, order) to the answer.
Send = Callable[[str, str, dict[str, Any] | None], Any]
Apis = str | Sequence[str]

_TIMEOUT_S = 10.0


class FaultRefused(OdradekError):
    """The broker does not take the order, or is not under test; the text says why."""


@dataclass(frozen=True)
class Fault:
    """A fault that was ordered. `met`: the number of requests (writes or flushes, for a fault of
    the disk) that have met it so far.

    `left`: how many more will; None for all of them. `over`: whether it has run out. `order`: as it
    was sent to the broker.
    """

    id: int
    met: int
    left: int | None
    over: bool
    order: dict[str, Any]


def _fault(answer: dict[str, Any]) -> Fault:
    order = dict(answer)
    own = {name: order.pop(name) for name in ("id", "met", "left", "over")}
    return Fault(**own, order=order)


class Faults:
    """Gives orders. FaultRefused for what the broker does not take.

    `api`: the name of a Kafka API, several of them, or "*". All methods that take it take also

    - `topic`, `partition`, `group`, `transactional_id`, `client_id`: only requests about these;
    - `times`: so many of them, once unless said otherwise, None for all until `clear`;
    - `skip`: let so many pass first; `for_ms`: over after that time.

    Of several faults that fit a request it meets the one that was ordered first.
    """

    def __init__(self, send: Send) -> None:
        self._send = send

    @classmethod
    def at(cls, http: str) -> Self:
        """Of the broker whose HTTP endpoint is at HOST:PORT."""
        return cls(_HttpOrders(http).send)

    def order(self, fault: str, **fields: Any) -> Any:
        """Any fault by its name and its fields, as over HTTP; the broker's answer."""
        return self._send("POST", "", {"fault": fault, **fields})

    def _rule(self, fault: str, fields: dict[str, Any]) -> Fault:
        return _fault(self.order(fault, **fields))

    def fail(self, api: Apis, code: str | int, **match: Any) -> Fault:
        """Answer an error instead of handling the request. `code`: Kafka's name or number of it.

        With a topic, what the request asks of other topics is done. Fetch and Metadata are handled,
        and have the error in the place of what they found.
        """
        return self._rule("fail", {"api": _apis(api), "code": code, **match})

    def delay(self, api: Apis, ms: int, **match: Any) -> Fault:
        """Handle the request, and answer so many milliseconds later."""
        return self._rule("delay", {"api": _apis(api), "ms": ms, **match})

    def drop_reply(self, api: Apis, **match: Any) -> Fault:
        """Handle the request, and never answer it, nor anything behind it on its connection: the
        client waits for its request timeout. `clear` closes such connections."""
        return self._rule("drop_reply", {"api": _apis(api), **match})

    def cut(self, api: Apis, *, handled: bool = False, **match: Any) -> Fault:
        """Close the connection instead of answering; with `handled` after the request was
        handled."""
        return self._rule("cut", {"api": _apis(api), "handled": handled, **match})

    def slow_disk(
        self, ms: int, *, times: int | None = None, skip: int = 0, for_ms: int | None = None
    ) -> Fault:
        """Flushes to disk take so many milliseconds longer: so many of them, or all until
        `clear`."""
        return self._rule("slow_disk", {"ms": ms, "times": times, "skip": skip, "for_ms": for_ms})

    def full_disk(
        self, *, times: int | None = None, skip: int = 0, for_ms: int | None = None
    ) -> Fault:
        """Writes to disk fail for want of space: so many of them, or all until `clear`."""
        return self._rule("full_disk", {"times": times, "skip": skip, "for_ms": for_ms})

    def lose_leader(self, topic: str, partition: int | None = None, **match: Any) -> Fault:
        """NOT_LEADER_OR_FOLLOWER to whoever wants something of the partition, or of all of the
        topic."""
        return self._rule("lose_leader", {"topic": topic, "partition": partition, **match})

    def move_coordinator(
        self, group: str | None = None, *, transactional_id: str | None = None, **match: Any
    ) -> Fault:
        """NOT_COORDINATOR to the members of a group, or to a transactional producer."""
        fields = {"group": group, "transactional_id": transactional_id, **match}
        return self._rule("move_coordinator", fields)

    def expire_session(self, group: str, member: str | None = None) -> list[str]:
        """End sessions at once, as if the members had not been heard of; the ids of these members.

        `member`: a member id or a client id; all members of the group for None.
        """
        expired: list[str] = self.order("expire_session", group=group, member=member)["expired"]
        return expired

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction at once, as if its timeout had passed: the producer is
        fenced."""
        self.order("abort_transaction", transactional_id=transactional_id)

    def list(self) -> list[Fault]:
        """All that were ordered and not cleared, those that have run out among them."""
        return [_fault(each) for each in self._send("GET", "", None)["faults"]]

    def remove(self, fault: Fault | int) -> None:
        """Take one back."""
        number = fault.id if isinstance(fault, Fault) else fault
        self._send("DELETE", f"/{number}", None)

    def clear(self) -> None:
        """Take all of them back. What `expire_session` and `abort_transaction` did remains."""
        self._send("DELETE", "", None)


def _apis(api: Apis) -> Apis:
    return api if isinstance(api, str) else list(api)


class _HttpOrders:
    """Orders to a broker in another process."""

    def __init__(self, address: str) -> None:
        self._address = address.removeprefix("http://").rstrip("/")

    def send(self, method: str, path: str, order: dict[str, Any] | None) -> Any:
        """The answer as JSON. FaultRefused."""
        from http.client import HTTPConnection, HTTPException

        body = None if order is None else json.dumps(order)
        try:
            connection = HTTPConnection(self._address, timeout=_TIMEOUT_S)
            try:
                headers = {"Content-Type": "application/json"} if body else {}
                connection.request(method, f"/faults{path}", body, headers)
                answer = connection.getresponse()
                status, content = answer.status, answer.read()
            finally:
                connection.close()
        except (OSError, HTTPException) as error:
            raise FaultRefused(
                f"cannot reach the broker at http://{self._address}: {error}"
            ) from error
        try:
            found = json.loads(content)
        except ValueError:
            raise FaultRefused(
                f"http://{self._address} takes no orders for faults (HTTP {status}): start the broker"
                " with --testing"
            ) from None
        if status != 200:
            raise FaultRefused(found["error"])
        return found
