"""No request makes or frees much in memory between two pauses (rule N-57).

A comprehension, a sort and the end of a coroutine go through all elements of a request in one call,
which a count of calls does not see. What they make or free is seen in the number of blocks in use.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import budget
from large_requests import CountedBroker, large_request
from odradek_broker import slices
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.request import RequestContext
from odradek_protocol.keys import APIS, ApiKey

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: The elements of the array that is made large.
ELEMENTS = 3_000 if budget.is_short() else 6_000
#: The most blocks of memory that are made or freed between two pauses. A piece of a request has 128
#: elements at most, of which each has a few blocks.
BLOCKS_MAX = ELEMENTS // 2


class _Steps:
    """The steps of a coroutine, of which the one that changes the blocks in use most is noted."""

    most = 0

    def __init__(self, steps: Any) -> None:
        self._steps = steps

    def send(self, value: None) -> Any:
        before = sys.getallocatedblocks()
        try:
            return self._steps.send(value)
        finally:
            changed = abs(sys.getallocatedblocks() - before)
            _Steps.most = max(_Steps.most, changed)

    def close(self) -> None:
        self._steps.close()


class _Work(slices.Work[Any]):
    __slots__ = ()

    def __init__(self, steps: Any, context: RequestContext | None) -> None:
        super().__init__(_Steps(steps), context)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def broker() -> CountedBroker:
    broker = CountedBroker(super_users="User:admin", authorizer_class_name=AUTHORIZER)
    broker.world.node.ensure_internal_topic(SHARE_STATE_TOPIC)
    broker.settle()
    return broker


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(slices, "Work", _Work)
    monkeypatch.setattr(_Steps, "most", 0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("user", ["nobody", "admin"])
@pytest.mark.parametrize(
    ("key", "path"),
    [
        (ApiKey.ALTER_CLIENT_QUOTAS, "entries.entity"),
        (ApiKey.ALTER_CLIENT_QUOTAS, "entries.ops"),
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "deletions"),
        (ApiKey.FETCH, "topics.partitions"),
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "topics"),
        (ApiKey.METADATA, "topics"),
        (ApiKey.READ_SHARE_GROUP_STATE, "topics.partitions"),
        (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "topics.partitions"),
    ],
)
def test_n57_no_request_makes_or_frees_much_between_two_pauses(
    broker: CountedBroker, key: ApiKey, path: str, user: str
) -> None:
    request = large_request(key, tuple(path.split(".")), ELEMENTS, lambda n: f"name-{n:05}")
    broker.longest_callback(request, APIS[key].versions.last, user)
    assert 0 < _Steps.most <= BLOCKS_MAX
