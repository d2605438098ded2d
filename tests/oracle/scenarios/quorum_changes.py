"""Changes of a cluster's members: UnregisterBroker, AddRaftVoter, RemoveRaftVoter."""

from __future__ import annotations

from typing import Any

from tests.oracle.script import Ask, Receive, Send, scenarios_of

_DIRECTORY_ID = b"\2" * 16


def _unregister(broker_id: int) -> Ask:
    return Ask("UnregisterBroker", {"broker_id": broker_id})


def _add(voter_id: int = 2, cluster_id: str | None = None, **more: Any) -> Ask:
    body = {
        "cluster_id": cluster_id,
        "timeout_ms": 1_000,
        "voter_id": voter_id,
        "voter_directory_id": _DIRECTORY_ID,
        "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9093}],
    }
    return Ask("AddRaftVoter", body | more)


def _remove(voter_id: int = 2, cluster_id: str | None = None, **more: Any) -> Ask:
    body = {
        "cluster_id": cluster_id,
        "voter_id": voter_id,
        "voter_directory_id": _DIRECTORY_ID,
    }
    return Ask("RemoveRaftVoter", body | more)


_KNOWN = Ask("DescribeCluster", {}, version=0, quiet=True, save={"cluster": "cluster_id"})

SCENARIOS = scenarios_of(
    {
        ("unregister-no-broker", "UnregisterBroker"): [
            _unregister(each) for each in (99, 0, -1, (1 << 31) - 1, -(1 << 31))
        ],
        ("unregister-pipelined", "UnregisterBroker"): [
            Send(_unregister(99)),
            Send(_unregister(98)),
            Receive(),
            Receive(),
        ],
        ("add-voter", "AddRaftVoter"): [
            _KNOWN,
            _add(),
            _add(cluster_id="$cluster"),
            _add(cluster_id="no such cluster"),
            _add(cluster_id=""),
            _add(1),
            _add(-1),
            _add(-(1 << 31)),
            _add(voter_directory_id=bytes(16)),
            _add(listeners=[]),
            _add(listeners=[{"name": "NONE", "host": "", "port": 0}]),
            _add(listeners=[{"name": "CONTROLLER", "host": "a", "port": 1}] * 2),
            _add(timeout_ms=-1),
            _add(timeout_ms=0),
        ],
        ("add-voter-without-waiting", "AddRaftVoter", "1"): [_add(ack_when_committed=False)],
        ("remove-voter", "RemoveRaftVoter"): [
            _KNOWN,
            _remove(),
            _remove(cluster_id="$cluster"),
            _remove(cluster_id="no such cluster"),
            _remove(cluster_id=""),
            _remove(1),
            _remove(-1),
            _remove(-(1 << 31)),
            _remove(voter_directory_id=bytes(16)),
        ],
        ("voters-pipelined", "RemoveRaftVoter"): [
            Send(_remove()),
            Send(_add()),
            Send(_remove(cluster_id="no such cluster")),
            *[Receive()] * 3,
        ],
    }
)
