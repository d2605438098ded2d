"""The parts of HTTP/1.1 that the broker needs: heads of requests, orders, responses.

An order is a request that changes something; only a broker under test takes orders. An order must
come from the broker's own machine, and its body must be JSON of a limited size with the type
application/json. A browser sends such a request for a web page only after a preflight request, and
this server refuses preflight requests.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any

from odradek_protocol.lazy_tuple import NamedTuple

HEAD_BYTES_MAX = 8 * 1024
#: The maximum size of an order's body. It leaves room for settings that contain certificates.
ORDER_BYTES_MAX = 64 * 1024

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_REASONS = {
    200: "OK",
    201: "Created",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Refused(Exception):
    """The error for a request that is refused, with the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Order(NamedTuple):
    """An order (see the module). `path` has no query; `body` is the JSON value, None without a
    body."""

    method: str
    path: str
    body: Any


def check_head(head: bytes) -> None:
    """Refuse a head that does not begin like a request of HTTP/1."""
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        raise Refused(400, "this is no HTTP/1.1 request")


def target_of(head: bytes) -> tuple[bytes, bytes]:
    """(method, target) of a request's head."""
    method, target, _ = head.split(b"\r\n", 1)[0].split(b" ")
    return method, target


def check_order(head: bytes, peer: str) -> tuple[str, str, int]:
    """(method, path, bytes of the body) of an order. Raises Refused."""
    if not _is_loopback(peer):
        raise Refused(403, f"orders come from the broker's own machine, not from {peer}")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        raise Refused(400, "the body needs a Content-Length")
    # Python refuses to convert a number of thousands of digits.
    if len(length) > 12 or int(length) > ORDER_BYTES_MAX:
        raise Refused(413, f"an order has at most {ORDER_BYTES_MAX} bytes")
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and content_type != JSON:
        raise Refused(415, "an order is sent as Content-Type: application/json")
    return method, target.partition("?")[0], int(length)


def number_of(path: str, parent: str) -> int | None:
    """The number after `parent` in a path such as /faults/3; None for the parent itself. Raises
    Refused."""
    name = path.removeprefix(parent)
    if not name:
        return None
    if not (name[0] == "/" and name[1:].isascii() and name[1:].isdigit()):
        raise Refused(404, f"there are {parent} and {parent}/ID")
    return int(name[1:20])


def response(
    status: int,
    *body: bytes,
    content_type: str = TEXT,
    head_only: bool = False,
    extra: str = "",
) -> list[bytes]:
    """The parts of a response. `extra`: further lines of its head."""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {sum(map(len, body))}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    ).encode()
    return [head] if head_only else [head, *body]


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
