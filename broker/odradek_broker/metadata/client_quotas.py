"""Client quotas in the cluster metadata: the records of AlterClientQuotas and the answers of
DescribeClientQuotas (KIP-546). Codes are those of Kafka's controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from ipaddress import ip_address
from math import isnan

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.quotas.client_quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    ENTITY_TYPES,
    IP,
    USER,
    QuotaEntity,
    QuotaKey,
)
from odradek_broker.slices import paced
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import INT32_MAX, INT64_MAX
from odradek_protocol.stored.cluster_metadata import (
    ClientQuotaRecord,
    MetadataRecord,
)

#: The maximum number of entities with quotas. An entity need not exist, so nothing else limits the
#: number.
_ENTITIES_MAX = 100_000
#: The maximum number of changes of one entity, which are made in one piece.
CHANGES_MAX = 16

#: The highest value of each key whose values are whole numbers.
_WHOLE_MAX = {
    QuotaKey.PRODUCER_BYTE_RATE: INT64_MAX,
    QuotaKey.CONSUMER_BYTE_RATE: INT64_MAX,
    QuotaKey.CONNECTION_CREATION_RATE: INT32_MAX,
}

#: The largest fractional part with which a double is accepted as a whole number.
_EPSILON = 1e-6


@dataclass(frozen=True)
class QuotaChange:
    """A quota to set, or to remove if `limit` is None."""

    key: str
    limit: float | None


@dataclass(frozen=True)
class EntityChanges:
    """The changes of one entity."""

    entity: QuotaEntity
    changes: Sequence[QuotaChange]


@dataclass
class EntityResult:
    """The answer for one entity."""

    entity: QuotaEntity
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_client_quotas(
    metadata: ClusterMetadata, wanted: Sequence[EntityChanges]
) -> tuple[list[MetadataRecord], list[EntityResult]]:
    """The records of the valid changes, and one answer for each entity.

    All changes of an entity are made, or none. A change to the present value needs no record.
    """
    times = Counter(each.entity for each in wanted)
    records: list[MetadataRecord] = []
    results: dict[QuotaEntity, EntityResult] = {}
    added = 0
    for each in wanted:
        entity = each.entity
        if entity in results:
            continue
        results[entity] = result = EntityResult(entity)
        try:
            if times[entity] > 1:
                raise _refused("Each entity must appear at most once.")
            made = _alter_one(metadata, each, added)
        except AdminError as error:
            result.error, result.message = error.error, error.message
            continue
        records += made
        added += bool(made) and entity not in metadata.client_quotas
    return records, list(results.values())


def _alter_one(
    metadata: ClusterMetadata, wanted: EntityChanges, added: int
) -> list[MetadataRecord]:
    """The records of one entity's changes. Raises AdminError. `added`: entities that get their
    first quotas earlier in the request."""
    if len(wanted.changes) > CHANGES_MAX:
        raise _refused(f"At most {CHANGES_MAX} quotas of an entity are changed at a time.")
    keys = Counter([change.key for change in wanted.changes])
    for key, times in keys.items():
        if times > 1:
            raise _refused(f"The quota {key} is given {times} times.")
    legal = _legal_keys(wanted.entity)
    present = metadata.client_quotas.get(wanted.entity)
    if present is None and len(metadata.client_quotas) + added >= _ENTITIES_MAX:
        raise AdminError(
            ErrorCode.POLICY_VIOLATION,
            f"{_ENTITIES_MAX} entities have quotas already; remove some of them first.",
        )
    records: list[MetadataRecord] = []
    for change in wanted.changes:
        before = None if present is None else present.get(change.key)
        if change.limit is not None:
            _check_limit(change.key, change.limit, legal)
        if change.limit != before:
            records.append(_record(wanted.entity, change))
    return records


def _record(entity: QuotaEntity, change: QuotaChange) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity],
        key=change.key,
        value=0.0 if change.limit is None else change.limit,
        remove=change.limit is None,
    )


def _refused(message: str) -> AdminError:
    return AdminError(ErrorCode.INVALID_REQUEST, message)


def _legal_keys(entity: QuotaEntity) -> Sequence[QuotaKey]:
    """The keys of quotas that the entity may have. Raises AdminError if an entity with these types
    and names cannot have quotas."""
    names = dict(entity)
    if not names:
        raise _refused("Quotas are of users, client ids or addresses; the entity is empty.")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise _refused(f"{kind!r} is no type of entity; use one of {', '.join(ENTITY_TYPES)}.")
        if name == "":
            raise _refused(f"The name of the {kind} is empty.")
    if IP not in names:
        return CLIENT_KEYS
    if USER in names or CLIENT_ID in names:
        raise _refused("An address has quotas by itself, not together with a user or client id.")
    _check_address(names[IP])
    return (QuotaKey.CONNECTION_CREATION_RATE,)


def _check_address(name: str | None) -> None:
    """Raise AdminError unless the text is an IP address. Kafka also accepts and resolves host
    names, but this broker never waits for a name server.
    """
    try:
        if name is not None:
            ip_address(name)
    except ValueError:
        raise _refused(f"{name!r} is no IP address.") from None


def _check_limit(key: str, limit: float, legal: Sequence[QuotaKey]) -> None:
    if key not in legal:
        raise _refused(f"There is no quota {key!r} here; use one of {', '.join(legal)}.")
    if isnan(limit) or limit <= 0:
        raise _refused(f"The quota {key} is {limit}; it must be more than 0.")
    most = _WHOLE_MAX.get(QuotaKey(key))
    if most is not None and limit > most:
        raise _refused(f"The quota {key} is {limit}; it must be at most {most}.")
    if most is not None and limit % 1 > _EPSILON:
        raise _refused(f"The quota {key} is {limit}; it must be a whole number.")


class MatchType(IntEnum):
    """The ways in which a component of a filter matches names."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


@dataclass(frozen=True)
class FilterComponent:
    """The condition of a filter on one entity type. `match`: the name if the match type is EXACT,
    otherwise None."""

    entity_type: str
    match_type: int
    match: str | None


@dataclass
class _Filter:
    """A filter. `names`: the exact name for each type; None stands for the default entity of the
    type. `types`: the types for which every name matches, and so does the default entity."""

    names: dict[str, str | None] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)

    def __contains__(self, entity_type: str) -> bool:
        return entity_type in self.names or entity_type in self.types

    def fits(self, entity: QuotaEntity, strict: bool) -> bool:
        names = dict(entity)
        if strict and len(names) != len(self.names) + len(self.types):
            return False
        return all(
            kind in names and names[kind] == name for kind, name in self.names.items()
        ) and all(kind in names for kind in self.types)


async def describe_client_quotas(
    metadata: ClusterMetadata, components: Sequence[FilterComponent], strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entities that match a filter, with their quotas. Raises AdminError for an invalid filter.

    `strict`: entities with types besides those of the filter are left out.
    """
    wanted = _Filter()
    for component in components:
        _add(wanted, component)
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            "Addresses have quotas by themselves, not together with users or client ids.",
        )
    return [
        (entity, quotas)
        async for entity, quotas in paced(metadata.client_quotas.items())
        if wanted.fits(entity, strict)
    ]


def _add(wanted: _Filter, component: FilterComponent) -> None:
    kind, match = component.entity_type, component.match
    problem = None
    if not kind:
        problem = "The type of an entity is empty."
    elif kind in wanted:
        problem = f"The type {kind} is given twice."
    elif kind not in ENTITY_TYPES:
        raise AdminError(ErrorCode.UNSUPPORTED_VERSION, f"There is no type of entity {kind!r}.")
    elif component.match_type not in set(MatchType):
        problem = f"There is no match type {component.match_type}."
    elif component.match_type == MatchType.EXACT and match is None:
        problem = f"An exact match of {kind} needs a name."
    elif component.match_type != MatchType.EXACT and match is not None:
        problem = f"A name of {kind} is given where none is compared."
    if problem:
        raise AdminError(ErrorCode.INVALID_REQUEST, problem)
    if component.match_type == MatchType.SPECIFIED:
        wanted.types.add(kind)
    else:
        wanted.names[kind] = match
