"""RemoveRaftVoter (key 81): refused, because the voters of the metadata quorum cannot change
(A-75)."""

from __future__ import annotations

from odradek_broker.handlers._parts import ClusterParts
from odradek_broker.handlers._voters import refusal
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_protocol.schemas.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)


def handle(
    node: ClusterParts, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Refuse the request: an invalid request with its error, a valid one with
    UNSUPPORTED_VERSION."""
    allowed = node.authorizer.allows(context, Operation.ALTER, CLUSTER)
    error, text = refusal(node, allowed, request)
    return RemoveRaftVoterResponse(error_code=error, error_message=text)
