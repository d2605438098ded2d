"""Orders for faults over HTTP, for a broker under test, only from its own machine.

GET /faults lists them, POST /faults orders one, DELETE /faults clears all, DELETE /faults/ID one.
Requests and answers are JSON; errors are `{"error": text}`. A body must have the type
application/json: a browser's page cannot send that to another site without a preflight request,
which is not answered.
"""

from __future__ import annotations

import json
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from odradek_broker.server.fault_control import BadOrder, FaultControl, TooManyRules

PATH = b"/faults"
BODY_BYTES_MAX = 8 * 1024


class Refused(Exception):
    """The answer to a request that is refused."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class FaultRequest(NamedTuple):
    """A request about faults. `number`: that of one fault, None for all of them."""

    method: str
    number: int | None
    body_bytes: int


def parse_request(head: bytes, peer: str) -> FaultRequest:
    """The request from the lines before its body, and the address of the sender. Raises Refused."""
    if not _is_loopback(peer):
        raise Refused(403, f"faults are ordered from the broker's own machine, not from {peer}")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    name = path.removeprefix(PATH.decode())
    if name and not (name[0] == "/" and name[1:].isascii() and name[1:].isdigit()):
        raise Refused(404, "there are /faults and /faults/ID")
    number = int(name[1:20]) if name else None
    if method not in (("GET", "POST", "DELETE") if number is None else ("DELETE",)):
        raise Refused(405, "GET, POST and DELETE of /faults, and DELETE of /faults/ID")
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        raise Refused(400, "the body needs a Content-Length")
    if int(length) > BODY_BYTES_MAX:
        raise Refused(413, f"an order has at most {BODY_BYTES_MAX} bytes")
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and content_type != "application/json":
        raise Refused(415, "an order is sent as Content-Type: application/json")
    return FaultRequest(method, number, int(length))


def answer(faults: FaultControl, request: FaultRequest, body: bytes) -> tuple[int, Any]:
    """(status, answer as JSON). Raises Refused."""
    if request.method == "GET":
        return 200, {"faults": faults.list()}
    if request.method == "DELETE":
        if request.number is None:
            faults.clear()
        elif not faults.remove(request.number):
            raise Refused(404, f"there is no fault {request.number}")
        return 200, {}
    try:
        return 200, faults.order(json.loads(body))
    except (BadOrder, TooManyRules) as problem:
        raise Refused(400, str(problem)) from problem
    except (ValueError, RecursionError) as problem:
        raise Refused(400, f"the order is no JSON: {problem}") from problem


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
