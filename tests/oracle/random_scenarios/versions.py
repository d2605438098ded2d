"""The versions of random requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from tests.oracle.script import APIS_BY_NAME, Ask

#: The newest version that Kafka serves, if our broker serves a newer one.
_NEWEST = {"InitProducerId": 5}


def any_version(
    random: Random,
    ask: Ask,
    first: int = 0,
    among: Mapping[str, tuple[int, int]] | None = None,
) -> Ask:
    """Choose a version for a request: in half of the cases the newest, else any.

    `first`: the first version that can carry the request. `among`: API -> (first, last) version;
    for these APIs all versions are equally likely.
    """
    if among is not None and ask.api in among:
        return replace(ask, version=random.randint(*among[ask.api]))
    known = APIS_BY_NAME[ask.api].versions
    last = _NEWEST.get(ask.api, known.last)
    if random.random() < 0.5:
        return replace(ask, version=last)
    return replace(ask, version=random.randint(max(known.first, first), last))
