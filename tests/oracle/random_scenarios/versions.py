"""The versions of random requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from tests.oracle.script import APIS_BY_NAME, Ask

#: The newest version that Kafka serves, where ours is newer.
_NEWEST = {"InitProducerId": 5}


def any_version(
    random: Random,
    ask: Ask,
    first: int = 0,
    among: Mapping[str, tuple[int, int]] | None = None,
) -> Ask:
    """The request in a version of its API, in half of the cases the newest one.

    `first`: the first version that can carry the request. `among`: the first and the last version
    of the APIs that it names, all equally often.
    """
    if among is not None and ask.api in among:
        return replace(ask, version=random.randint(*among[ask.api]))
    known = APIS_BY_NAME[ask.api].versions
    last = _NEWEST.get(ask.api, known.last)
    if random.random() < 0.5:
        return replace(ask, version=last)
    return replace(ask, version=random.randint(max(known.first, first), last))
