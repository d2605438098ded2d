"""The parts of HTTP/1.1 that the broker needs: heads of requests, orders, responses.

An order is a request that changes something; only a broker under test takes orders. An order must
come from the broker's own machine, and its body must be JSON of a limited size with the type
application/json. A page of another site cannot send it: a browser names that site in the request,
or asks first (a preflight request), and both are refused.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import Any

from odradek_protocol.http_hosts import OwnHosts, host_name, is_own_origin
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
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_VERSION = re.compile(r"HTTP/1\.[0-9]")
# Possessive: otherwise a client could make a match take time with the square of a line's length.
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]++):[ \t]*+([^\x00-\x08\x0a-\x1f\x7f]*+)")
#: The headers that decide something here; a request with two of one kind is refused.
_SINGLE = frozenset({"host", "origin", "authorization", "content-length", "content-type"})
_ABSOLUTE = re.compile(r"https?://([^/?#]*+)(.*+)", re.IGNORECASE)
#: The values of Sec-Fetch-Site without which a page of another site has sent the request.
_OWN_SITES = ("", "same-origin", "none")
_SHOWN_CHARACTERS = 100


class HttpError(Exception):
    """The error for a request that is refused, with the answer. `extra`: lines for its head."""

    def __init__(self, status: int, text: str, extra: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.extra = extra


class HttpRequest(NamedTuple):
    """The head of a request. `path` has no query; the names of `headers` are in lower case.

    `hosts`: the addresses that the client says it has connected to, of the header Host and of an
    absolute target; empty only in HTTP/1.0. `peer`: the client's address.
    """

    method: str
    path: str
    headers: dict[str, str]
    hosts: tuple[str, ...]
    peer: str


class Order(NamedTuple):
    """An order (see the module). `path` has no query; `body` is the JSON value, None without a
    body."""

    method: str
    path: str
    body: Any


def parse_head(head: bytes, peer: str) -> HttpRequest:
    """The head of a request of HTTP/1, up to its empty line. Raises Refused."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not _VERSION.fullmatch(parts[2]):
        raise HttpError(400, "this is no HTTP/1.1 request")
    method, target, version = parts
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise HttpError(400, "a header of the request is no header of HTTP/1.1")
        name = found[1].lower()
        if name in headers and name in _SINGLE:
            raise HttpError(400, f"the request has the header {found[1]} twice")
        headers[name] = found[2].rstrip(" \t")
    hosts = [headers["host"]] if "host" in headers else []
    if not hosts and version != "HTTP/1.0":
        raise HttpError(400, "the request lacks the header Host")
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:
        hosts.append(absolute[1])
        target = absolute[2]
    elif not target.startswith("/") and target != "*":
        raise HttpError(400, "the target of the request is no path")
    return HttpRequest(method, target.partition("?")[0] or "/", headers, tuple(hosts), peer)


def check_host(request: HttpRequest, own: OwnHosts, what_to_do: str) -> None:
    """Refuse a request for a name that is not the server's. `what_to_do`: the end of the refusal,
    with {name} for the name."""
    for host in request.hosts:
        name = host_name(host)
        if name is None:
            raise HttpError(400, "the header Host, or the target, has no host name")
        if not own.has(name):
            shown = name[:_SHOWN_CHARACTERS]
            raise HttpError(
                421, f"the name {shown!r} is not allowed here: {what_to_do.format(name=shown)}"
            )


def check_order(request: HttpRequest) -> int:
    """The bytes of the body of an order. Raises Refused."""
    if not _is_loopback(request.peer):
        raise HttpError(403, f"orders come from the broker's own machine, not from {request.peer}")
    headers = request.headers
    own = "".join(request.hosts[:1])
    if "origin" in headers and not is_own_origin(headers["origin"], own):
        raise HttpError(403, "orders come from programs, not from web pages of others (Origin)")
    if headers.get("sec-fetch-site", "") not in _OWN_SITES:
        raise HttpError(403, "orders come from programs, not from web pages (Sec-Fetch-Site)")
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        raise HttpError(400, "the body needs a Content-Length")
    # Python refuses to convert a number of thousands of digits.
    if len(length) > 12 or int(length) > ORDER_BYTES_MAX:
        raise HttpError(413, f"an order has at most {ORDER_BYTES_MAX} bytes")
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and content_type != JSON:
        raise HttpError(415, "an order is sent as Content-Type: application/json")
    return int(length)


def number_of(path: str, parent: str) -> int | None:
    """The number after `parent` in a path such as /faults/3; None for the parent itself. Raises
    Refused."""
    name = path.removeprefix(parent)
    if not name:
        return None
    if not (name[0] == "/" and name[1:].isascii() and name[1:].isdigit()):
        raise HttpError(404, f"there are {parent} and {parent}/ID")
    return int(name[1:20])


def response(
    status: int, *body: bytes, content_type: str = TEXT, extra: str = ""
) -> tuple[bytes, ...]:
    """The parts of a response: its head, and its body. `extra`: further lines of the head."""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {sum(map(len, body))}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode(), *body


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
