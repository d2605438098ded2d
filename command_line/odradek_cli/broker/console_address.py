"""Addresses of the console: parsing, binding and display."""

from __future__ import annotations

import ipaddress
import socket

from odradek_cli.commands import fail


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Host and port of HOST:PORT. Ends the program with the option's name for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        fail(f"{option} {text!r} must be HOST:PORT, such as 127.0.0.1:8080", 2)
    return host.strip("[]") or "127.0.0.1", int(port)


def listening(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError if the address is taken or is no address of this
    machine."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=128)


def bound_to(host: str, port: int, option: str) -> socket.socket:
    """A listening socket. Ends the program if the address cannot be bound; `option` is the option
    to change.
    """
    try:
        return listening(host, port)
    except OSError as error:
        # Python adds the address to the system's text.
        cause = (error.strerror or str(error)).partition(" (while attempting")[0]
        fail(f"the console cannot listen on {host}:{port}: {cause}; {option} names another address")


def url_of(host: str, port: int) -> str:
    """The address for a browser."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def is_of_this_machine(host: str) -> bool:
    """True if other machines cannot reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
