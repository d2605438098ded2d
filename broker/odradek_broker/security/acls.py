"""ACLs, and the index that finds the ACLs of a resource (KIP-11, KIP-290)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address

from odradek_broker.slices import paced
from odradek_protocol.acls import (
    WILDCARD,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple


class Acl(NamedTuple):
    """An access control entry. `principal`: "User:alice"; `host`: an address, or `*`."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.operation.name} to {self.principal} from {self.host}"
            f" on {self.pattern_type.name} {self.resource_type.name} {self.name}"
        )


@dataclass(frozen=True)
class AclFilter:
    """A filter of ACLs. None and ANY match every value; PatternType.MATCH selects the ACLs that
    apply to the resource `name`."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def fits(self, acl: Acl) -> bool:
        """True if the filter selects the ACL."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self._fits_name(acl)
        )

    def _fits_name(self, acl: Acl) -> bool:
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == WILDCARD


@lru_cache(maxsize=4096)
def plain_host(host: str) -> str:
    """An address in a normal form, so that addresses can be compared; other texts are unchanged.
    Java writes an IPv6 address differently, with all its zeros."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


@lru_cache(maxsize=4096)
def acl_host(host: str) -> str:
    """The host of an ACL in the form of `plain_host`. An IPv4 address in the form of an IPv6 one is
    unchanged, and so fits no client, as in Kafka: a client's address never has this form."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped is not None
    return host if mapped else str(address)


#: The ACLs of one pattern, by principal and host in the form of `acl_host`. There may be thousands
#: with different hosts.
Bucket = dict[tuple[str, str], list[Acl]]

#: The longest prefix, in characters, that is looked up as it is. Of longer ones the digest is: the
#: digests of all prefixes of a name take one way through it.
_PLAIN_PREFIX_MAX = 249


@dataclass
class _OfType:
    """The ACLs of one type of resource, by name and by principal. `lengths`: the number of prefixes
    of each length."""

    literal: dict[str | bytes, Bucket] = field(default_factory=dict)
    prefixed: dict[str | bytes, Bucket] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    by_principal: dict[str, dict[Acl, None]] = field(default_factory=dict)

    def buckets(self, name: str) -> Iterator[Bucket]:
        """The buckets of the ACLs that apply to a name, in no particular order."""
        for literal in {name, WILDCARD}:
            found = self.literal.get(literal)
            if found is not None:
                yield found
        size = len(name)
        for prefix in prefix_keys(name, [each for each in self.lengths if each <= size]):
            found = self.prefixed.get(prefix)
            if found is not None:
                yield found

    def add(self, acl: Acl) -> None:
        by_name, key = self._by_name(acl)
        if key not in by_name and by_name is self.prefixed:
            length = len(acl.name)
            self.lengths[length] = self.lengths.get(length, 0) + 1
        by_name.setdefault(key, {}).setdefault(_client_of(acl), []).append(acl)
        self.by_principal.setdefault(acl.principal, {})[acl] = None

    def remove(self, acl: Acl) -> None:
        own = self.by_principal[acl.principal]
        del own[acl]
        if not own:
            del self.by_principal[acl.principal]
        by_name, key = self._by_name(acl)
        bucket, client = by_name[key], _client_of(acl)
        bucket[client].remove(acl)
        if not bucket[client]:
            del bucket[client]
        if bucket:
            return
        del by_name[key]
        if by_name is self.prefixed:
            length = len(acl.name)
            self.lengths[length] -= 1
            if not self.lengths[length]:
                del self.lengths[length]

    def _by_name(self, acl: Acl) -> tuple[dict[str | bytes, Bucket], str | bytes]:
        """The buckets that an ACL belongs to, and its key in them."""
        if acl.pattern_type is PatternType.PREFIXED:
            return self.prefixed, next(prefix_keys(acl.name, [len(acl.name)]))
        return self.literal, acl.name


def prefix_keys(name: str, lengths: Iterable[int]) -> Iterator[str | bytes]:
    """The keys of the prefixes of a name that have these lengths, in characters; the key of a long
    prefix is its digest."""
    long = []
    for length in lengths:
        if length <= _PLAIN_PREFIX_MAX:
            yield name[:length]
        else:
            long.append(length)
    digest, start = blake2b(), 0
    for length in sorted(long):
        digest.update(name[start:length].encode("utf-8", "surrogatepass"))
        yield digest.digest()
        start = length


def _client_of(acl: Acl) -> tuple[str, str]:
    return acl.principal, acl_host(acl.host)


class AclIndex:
    """All ACLs. Only the replay of records changes them (D4)."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, Acl] = {}
        self._ids: dict[Acl, bytes] = {}
        self._types: dict[AclResourceType, _OfType] = {}
        #: A number that grows with every change.
        self.version = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._ids

    def has_id(self, acl_id: bytes) -> bool:
        return acl_id in self._by_id

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """Add an ACL. Raises ValueError if the id or the ACL exists already."""
        if acl_id in self._by_id or acl in self._ids:
            raise ValueError(f"the ACL {acl} is created twice")
        self.version += 1
        self._by_id[acl_id] = acl
        self._ids[acl] = acl_id
        self._types.setdefault(acl.resource_type, _OfType()).add(acl)

    def remove(self, acl_id: bytes) -> None:
        """Remove an ACL. Raises KeyError if no ACL has this id."""
        acl = self._by_id.pop(acl_id)
        self.version += 1
        del self._ids[acl]
        self._types[acl.resource_type].remove(acl)

    def buckets(self, kind: AclResourceType, name: str) -> Iterator[Bucket]:
        found = self._types.get(kind)
        return iter(()) if found is None else found.buckets(name)

    def of_principal(self, kind: AclResourceType, principal: str) -> Iterable[Acl]:
        found = self._types.get(kind)
        return () if found is None else found.by_principal.get(principal, ())

    def prefix_lengths(self, kind: AclResourceType) -> Collection[int]:
        """The different lengths of the prefixes of one type, in characters."""
        found = self._types.get(kind)
        return () if found is None else found.lengths.keys()

    async def matching(self, wanted: AclFilter) -> list[tuple[bytes, Acl]]:
        """(id, ACL) of the ACLs that match a filter, oldest first."""
        return [
            (acl_id, acl) async for acl_id, acl in paced(self._by_id.items()) if wanted.fits(acl)
        ]

    @property
    def by_id(self) -> Mapping[bytes, Acl]:
        return self._by_id
