"""Client quotas: the entities that have them (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612), the quota
that applies to a client, and its usage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from math import inf
from typing import Generic, Protocol, TypeVar

from odradek_protocol.lazy_tuple import NamedTuple

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

#: Pairs of type and name, sorted by type; a name of None is the default of its type.
QuotaEntity = tuple[tuple[str, str | None], ...]


class QuotaKey(StrEnum):
    """The names of quotas."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


#: The quotas of users and client ids.
CLIENT_KEYS = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)


def quota_entity(pairs: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity with these (type, name) pairs; if a type occurs twice, the last pair is used, as
    in Kafka. An entity with more types than there are keeps their order, and gets no quotas."""
    entity = dict(pairs)
    if len(entity) > len(ENTITY_TYPES):
        return tuple(entity.items())
    return tuple(sorted(entity.items()))


#: Stands for the user in a quota of client ids, and for the client id in a quota of users. No real
#: name is empty.
ANY = ""

#: The usage of a client is dropped after this time without usage.
_INACTIVE_MS = 3_600_000
#: The most inactive clients whose usage is dropped at a time.
_FORGOTTEN_MAX = 32

#: The limit of the clients (by user and client id) whose usage is kept, and the limit of the
#: characters of their names. Above these limits, the clients with the oldest usage are dropped, and
#: later treated as new clients.
_USAGES_MAX = 20_000
_CHARACTERS_MAX = 4_000_000


class Usage(Protocol):
    """The usage of a client."""

    def throttle_ms(self, limit: float, now_ms: int, /) -> int:
        """The time for which a client with this limit has to wait."""
        ...


U = TypeVar("U", bound=Usage)


class Applied(NamedTuple):
    """The quota that applies to a client: its limit (infinite if there is none), and the user and
    client id whose usage is added up. ANY as `user` or `client_id`: all users, or all client ids,
    are added up."""

    limit: float
    user: str
    client_id: str


class _Entry(Generic[U]):
    __slots__ = ("limit", "usage", "used_ms")

    def __init__(self, usage: U, used_ms: int) -> None:
        self.limit = inf
        self.usage = usage
        self.used_ms = used_ms


class ClientQuotas(Generic[U]):
    """All quotas of one key, such as `producer_byte_rate`, and the usage of the clients."""

    def __init__(self, new_usage: Callable[[], U]) -> None:
        self._new_usage = new_usage
        #: By (user, client id): None is the default of the type, ANY means that the entity does not
        #: have the type.
        self._limits: dict[tuple[str | None, str | None], float] = {}
        #: The number of quotas of each existing kind: (true if the entity has a user, true if it
        #: has a client id).
        self._kinds: dict[tuple[bool, bool], int] = {}
        self._usages: dict[tuple[str, str], _Entry[U]] = {}
        self._characters = 0

    def __bool__(self) -> bool:
        """True if there is a quota, so that the usage of all clients is counted (Q-02)."""
        return bool(self._limits)

    def update(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set the quota of an entity; None removes it. The usage is kept."""
        names = dict(entity)
        key = names.get(USER, ANY), names.get(CLIENT_ID, ANY)
        kind = key[0] != ANY, key[1] != ANY
        quotas = self._kinds.pop(kind, 0) - (key in self._limits) + (limit is not None)
        if quotas:
            self._kinds[kind] = quotas
        if limit is None:
            self._limits.pop(key, None)
        else:
            self._limits[key] = limit

    def find(self, user: str, client_id: str) -> Applied | None:
        """The most specific quota that applies to a client; None if no quota applies (Q-01).

        Only the default quotas apply to clients without a name.
        """
        limits = self._limits
        for named_user, counted_user in ((user, user), (None, user), (ANY, ANY)):
            limit = limits.get((named_user, client_id)) if client_id else None
            if limit is None:
                limit = limits.get((named_user, None))
            if limit is not None:
                return Applied(limit, counted_user, client_id)
            if named_user != ANY:
                limit = limits.get((named_user, ANY))
                if limit is not None:
                    return Applied(limit, counted_user, ANY)
        return None

    def applied(self, user: str, client_id: str) -> Applied:
        """The quota that applies to a client (see `find`). If no quota applies, the limit is
        infinite; the usage is counted under the user, the client id or both, according to the kinds
        of the existing quotas (Q-02)."""
        found = self.find(user, client_id)
        if found is not None:
            return found
        of_user = (True, False) in self._kinds or (True, True) in self._kinds
        if not of_user or len(self._kinds) > 1:
            return Applied(inf, ANY, client_id)
        return Applied(inf, user, client_id if (True, True) in self._kinds else ANY)

    def usage(self, applied: Applied, now_ms: int) -> U:
        key = applied.user, applied.client_id
        entry = self._usages.pop(key, None)
        if entry is None:
            self._characters += len(applied.user) + len(applied.client_id)
            entry = _Entry(self._new_usage(), now_ms)
        entry.used_ms = now_ms
        entry.limit = applied.limit
        # The most recently used entry is at the end.
        self._usages[key] = entry
        self._forget_inactive(now_ms)
        return entry.usage

    def _forget_inactive(self, now_ms: int) -> None:
        usages = self._usages
        forgotten = 0
        while len(usages) > 1:
            key, entry = next(iter(usages.items()))
            crowded = len(usages) > _USAGES_MAX or self._characters > _CHARACTERS_MAX
            stays = now_ms - entry.used_ms < _INACTIVE_MS or forgotten >= _FORGOTTEN_MAX
            if stays and not crowded:
                return
            forgotten += 1
            del usages[key]
            self._characters -= len(key[0]) + len(key[1])

    def usages(self) -> Iterator[tuple[str, str, U]]:
        """(user, client id, usage) of the clients with a quota; ANY stands for a sum over users or
        client ids.
        """
        for (user, client_id), entry in self._usages.items():
            if entry.limit < inf:
                yield user, client_id, entry.usage

    def throttled(self, now_ms: int) -> Iterator[bool]:
        """For each counted usage, true if the usage exceeds its quota."""
        for entry in list(self._usages.values()):
            yield entry.limit < inf and entry.usage.throttle_ms(entry.limit, now_ms) > 0
