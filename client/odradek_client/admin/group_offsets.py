"""The calls of the admin client about committed offsets of groups: list, alter and delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_client.admin.groups import group_error
from odradek_client.admin.requests import AdminPart, require_version
from odradek_client.admin.results import Outcomes, Results
from odradek_client.consumer.group.offset_requests import (
    OFFSET_COMMIT_NEWEST,
    OFFSET_FETCH_NEWEST,
    offset_commit_request,
    offset_fetch_request,
)
from odradek_client.errors import OdradekError, UnknownTopicOrPartition
from odradek_client.structs import OffsetAndMetadata, TopicPartition, group_by_topic
from odradek_protocol.common_structs import TopicErrors
from odradek_protocol.constants import GROUP_COORDINATOR, NO_GENERATION
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.offset_commit import OffsetCommitResponse, OffsetCommitResponseTopic
from odradek_protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek_protocol.schemas.offset_fetch import (
    ALL_TOPICS_SINCE,
    GROUPS_SINCE,
    REQUIRE_STABLE_SINCE,
    TOPIC_IDS_SINCE,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

#: The committed offset of each partition in a group; None for a partition without a committed
#: offset.
CommittedOffsets = dict[TopicPartition, OffsetAndMetadata | None]


class GroupOffsetAdmin(AdminPart):
    """The calls about committed offsets."""

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
    ) -> CommittedOffsets:
        """The committed offsets of a group: all of them, or those of `partitions`. The result for a
        partition without a committed offset is None.

        A group that does not exist has no offsets. With `require_stable` the call waits for the end
        of open transactions with offsets. Raises GroupAuthorizationFailed,
        TopicAuthorizationFailed, UnsupportedByBroker.
        """
        wanted = None if partitions is None else [TopicPartition(*each) for each in partitions]

        async def ask() -> CommittedOffsets:
            node_id = await self.network.find_coordinator(group_id, GROUP_COORDINATOR)
            version = await self.network.version_for(
                node_id, ApiKey.OFFSET_FETCH, max_version=OFFSET_FETCH_NEWEST
            )
            stable = require_stable and version >= REQUIRE_STABLE_SINCE
            request = offset_fetch_request(group_id, wanted or [], require_stable=stable)
            if wanted is None:
                require_version(version, ALL_TOPICS_SINCE, "all offsets of a group")
                request.topics = None
            response: OffsetFetchResponse = await self.requests.to_coordinator(
                group_id, GROUP_COORDINATOR, request, max_version=version
            )
            if response.error_code:
                raise group_error(self.requests, group_id, response.error_code)
            return self._committed(group_id, response.topics)

        return await self.requests.retrying(ask)

    async def list_offsets_of_groups(
        self,
        groups: Mapping[str, Iterable[tuple[str, int]] | None],
        *,
        raise_errors: bool = True,
    ) -> Results[str, CommittedOffsets]:
        """The committed offsets of several groups, of the requested partitions in each (None: all).
        Returns results by group.

        A coordinator gets one request for all its groups; a coordinator before Kafka 3.0 gets one
        request for each group. Raises GroupAuthorizationFailed, TopicAuthorizationFailed.
        """
        wanted = {
            group: None if partitions is None else [TopicPartition(*each) for each in partitions]
            for group, partitions in groups.items()
        }

        async def ask(node_id: int, names: list[str]) -> Outcomes[str, CommittedOffsets]:
            version = await self.network.version_for(
                node_id, ApiKey.OFFSET_FETCH, max_version=TOPIC_IDS_SINCE - 1
            )
            if version < GROUPS_SINCE:
                return {name: await self._offsets_or_error(name, wanted[name]) for name in names}
            request = OffsetFetchRequest(groups=[_fetched(name, wanted[name]) for name in names])
            response: OffsetFetchResponse = await self.network.send(
                node_id, request, max_version=version
            )
            outcomes: Outcomes[str, CommittedOffsets] = {}
            for group in response.groups:
                if group.error_code:
                    outcomes[group.group_id] = group_error(
                        self.requests, group.group_id, group.error_code
                    )
                    continue
                try:
                    outcomes[group.group_id] = self._committed(group.group_id, group.topics)
                except OdradekError as error:
                    outcomes[group.group_id] = error
            return outcomes

        return await self.requests.for_each_coordinated(
            wanted, GROUP_COORDINATOR, ask, raise_errors
        )

    async def _offsets_or_error(
        self, group_id: str, partitions: list[TopicPartition] | None
    ) -> CommittedOffsets | OdradekError:
        try:
            return await self.list_group_offsets(group_id, partitions)
        except OdradekError as error:
            return error

    def _committed(
        self,
        group_id: str,
        topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics],
    ) -> CommittedOffsets:
        found: CommittedOffsets = {}
        for topic in topics:
            for answer in topic.partitions:
                tp = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    raise group_error(self.requests, group_id, answer.error_code, tp)
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
        """Set the committed offsets of a group; returns results by partition. A group that does not
        exist is created.

        Raises InvalidGroup if the group has members, because they would not notice the change and
        would overwrite the offsets. Also raises UnknownTopicOrPartition, GroupAuthorizationFailed,
        TopicAuthorizationFailed.
        """
        wanted = {
            TopicPartition(*tp): OffsetAndMetadata(given) if isinstance(given, int) else given
            for tp, given in offsets.items()
        }

        async def ask(asked: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            request = offset_commit_request(
                group_id,
                {tp: wanted[tp] for tp in asked},
                generation=NO_GENERATION,
                member_id="",
                group_instance_id=None,
            )
            response: OffsetCommitResponse = await self.requests.to_coordinator(
                group_id, GROUP_COORDINATOR, request, max_version=OFFSET_COMMIT_NEWEST
            )
            return self._by_partition(group_id, response.topics)

        return await self.requests.for_each(wanted, ask, raise_errors, partition_of=lambda tp: tp)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, raise_errors: bool = True
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets of a group; returns results by partition.

        Raises InvalidGroup if the group does not exist or is subscribed to the topic,
        UnknownTopicOrPartition, GroupAuthorizationFailed, TopicAuthorizationFailed.
        """
        wanted = [TopicPartition(*each) for each in partitions]

        async def ask(asked: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
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
            response: OffsetDeleteResponse = await self.requests.to_coordinator(
                group_id, GROUP_COORDINATOR, request
            )
            if response.error_code:
                error = group_error(self.requests, group_id, response.error_code)
                return dict.fromkeys(asked, error)
            return self._by_partition(group_id, response.topics)

        return await self.requests.for_each(
            wanted, ask, raise_errors, final=(UnknownTopicOrPartition,)
        )

    def _by_partition(
        self,
        group_id: str,
        topics: Iterable[OffsetCommitResponseTopic | TopicErrors],
    ) -> Outcomes[TopicPartition, None]:
        return {
            (tp := TopicPartition(topic.name, answer.partition_index)): group_error(
                self.requests, group_id, answer.error_code, tp
            )
            if answer.error_code
            else None
            for topic in topics
            for answer in topic.partitions
        }


def _fetched(group_id: str, partitions: list[TopicPartition] | None) -> OffsetFetchRequestGroup:
    """The entry of one group in an OffsetFetch request. `partitions` None: all partitions."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(
                name=topic, partition_indexes=[each.partition for each in some]
            )
            for topic, some in group_by_topic(partitions).items()
        ]
    return OffsetFetchRequestGroup(group_id=group_id, topics=topics)
