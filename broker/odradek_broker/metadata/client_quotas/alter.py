"""Changes of quotas by AlterClientQuotas (KIP-546): state in, records out. Codes are those of
Kafka's controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from math import isnan

from odradek_broker.config.types import INT32_MAX, INT64_MAX
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.quotas.entities import (
    CLIENT_ID,
    CLIENT_KEYS,
    ENTITY_TYPES,
    IP,
    USER,
    QuotaEntity,
    QuotaKey,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import (
    ClientQuotaRecord,
    MetadataRecord,
    QuotaEntityData,
)

#: Entities that may have quotas. They need not exist, so that nothing else limits their number.
_ENTITIES_MAX = 100_000
#: Keys whose values are whole numbers, and the highest.
_WHOLE_MAX = {
    QuotaKey.PRODUCER_BYTE_RATE: INT64_MAX,
    QuotaKey.CONSUMER_BYTE_RATE: INT64_MAX,
    QuotaKey.CONNECTION_CREATION_RATE: INT32_MAX,
}
#: Whole as far as a double can tell.
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
    """The records of the valid changes, and an answer for each entity, once.

    All changes of an entity are made or none. A change to the value that is there makes no record.
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
    """`added`: entities that get their first quotas earlier in the request."""
    keys = Counter(change.key for change in wanted.changes)
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
        entity=[QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=change.key,
        value=0.0 if change.limit is None else change.limit,
        remove=change.limit is None,
    )


def _refused(message: str) -> AdminError:
    return AdminError(ErrorCode.INVALID_REQUEST, message)


def _legal_keys(entity: QuotaEntity) -> Sequence[QuotaKey]:
    """The quotas that an entity may have. AdminError if there is no such entity."""
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
    """Kafka looks names of hosts up as well; here nothing waits for a name server."""
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
