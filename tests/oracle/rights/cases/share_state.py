"""The stored state of share partitions, which only brokers read and change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracle.rights.cells import Case, cluster_right, group_right, topic_right
from tests.oracle.script import Ask, Step, topic


def _body(**part: Any) -> dict[str, Any]:
    return {
        "group_id": "@g",
        "topics": [{"topic_id": "$t", "partitions": [{"partition": 0, **part}]}],
    }


_INITIAL = _body(state_epoch=1, start_offset=3)
_BEFORE: list[Step] = [
    *topic(),
    Ask(
        "Metadata",
        {"topics": [{"name": "__share_group_state"}], "allow_auto_topic_creation": True},
        version=8,
        quiet=True,
    ),
    Ask("InitializeShareGroupState", _INITIAL, quiet=True),
]
_SHOWN = Ask("ReadShareGroupStateSummary", _body(leader_epoch=0), version=0)


def _case(name: str, api: str, body: Mapping[str, Any]) -> Case:
    return Case(
        name,
        api,
        body,
        [cluster_right("CLUSTER_ACTION")],
        before=_BEFORE,
        after=[_SHOWN],
        extra={
            "alters-the-cluster": [cluster_right("ALTER")],
            "owns-the-group": [group_right("ALL"), topic_right("ALL")],
        },
    )


CASES = [
    _case(
        "initialize-share-state",
        "InitializeShareGroupState",
        _body(state_epoch=2, start_offset=5),
    ),
    _case("read-share-state", "ReadShareGroupState", _body(leader_epoch=0)),
    _case(
        "write-share-state",
        "WriteShareGroupState",
        _body(state_epoch=1, leader_epoch=0, start_offset=4, state_batches=[]),
    ),
    _case("delete-share-state", "DeleteShareGroupState", _body()),
    _case("summarize-share-state", "ReadShareGroupStateSummary", _body(leader_epoch=0)),
]
