"""The refusals of AddRaftVoter and RemoveRaftVoter: the voters of the metadata quorum cannot change
(A-75)."""

from __future__ import annotations

from odradek_broker.handlers._parts import ClusterParts
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.add_raft_voter import AddRaftVoterRequest
from odradek_protocol.schemas.remove_raft_voter import RemoveRaftVoterRequest

#: The listener that every controller has.
_CONTROLLER_LISTENER = "CONTROLLER"


def refusal(
    node: ClusterParts, allowed: bool, request: AddRaftVoterRequest | RemoveRaftVoterRequest
) -> tuple[ErrorCode, str]:
    """The error and the message with which a request is refused. `allowed`: true if the client may
    alter the cluster."""
    if not allowed:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denial(Operation.ALTER, CLUSTER)
    if request.cluster_id is not None and request.cluster_id != node.cluster_id:
        return (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"The id of this cluster is {node.cluster_id!r}, not {request.cluster_id!r}.",
        )
    if request.voter_id < 0:
        return ErrorCode.INVALID_REQUEST, f"The id {request.voter_id} of a voter is negative."
    if request.voter_directory_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST, "The id of the voter's directory is missing."
    if isinstance(request, AddRaftVoterRequest) and not any(
        listener.name == _CONTROLLER_LISTENER for listener in request.listeners
    ):
        text = f"The voter has no listener of the name {_CONTROLLER_LISTENER}."
        return ErrorCode.INVALID_REQUEST, text
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"The metadata quorum is node {node.node_id} alone, and its voters cannot change.",
    )
