"""The calls of the admin client about quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum

from odradek_client.admin.arguments import each_of
from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import BadAnswer, error_for
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    OpData,
)
from odradek_protocol.schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


class QuotaName(IntEnum):
    """Special names of entities. The numbers are those of the match types in a filter.

    DEFAULT: all names that have no quota of their own. ANY: every name and the default; only for
    filters.
    """

    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True)
class QuotaEntity:
    """The entity that has a quota: a user, a client id, both together, or an IP address.

    A part that is None does not belong to the entity. DEFAULT stands for all names that have no
    quota of their own.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None

    def __str__(self) -> str:
        parts = []
        for kind, name in _parts(self):
            parts.append(f"default {kind}" if name is QuotaName.DEFAULT else f"{kind} {name!r}")
        return ", ".join(parts) or "nobody"


class QuotaAdmin(AdminPart):
    """The calls about quotas."""

    async def describe_client_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas, by entity and key: all of them, or those of the entities that match `entity`.

        In `entity`, a name matches only itself, ANY matches every name. `strict`: leave out
        entities that have further parts. Raises ClusterAuthorizationFailed.
        """
        components = [] if entity is None else [_component(*part) for part in _parts(entity)]
        request = DescribeClientQuotasRequest(components=components, strict=strict)

        async def ask() -> DescribeClientQuotasResponse:
            node_id = await self.network.least_loaded_node()
            response: DescribeClientQuotasResponse = await self.network.send(node_id, request)
            if response.error_code:
                raise error_for(response.error_code, response.error_message, about="quotas")
            return response

        response = await self.requests.retrying(ask)
        return {
            _entity(entry.entity): {value.key: value.value for value in entry.values}
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[QuotaEntity, None]:
        """Set quotas by key (the value None removes a quota); quotas with other keys do not change.
        Returns results by entity.

        Keys are Kafka's: producer_byte_rate, consumer_byte_rate, request_percentage,
        controller_mutation_rate, and for IP addresses connection_creation_rate. Raises
        ClusterAuthorizationFailed, and Refused for an invalid entity, key or value.
        """
        wanted = each_of(changes, QuotaEntity, "changes", 'QuotaEntity(user="name")')

        async def ask(asked: list[QuotaEntity]) -> Outcomes[QuotaEntity, None]:
            request = AlterClientQuotasRequest(
                entries=[_entry(entity, changes[entity]) for entity in asked],
                validate_only=validate_only,
            )
            response: AlterClientQuotasResponse = await self.requests.to_controller(request)
            return {
                (entity := _entity(result.entity)): error_for(
                    result.error_code, result.error_message, about=f"quotas of {entity}"
                )
                if result.error_code
                else None
                for result in response.entries
            }

        return await self.requests.for_each(wanted, ask, raise_errors)


#: The fields of `QuotaEntity`, and their names in requests.
_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
_FIELDS = {kind: name for name, kind in _TYPES.items()}


def _parts(entity: QuotaEntity) -> Iterable[tuple[str, str | QuotaName]]:
    for field in fields(entity):
        name = getattr(entity, field.name)
        if name is not None:
            yield _TYPES[field.name], name


def _component(kind: str, name: str | QuotaName) -> ComponentData:
    if isinstance(name, QuotaName):
        return ComponentData(entity_type=kind, match_type=name, match=None)
    return ComponentData(entity_type=kind, match_type=0, match=name)


def _entity(parts: Iterable[QuotaEntityPart]) -> QuotaEntity:
    """The entity in the form of requests. Raises BadAnswer for an unknown type."""
    names: dict[str, str | QuotaName] = {}
    for part in parts:
        field = _FIELDS.get(part.entity_type)
        if field is None:
            raise BadAnswer(f"the broker has quotas of a {part.entity_type!r}, which is not known")
        names[field] = QuotaName.DEFAULT if part.entity_name is None else part.entity_name
    return QuotaEntity(**names)


def _entry(entity: QuotaEntity, changes: Mapping[str, float | None]) -> EntryData:
    parts = list(_parts(entity))
    for kind, name in parts:
        if name is QuotaName.ANY:
            raise ValueError(f"quotas are set for one {kind}, or the default; ANY is for asking")
    return EntryData(
        entity=[
            QuotaEntityPart(entity_type=kind, entity_name=name if isinstance(name, str) else None)
            for kind, name in parts
        ],
        ops=[
            OpData(key=key, value=0.0 if limit is None else float(limit), remove=limit is None)
            for key, limit in changes.items()
        ],
    )
