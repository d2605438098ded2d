"""UnregisterBroker, AddRaftVoter and RemoveRaftVoter: refused, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from fake_node import FakeNode
from handler_calls import ask
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.add_raft_voter import AddRaftVoterRequest, Listener
from odradek_protocol.schemas.remove_raft_voter import RemoveRaftVoterRequest
from odradek_protocol.schemas.unregister_broker import UnregisterBrokerRequest

E = ErrorCode
VALID: dict[str, Any] = {"cluster_id": None, "voter_id": 2, "voter_directory_id": b"\2" * 16}
CONTROLLER = Listener(name="CONTROLLER", host="a", port=1)


def test_a75_a_running_broker_cannot_be_unregistered() -> None:
    node = FakeNode()
    answer = ask(node, UnregisterBrokerRequest(broker_id=node.node_id), 0)
    assert answer.error_code == E.INVALID_REQUEST
    assert "is running" in answer.error_message
    other = ask(node, UnregisterBrokerRequest(broker_id=99), 0)
    assert other.error_code == E.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({}, E.UNSUPPORTED_VERSION),
        ({"cluster_id": "cluster"}, E.UNSUPPORTED_VERSION),
        ({"voter_id": 1}, E.UNSUPPORTED_VERSION),
        ({"voter_id": -1}, E.INVALID_REQUEST),
        ({"voter_directory_id": bytes(16)}, E.INVALID_REQUEST),
        ({"voter_id": -1, "cluster_id": "another"}, E.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_a75_changes_of_voters_are_refused(wrong: dict[str, Any], error: ErrorCode) -> None:
    node = FakeNode()
    for version in (0, 1):
        added = ask(node, AddRaftVoterRequest(**VALID | wrong, listeners=[CONTROLLER]), version)
        assert added.error_code == error and added.error_message
    removed = ask(node, RemoveRaftVoterRequest(**VALID | wrong), 0)
    assert removed.error_code == error and removed.error_message


@pytest.mark.parametrize("names", [[], ["PLAINTEXT"], ["controller"]])
def test_a75_a_new_voter_without_a_controller_listener_is_refused(names: list[str]) -> None:
    listeners = [Listener(name=name, host="a", port=1) for name in names]
    answer = ask(FakeNode(), AddRaftVoterRequest(**VALID, listeners=listeners), 1)
    assert answer.error_code == E.INVALID_REQUEST
