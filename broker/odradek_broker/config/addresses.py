"""IP addresses in settings: their canonical spelling, and lists of counts by address."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from odradek_protocol.settings import INT32_MAX, Check


def plain_address(text: str) -> str:
    """The canonical spelling of an address; an IPv4-mapped IPv6 address becomes IPv4. Raises
    ValueError."""
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def parse_counts(text: str) -> dict[str, int]:
    """Parse "ADDRESS:COUNT,..." into counts by address. As in Kafka, empty parts are allowed only
    at the end. Raises ValueError."""
    counts: dict[str, int] = {}
    listed = text.rstrip(", ")
    for part in listed.split(",") if listed else ():
        address, _, number = part.rpartition(":")
        count = int(number)
        if "_" in number or not 0 <= count <= INT32_MAX:
            raise ValueError(f"{count} is too many, or too few")
        counts[plain_address(address.strip("[] "))] = count
    return counts


def _are_counts(text: str) -> bool:
    try:
        parse_counts(text)
    except ValueError:
        return False
    return True


COUNTS_BY_ADDRESS = Check("ADDRESS:COUNT,..., of IP addresses", _are_counts)
