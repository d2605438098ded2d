"""Entities that have quotas, and the names of the quotas (KIP-13, KIP-55, KIP-124, KIP-599,
KIP-612)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

#: Pairs of type and name, sorted by type; a name of None is the default of its type.
QuotaEntity = tuple[tuple[str, str | None], ...]


class QuotaKey(StrEnum):
    """The rates that there are quotas of."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


#: Those of users and client ids.
CLIENT_KEYS = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)


def quota_entity(pairs: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of some pairs; of two of one type the last one counts, as in Kafka."""
    return tuple(sorted(dict(pairs).items()))
