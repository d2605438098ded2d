"""Consumer groups as an administrator sees them: who is in them, where they stand, where they should.

A part of `Admin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek_client.admin_base import AdminBase
from odradek_client.admin_results import Results, settle
from odradek_client.consumer.offsets import (
    OFFSET_COMMIT_NEWEST,
    OFFSET_FETCH_NEWEST,
    OFFSET_FETCH_STABLE,
    group_by_topic,
    offset_commit_request,
    offset_fetch_request,
)
from odradek_client.consumer.types import OffsetAndMetadata, TopicPartition
from odradek_client.errors import (
    OdradekError,
    Refused,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.producer.transaction_requests import GROUP_COORDINATOR
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek_protocol.schemas.delete_groups import DeleteGroupsRequest
from odradek_protocol.schemas.describe_groups import DescribeGroupsRequest
from odradek_protocol.schemas.list_groups import ListGroupsRequest
from odradek_protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek_protocol.stored.assignment import decode_assignment
from odradek_protocol.stored.subscription import PROTOCOL_TYPE, decode_subscription

#: Every state a group of either protocol can be in.
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
_STATES_SINCE = 4
_TYPES_SINCE = 5
_ALL_TOPICS_SINCE = 2
_NO_GENERATION = -1
_DEAD = "Dead"
_NO_SUCH_CONSUMER_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True)
class GroupListing:
    """One group. `state` is None where the broker is too old to say, and `type` "classic";
    `protocol_type` is empty if nobody ever joined. `coordinator` is a node id."""

    group_id: str
    protocol_type: str
    state: str | None
    type: str
    coordinator: int


@dataclass(frozen=True)
class GroupMember:
    """One member. `host` as the broker prints it; the topics and partitions are those of a consumer,
    and empty until the group is stable. `epoch`: of a member of a consumer group (KIP-848), which
    has what `assignment` says and is on its way to what the group's epoch gives it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: list[str] = field(default_factory=list)
    assignment: list[TopicPartition] = field(default_factory=list)
    epoch: int | None = None


@dataclass(frozen=True)
class GroupDescription:
    """One group in detail, of either protocol (`type`). `assignor`: what its members agreed on, empty
    until the group is stable. `epoch`: of a consumer group (KIP-848). `coordinator` is a node id."""

    group_id: str
    coordinator: int
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: list[GroupMember]
    epoch: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether it has members, so that nobody else may move its offsets."""
        return self.state not in ("Empty", _DEAD)


class GroupAdmin(AdminBase):
    """The calls about consumer groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all coordinators, by name; each filter given must fit.

        `states` are Kafka's names such as "Stable", `types` "classic" and "consumer", in upper or
        lower case. Raises Refused for a name that does not exist, UnsupportedByBroker (a filter, and
        a broker too old for it: states came with Kafka 2.6, types with 3.8).
        """
        wanted_states = [_known(state, GROUP_STATES, "group state") for state in states]
        wanted_types = [_known(kind, GROUP_TYPES, "group type") for kind in types]

        async def ask() -> list[GroupListing]:
            # Anew for each try: a node that is gone must not be asked for ever.
            await self._network.refresh_metadata(self.config.default_api_timeout_ms)
            found = []
            for node_id in list(self._network.cluster.brokers):
                version = await self._network.version_for(node_id, ApiKey.LIST_GROUPS)
                _require(version, _STATES_SINCE if wanted_states else 0, "state")
                _require(version, _TYPES_SINCE if wanted_types else 0, "type")
                request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
                response = await self._network.send(node_id, request, max_version=version)
                if response.error_code:
                    raise error_for(response.error_code, about=f"groups of node {node_id}")
                found += [
                    GroupListing(
                        each.group_id,
                        each.protocol_type,
                        each.group_state if version >= _STATES_SINCE else None,
                        each.group_type.lower() or _CLASSIC,
                        node_id,
                    )
                    for each in response.groups
                ]
            return sorted(found, key=lambda each: each.group_id)

        return await self._retrying(ask)

    async def describe_groups(
        self, group_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, GroupDescription]:
        """State and members of groups, by name.

        Raises InvalidGroup for one that does not exist, GroupAuthorizationFailed.
        """
        ids = [group_ids] if isinstance(group_ids, str) else list(group_ids)
        results: Results[str, GroupDescription] = Results()

        async def ask(names: list[str]) -> dict[str, OdradekError]:
            homes, errors = await self._by_coordinator(names, GROUP_COORDINATOR)
            for node_id, some in homes.items():
                request = DescribeGroupsRequest(groups=some)
                response = await self._network.send(node_id, request)
                for answer in response.groups:
                    # Before version 6 a group that does not exist is just dead (KIP-1043).
                    code = answer.error_code or (
                        ErrorCode.GROUP_ID_NOT_FOUND if answer.group_state == _DEAD else 0
                    )
                    name = answer.group_id
                    if code:
                        errors[name] = self._group_error(name, code)
                    else:
                        results[name] = _described(node_id, answer)
                missing = [name for name in some if _is_missing(errors.get(name))]
                errors |= await self._describe_consumer_groups(node_id, missing, results)
                for name in missing:
                    if name in results:
                        del errors[name]
            return errors

        errors = await self._all(ids, ask)
        return settle(results, errors, raise_errors)

    async def _describe_consumer_groups(
        self, node_id: int, names: list[str], results: Results[str, GroupDescription]
    ) -> dict[str, OdradekError]:
        """To DescribeGroups a group of the new protocol (KIP-848) does not exist."""
        if not names:
            return {}
        request = ConsumerGroupDescribeRequest(group_ids=names)
        try:
            response = await self._network.send(node_id, request)
        except UnsupportedByBroker:
            return {}
        errors = {}
        for answer in response.groups:
            if not answer.error_code:
                results[answer.group_id] = _consumer_described(node_id, answer)
            # Where the protocol is switched off there is none of its groups either.
            elif answer.error_code not in _NO_SUCH_CONSUMER_GROUP:
                errors[answer.group_id] = self._group_error(answer.group_id, answer.error_code)
        return errors

    async def delete_groups(
        self, group_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete groups that have no members, and all that they have committed; by name.

        Raises InvalidGroup for one that has members or does not exist, GroupAuthorizationFailed.
        """
        ids = [group_ids] if isinstance(group_ids, str) else list(group_ids)
        results: Results[str, None] = Results()

        async def ask(names: list[str]) -> dict[str, OdradekError]:
            homes, errors = await self._by_coordinator(names, GROUP_COORDINATOR)
            for node_id, some in homes.items():
                response = await self._network.send(node_id, DeleteGroupsRequest(groups_names=some))
                for answer in response.results:
                    name = answer.group_id
                    if answer.error_code:
                        errors[name] = self._group_error(name, answer.error_code)
                    else:
                        results[name] = None
            return errors

        errors = await self._all(ids, ask)
        return settle(results, errors, raise_errors)

    # --- where groups stand -----------------------------------------------------------------------

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What a group has committed: everything, or for these partitions, None where nothing is.

        A group that does not exist has committed nothing. With `require_stable` offsets of open
        transactions are waited for. Raises GroupAuthorizationFailed, TopicAuthorizationFailed,
        UnsupportedByBroker.
        """
        wanted = None if partitions is None else [TopicPartition(*each) for each in partitions]

        async def ask() -> dict[TopicPartition, OffsetAndMetadata | None]:
            node_id = await self._network.find_coordinator(group_id, GROUP_COORDINATOR)
            version = await self._network.version_for(
                node_id, ApiKey.OFFSET_FETCH, max_version=OFFSET_FETCH_NEWEST
            )
            stable = require_stable and version >= OFFSET_FETCH_STABLE
            request = offset_fetch_request(group_id, wanted or [], require_stable=stable)
            if wanted is None:
                _require(version, _ALL_TOPICS_SINCE, "all offsets of a group")
                request.topics = None
            response = await self._to_coordinator(
                group_id, GROUP_COORDINATOR, request, max_version=version
            )
            if response.error_code:
                raise self._group_error(group_id, response.error_code)
            return self._committed(group_id, response)

        return await self._retrying(ask)

    def _committed(
        self, group_id: str, response: Any
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                tp = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    raise self._group_error(group_id, answer.error_code, tp)
                found[tp] = None
                if answer.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(
                        answer.committed_offset,
                        answer.metadata or "",
                        answer.committed_leader_epoch,
                    )
        return dict(sorted(found.items()))

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata],
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Have a group begin at these offsets, by partition; a group that does not exist is made.

        Raises InvalidGroup if it has members: they would not notice, and commit over it. Otherwise
        UnknownTopicOrPartition, GroupAuthorizationFailed, TopicAuthorizationFailed.
        """
        wanted = {
            TopicPartition(*tp): OffsetAndMetadata(given) if isinstance(given, int) else given
            for tp, given in offsets.items()
        }
        results: Results[TopicPartition, None] = Results()

        async def ask(asked: list[TopicPartition]) -> dict[TopicPartition, OdradekError]:
            request = offset_commit_request(
                group_id,
                {tp: wanted[tp] for tp in asked},
                generation=_NO_GENERATION,
                member_id="",
                group_instance_id=None,
            )
            response = await self._to_coordinator(
                group_id, GROUP_COORDINATOR, request, max_version=OFFSET_COMMIT_NEWEST
            )
            return self._by_partition(group_id, response.topics, results)

        errors = await self._all(list(wanted), ask, place_of=lambda tp: tp)
        return settle(results, errors, raise_errors)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, raise_errors: bool = True
    ) -> Results[TopicPartition, None]:
        """Delete what a group has committed for partitions; by partition.

        Raises InvalidGroup if the group does not exist or is subscribed to the topic,
        UnknownTopicOrPartition, GroupAuthorizationFailed, TopicAuthorizationFailed.
        """
        wanted = [TopicPartition(*each) for each in partitions]
        results: Results[TopicPartition, None] = Results()

        async def ask(asked: list[TopicPartition]) -> dict[TopicPartition, OdradekError]:
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=each.partition)
                            for each in some
                        ],
                    )
                    for topic, some in group_by_topic(asked).items()
                ],
            )
            response = await self._to_coordinator(group_id, GROUP_COORDINATOR, request)
            if response.error_code:
                return dict.fromkeys(asked, self._group_error(group_id, response.error_code))
            return self._by_partition(group_id, response.topics, results)

        errors = await self._all(wanted, ask, final=(UnknownTopicOrPartition,))
        return settle(results, errors, raise_errors)

    # --- answers ----------------------------------------------------------------------------------

    def _by_partition(
        self, group_id: str, topics: Iterable[Any], results: Results[TopicPartition, None]
    ) -> dict[TopicPartition, OdradekError]:
        errors: dict[TopicPartition, OdradekError] = {}
        for topic in topics:
            for answer in topic.partitions:
                tp = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    errors[tp] = self._group_error(group_id, answer.error_code, tp)
                else:
                    results[tp] = None
        return errors

    def _group_error(
        self, group_id: str, code: int, partition: TopicPartition | None = None
    ) -> OdradekError:
        about = f"group {group_id!r}"
        if partition is not None:
            about += f", {partition.topic}-{partition.partition}"
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            # What a group with members says to a commit from outside.
            code = ErrorCode.NON_EMPTY_GROUP
        return self._coordinator_error(code, group_id, GROUP_COORDINATOR, about)


def _known(name: str, names: Iterable[str], what: str) -> str:
    """As Kafka writes it: older brokers take no other case."""
    found = next((each for each in names if each.lower() == name.lower()), None)
    if found is None:
        raise Refused(f"there is no {what} {name!r}; there are {', '.join(names)}")
    return found


def _is_missing(error: OdradekError | None) -> bool:
    return error is not None and error.code is ErrorCode.GROUP_ID_NOT_FOUND


def _require(version: int, since: int, what: str) -> None:
    if version < since:
        raise UnsupportedByBroker(f"the broker is too old to be asked for {what}")


def _described(node_id: int, answer: Any) -> GroupDescription:
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


def _member(answer: Any, is_consumer: bool) -> GroupMember:
    """Of other members, such as Connect's workers, nobody but they can read what they said."""
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


def _consumer_described(node_id: int, answer: Any) -> GroupDescription:
    return GroupDescription(
        group_id=answer.group_id,
        coordinator=node_id,
        type=_CONSUMER,
        state=answer.group_state,
        protocol_type=PROTOCOL_TYPE,
        assignor=answer.assignor_name,
        members=[
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                topics=sorted(member.subscribed_topic_names),
                assignment=sorted(
                    TopicPartition(part.topic_name, index)
                    for part in member.assignment.topic_partitions
                    for index in part.partitions
                ),
                epoch=member.member_epoch,
            )
            for member in answer.members
        ],
        epoch=answer.group_epoch,
    )
