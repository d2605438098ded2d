"""The calls of the admin client about groups: list, describe and delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from odradek_client.admin.requests import AdminPart, AdminRequests, require_version
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import (
    OdradekError,
    Refused,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.structs import TopicPartition
from odradek_protocol.common_structs import DescribedAssignment
from odradek_protocol.constants import GROUP_COORDINATOR
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from odradek_protocol.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek_protocol.schemas.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek_protocol.schemas.list_groups import (
    STATES_SINCE,
    TYPES_SINCE,
    ListGroupsRequest,
    ListGroupsResponse,
)
from odradek_protocol.schemas.share_group_describe import (
    DescribedShareGroup,
    DescribedShareMember,
)
from odradek_protocol.stored.assignment import decode_assignment
from odradek_protocol.stored.subscription import PROTOCOL_TYPE, decode_subscription

#: All states of groups, in the classic and in the consumer protocol.
GROUP_STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Reconciling",
    "Empty",
    "Dead",
)
_CLASSIC, _CONSUMER = "classic", "consumer"
GROUP_TYPES = (_CLASSIC, _CONSUMER, "share", "streams")
_DEAD = "Dead"
_NO_SUCH_CONSUMER_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True)
class GroupListing:
    """A group in the list of its coordinator. Old brokers report neither state nor type: `state` is
    then None, and `type` "classic". `protocol_type` is empty if the group never had a member.
    `coordinator` is a node id."""

    group_id: str
    protocol_type: str
    state: str | None
    type: str
    coordinator: int


@dataclass(frozen=True)
class GroupMember:
    """A member of a group. `host`: the client's address, in the form that the broker uses. `topics`
    and `assignment` are decoded only for consumers, and are empty until the group is stable.
    `epoch`: the member epoch in a consumer group (KIP-848), None in a classic group. The member
    owns `assignment`; if its epoch is lower than the group's, it has not reached its target yet.
    `target`: the partitions of its target assignment, None if the group has no targets."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: list[str] = field(default_factory=list)
    assignment: list[TopicPartition] = field(default_factory=list)
    epoch: int | None = None
    target: list[TopicPartition] | None = None


@dataclass(frozen=True)
class GroupDescription:
    """A group in detail. `type`: the group's protocol. `assignor`: the assignor of all members,
    empty until the group is stable. `epoch`: the group epoch of a consumer group (KIP-848), None
    for a classic group; `assignment_epoch`: the epoch of the members' targets. `coordinator` is a
    node id."""

    group_id: str
    coordinator: int
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: list[GroupMember]
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_active(self) -> bool:
        """True if the group has members, in which case `alter_group_offsets` fails."""
        return self.state not in ("Empty", _DEAD)


class GroupAdmin(AdminPart):
    """The calls about groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all coordinators, by name, that match each given filter.

        `states` are Kafka's names such as "Stable"; `types` are "classic", "consumer", "share" and
        "streams"; both in upper or lower case. Raises Refused for an unknown name. Raises
        UnsupportedByBroker for states with brokers before Kafka 2.6, and for types with brokers
        before 3.8.
        """
        wanted_states = [_known(state, GROUP_STATES, "group state") for state in states]
        wanted_types = [_known(kind, GROUP_TYPES, "group type") for kind in types]

        async def ask(node_id: int) -> list[GroupListing]:
            version = await self.network.version_for(node_id, ApiKey.LIST_GROUPS)
            require_version(version, STATES_SINCE if wanted_states else 0, "state")
            require_version(version, TYPES_SINCE if wanted_types else 0, "type")
            request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
            response: ListGroupsResponse = await self.network.send(
                node_id, request, max_version=version
            )
            if response.error_code:
                raise error_for(response.error_code, about=f"groups of node {node_id}")
            return [
                GroupListing(
                    each.group_id,
                    each.protocol_type,
                    each.group_state if version >= STATES_SINCE else None,
                    each.group_type.lower() or _CLASSIC,
                    node_id,
                )
                for each in response.groups
            ]

        found = await self.requests.of_every_broker(ask)
        return sorted(found, key=lambda each: each.group_id)

    async def describe_groups(
        self, group_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, GroupDescription]:
        """State and members of groups, by name.

        Raises InvalidGroup for a group that does not exist, GroupAuthorizationFailed.
        """

        async def ask(node_id: int, names: list[str]) -> Outcomes[str, GroupDescription]:
            request = DescribeGroupsRequest(groups=names)
            response: DescribeGroupsResponse = await self.network.send(node_id, request)
            outcomes: Outcomes[str, GroupDescription] = {}
            for answer in response.groups:
                # Before version 6 of DescribeGroups, a group that does not exist is described as
                # Dead (KIP-1043).
                code = answer.error_code or (
                    ErrorCode.GROUP_ID_NOT_FOUND if answer.group_state == _DEAD else 0
                )
                outcomes[answer.group_id] = (
                    group_error(self.requests, answer.group_id, code)
                    if code
                    else _classic_description(node_id, answer)
                )
            missing = [name for name in names if _is_missing(outcomes.get(name))]
            return outcomes | await self._describe_consumer_groups(node_id, missing)

        return await self.requests.for_each_coordinated(
            group_ids, GROUP_COORDINATOR, ask, raise_errors
        )

    async def _describe_consumer_groups(
        self, node_id: int, names: list[str]
    ) -> Outcomes[str, GroupDescription]:
        """Describe consumer groups (KIP-848). DescribeGroups does not support these groups."""
        if not names:
            return {}
        request = ConsumerGroupDescribeRequest(group_ids=names)
        try:
            response: ConsumerGroupDescribeResponse = await self.network.send(node_id, request)
        except UnsupportedByBroker:
            return {}
        # A broker with the consumer protocol disabled has no consumer groups.
        known = [each for each in response.groups if each.error_code not in _NO_SUCH_CONSUMER_GROUP]
        return group_outcomes(
            self.requests, known, lambda answer: modern_description(node_id, answer, _CONSUMER)
        )

    async def delete_groups(
        self, group_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete groups without members, and their offsets; returns results by name.

        Raises InvalidGroup for a group that has members or does not exist,
        GroupAuthorizationFailed.
        """

        async def ask(node_id: int, names: list[str]) -> Outcomes[str, None]:
            request = DeleteGroupsRequest(groups_names=names)
            response: DeleteGroupsResponse = await self.network.send(node_id, request)
            return group_outcomes(self.requests, response.results, lambda _: None)

        return await self.requests.for_each_coordinated(
            group_ids, GROUP_COORDINATOR, ask, raise_errors
        )


class GroupAnswer(Protocol):
    """A coordinator's answer about one group."""

    group_id: str
    error_code: int


A = TypeVar("A", bound=GroupAnswer)
T = TypeVar("T")


def group_outcomes(
    requests: AdminRequests, answers: Iterable[A], result: Callable[[A], T]
) -> Outcomes[str, T]:
    """The results or errors by group, from the answers about the groups."""
    return {
        answer.group_id: group_error(requests, answer.group_id, answer.error_code)
        if answer.error_code
        else result(answer)
        for answer in answers
    }


def group_error(
    requests: AdminRequests, group_id: str, code: int, partition: TopicPartition | None = None
) -> OdradekError:
    """The error for a coordinator's code about a group, or about a partition of its offsets."""
    about = f"group {group_id!r}"
    if partition is not None:
        about += f", {partition.topic}-{partition.partition}"
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        # A group with members refuses the commit of an administrator with this error.
        code = ErrorCode.NON_EMPTY_GROUP
    return requests.coordinator_error(code, group_id, GROUP_COORDINATOR, about)


def _known(name: str, names: Iterable[str], what: str) -> str:
    """The name in Kafka's spelling, because older brokers distinguish upper and lower case. Refused
    for an unknown name."""
    found = next((each for each in names if each.lower() == name.lower()), None)
    if found is None:
        raise Refused(f"there is no {what} {name!r}; there are {', '.join(names)}")
    return found


def _is_missing(outcome: GroupDescription | OdradekError | None) -> bool:
    return isinstance(outcome, OdradekError) and outcome.code is ErrorCode.GROUP_ID_NOT_FOUND


def _classic_description(node_id: int, answer: DescribedGroup) -> GroupDescription:
    consumers = answer.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group_id=answer.group_id,
        coordinator=node_id,
        type=_CLASSIC,
        state=answer.group_state,
        protocol_type=answer.protocol_type,
        assignor=answer.protocol_data,
        members=[_member(member, consumers) for member in answer.members],
    )


def _member(answer: DescribedGroupMember, is_consumer: bool) -> GroupMember:
    """The description of a member. Only the data of consumers is decoded; members such as Connect's
    workers use other formats."""
    topics: list[str] = []
    assignment: list[TopicPartition] = []
    if is_consumer and answer.member_metadata:
        try:
            topics = sorted(decode_subscription(answer.member_metadata).topics)
            assignment = sorted(
                TopicPartition(part.topic, index)
                for part in decode_assignment(answer.member_assignment).assigned_partitions
                for index in part.partitions
            )
        except DecodeError:
            topics, assignment = [], []
    return GroupMember(
        member_id=answer.member_id,
        instance_id=answer.group_instance_id,
        client_id=answer.client_id,
        host=answer.client_host,
        topics=topics,
        assignment=assignment,
    )


def modern_description(
    node_id: int, answer: DescribedConsumerGroup | DescribedShareGroup, group_type: str
) -> GroupDescription:
    """The description of a consumer group or share group. `group_type` is also its protocol
    type."""
    return GroupDescription(
        group_id=answer.group_id,
        coordinator=node_id,
        type=group_type,
        state=answer.group_state,
        protocol_type=group_type,
        assignor=answer.assignor_name,
        members=[_modern_member(member) for member in answer.members],
        epoch=answer.group_epoch,
        assignment_epoch=answer.assignment_epoch,
    )


def _modern_member(answer: DescribedConsumerMember | DescribedShareMember) -> GroupMember:
    member = GroupMember(
        member_id=answer.member_id,
        instance_id=None,
        client_id=answer.client_id,
        host=answer.client_host,
        topics=sorted(answer.subscribed_topic_names),
        assignment=_partitions(answer.assignment),
        epoch=answer.member_epoch,
    )
    if isinstance(answer, DescribedShareMember):
        return member
    target = _partitions(answer.target_assignment)
    return replace(member, instance_id=answer.instance_id, target=target)


def _partitions(assignment: DescribedAssignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(part.topic_name, index)
        for part in assignment.topic_partitions
        for index in part.partitions
    )
