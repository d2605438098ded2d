"""The quotas that DescribeClientQuotas asks for (KIP-546). Codes are those of Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.quotas.entities import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntity
from odradek_protocol.errors import ErrorCode


class MatchType(IntEnum):
    """The ways in which a component of a filter matches names."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


@dataclass(frozen=True)
class FilterComponent:
    """A filter's condition on an entity's part of one type; `match` is a name, and only given for
    EXACT."""

    entity_type: str
    match_type: int
    match: str | None


@dataclass
class _Filter:
    """`names`: None is the default of the type. `types`: any name, the default too."""

    names: dict[str, str | None] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)

    def __contains__(self, entity_type: str) -> bool:
        return entity_type in self.names or entity_type in self.types

    def fits(self, entity: QuotaEntity, strict: bool) -> bool:
        held = dict(entity)
        if strict and len(held) != len(self.names) + len(self.types):
            return False
        return all(
            kind in held and held[kind] == name for kind, name in self.names.items()
        ) and all(kind in held for kind in self.types)


def describe_client_quotas(
    metadata: ClusterMetadata, components: Sequence[FilterComponent], strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entities that a filter fits, with their quotas. AdminError for a filter that cannot be.

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
        for entity, quotas in metadata.client_quotas.items()
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
