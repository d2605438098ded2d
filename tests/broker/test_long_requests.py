"""No request holds the loop: every API is asked for many things at a time, and the steps of the
longest callback are counted (rule N-57)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import budget
from large_requests import CountedBroker, array_paths, large_request
from odradek_broker.request import CloseConnection
from odradek_protocol.keys import APIS, ApiKey

#: The most steps of one callback. A turn takes 6,000, and what begins in it may end later.
STEPS_MAX = 20_000
#: The elements of the array that is made large.
ELEMENTS = 4_000 if budget.is_short() else 10_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _arrays() -> Iterator[Any]:
    for key, api in APIS.items():
        for path in array_paths(api.request, api.versions.last):
            yield pytest.param(key, path, id=f"{api.name}-{'.'.join(path)}")


@pytest.fixture(scope="module")
def broker() -> CountedBroker:
    return CountedBroker(authorizer_class_name=AUTHORIZER, super_users="User:admin")


@pytest.mark.parametrize("user", ["nobody", "admin"])
@pytest.mark.parametrize(("key", "path"), _arrays())
def test_n57_no_request_holds_the_loop(
    broker: CountedBroker, key: ApiKey, path: tuple[str, ...], user: str
) -> None:
    request = large_request(key, path, ELEMENTS, lambda number: f"name-{number:05}")
    steps, answer = broker.longest_callback(request, APIS[key].versions.last, user)
    assert answer is None or isinstance(answer, list | CloseConnection)
    assert steps <= STEPS_MAX
