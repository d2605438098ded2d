"""The names by which an HTTP server of ours may be addressed, and the site that sent a request.

Any web site can point its own name at an address of this machine, and its pages then read and send
what they like (DNS rebinding), unless the server refuses names that are not its own. IP addresses
are always accepted, because no other site can have them as its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

_HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s\[\]:/?#@\\]*))(?::(?P<port>[0-9]{0,5}))?"
)
_PORT_MAX = 65_535


def host_name(host: str) -> str | None:
    """The name in a Host header, in lower case, without port, brackets and a dot at its end; None
    for a text that is no Host header."""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > _PORT_MAX:
        return None
    return (found["address"] or found["name"]).lower().removesuffix(".")


def is_address(name: str) -> bool:
    """True for an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class OwnHosts:
    """The names of a server: localhost, all IP addresses and `names`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {"localhost", *(name.lower().removesuffix(".") for name in names)} - {""}

    def has(self, name: str) -> bool:
        """True if requests may have this name, a result of `host_name`."""
        return name in self._names or is_address(name)


def is_own_origin(origin: str, host: str) -> bool:
    """True if a page of the server itself sent the request with these headers Origin and Host."""
    return bool(host) and origin.partition("://")[2].lower() == host.lower()
