"""The families of random scenarios, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.oracle.random_scenarios import (
    administration,
    borders,
    converted_groups,
    group_kinds,
    groups,
    records,
    share_groups,
    streams_groups,
    transactions,
)
from tests.oracle.script import Scenario, Step

FAMILIES: Mapping[str, Callable[[Random], list[Step]]] = {
    "transactions": transactions.transactions,
    "log": records.log,
    "idempotent": records.idempotent,
    "fetch-sessions": records.fetch_sessions,
    "share-group": records.share_group,
    "share-members": share_groups.share_members,
    "share-states": share_groups.share_states,
    "offsets": groups.offsets,
    "classic": groups.classic,
    "consumer": groups.consumer,
    "converted": converted_groups.converted,
    "group-kinds": group_kinds.group_kinds,
    "streams": streams_groups.streams,
    "topics": administration.topics,
    "topic-settings": administration.topic_settings,
    "group-settings": administration.group_settings,
    "broker-settings": administration.broker_settings,
    "client-quotas": administration.client_quotas,
    "scram-credentials": administration.scram_credentials,
    "borders": borders.borders,
}


def random_scenario(family: str, seed: int) -> Scenario:
    """Return the scenario of a seed; the same seed always has the same scenario."""
    steps = FAMILIES[family](Random(f"{family} {seed}"))
    return Scenario(f"random-{family}-{seed}", "ApiVersions", steps, versions="4")
