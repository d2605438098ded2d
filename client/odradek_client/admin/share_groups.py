"""The calls of the admin client about share groups and their start offsets (KIP-932).

`list_groups(types=["share"])` lists share groups, and `delete_groups` deletes those without
members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek_client.admin.groups import (
    GroupDescription,
    group_error,
    group_outcomes,
    modern_description,
)
from odradek_client.admin.requests import AdminPart, partition_error
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import OdradekError, UnknownTopicOrPartition, error_for
from odradek_client.structs import TopicPartition, group_by_topic, numbers_by_topic
from odradek_protocol.constants import GROUP_COORDINATOR
from odradek_protocol.schemas.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from odradek_protocol.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from odradek_protocol.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from odradek_protocol.schemas.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

_SHARE = "share"


@dataclass(frozen=True)
class ShareGroupOffset:
    """A partition of a share group. `start_offset`: the first offset whose record is not finished.
    `lag`: the number of unfinished records, None if the broker does not report it. `leader_epoch`:
    -1 if unknown."""

    start_offset: int
    leader_epoch: int = -1
    lag: int | None = None


class ShareGroupAdmin(AdminPart):
    """The calls about share groups."""

    async def describe_share_groups(
        self, group_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, GroupDescription]:
        """State, members and assignments of share groups, by name. A partition may be assigned to
        several members.

        Raises InvalidGroup for a group that does not exist or is no share group,
        GroupAuthorizationFailed, UnsupportedByBroker.
        """

        async def ask(node_id: int, names: list[str]) -> Outcomes[str, GroupDescription]:
            request = ShareGroupDescribeRequest(group_ids=names)
            response: ShareGroupDescribeResponse = await self.network.send(node_id, request)
            return group_outcomes(
                self.requests,
                response.groups,
                lambda answer: modern_description(node_id, answer, _SHARE),
            )

        return await self.requests.for_each_coordinated(
            group_ids, GROUP_COORDINATOR, ask, raise_errors
        )

    async def list_share_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, ShareGroupOffset | None]:
        """The start offsets of a share group: all of them, or those of `partitions`. The result for
        a partition that the group does not read yet is None.

        Raises InvalidGroup if the group does not exist, GroupAuthorizationFailed,
        TopicAuthorizationFailed, UnsupportedByBroker.
        """
        wanted = None if partitions is None else [TopicPartition(*each) for each in partitions]
        topics = None
        if wanted is not None:
            topics = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(wanted).items()
            ]
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)]
        )

        async def ask() -> dict[TopicPartition, ShareGroupOffset | None]:
            response: DescribeShareGroupOffsetsResponse = await self.requests.to_coordinator(
                group_id, GROUP_COORDINATOR, request
            )
            found: dict[TopicPartition, ShareGroupOffset | None] = dict.fromkeys(wanted or ())
            for group in response.groups:
                if group.error_code:
                    raise self._refusal(group_id, group.error_code, group.error_message)
                found |= self._offsets(group_id, group)
            return dict(sorted(found.items()))

        return await self.requests.retrying(ask)

    def _offsets(
        self, group_id: str, group: DescribeShareGroupOffsetsResponseGroup
    ) -> dict[TopicPartition, ShareGroupOffset | None]:
        found: dict[TopicPartition, ShareGroupOffset | None] = {}
        for topic in group.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic_name, each.partition_index)
                if each.error_code:
                    raise group_error(self.requests, group_id, each.error_code, tp)
                found[tp] = None
                if each.start_offset >= 0:
                    lag = each.lag if each.lag >= 0 else None
                    found[tp] = ShareGroupOffset(each.start_offset, each.leader_epoch, lag)
        return found

    def _refusal(self, group_id: str, code: int, message: str | None) -> OdradekError:
        """The error for a group. If the code means that the coordinator has moved, the coordinator
        is looked up again before the next request."""
        group_error(self.requests, group_id, code)
        return error_for(code, message, about=f"group {group_id!r}")

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group; returns results by partition. The group's state
        of these partitions is deleted, including delivery counts.

        Raises InvalidGroup if the group has members or does not exist, UnknownTopicOrPartition,
        GroupAuthorizationFailed, TopicAuthorizationFailed.
        """
        wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}

        async def ask(asked: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            request = AlterShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic,
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(
                                partition_index=tp.partition, start_offset=wanted[tp]
                            )
                            for tp in some
                        ],
                    )
                    for topic, some in group_by_topic(asked).items()
                ],
            )
            response: AlterShareGroupOffsetsResponse = await self.requests.to_coordinator(
                group_id, GROUP_COORDINATOR, request
            )
            if response.error_code:
                error = self._refusal(group_id, response.error_code, response.error_message)
                return dict.fromkeys(asked, error)
            return {
                (tp := TopicPartition(topic.topic_name, each.partition_index)): partition_error(
                    tp, each.error_code, each.error_message
                )
                if each.error_code
                else None
                for topic in response.responses
                for each in topic.partitions
            }

        return await self.requests.for_each(wanted, ask, raise_errors, partition_of=lambda tp: tp)

    async def delete_share_group_offsets(
        self, group_id: str, topics: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete the state of a share group for topics; returns results by topic.

        Raises InvalidGroup if the group has members or does not exist, UnknownTopicOrPartition,
        GroupAuthorizationFailed, TopicAuthorizationFailed.
        """
        wanted = [topics] if isinstance(topics, str) else list(topics)

        async def ask(asked: list[str]) -> Outcomes[str, None]:
            request = DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in asked],
            )
            response: DeleteShareGroupOffsetsResponse = await self.requests.to_coordinator(
                group_id, GROUP_COORDINATOR, request
            )
            if response.error_code:
                error = self._refusal(group_id, response.error_code, response.error_message)
                return dict.fromkeys(asked, error)
            return {
                topic.topic_name: error_for(
                    topic.error_code, topic.error_message, about=f"topic {topic.topic_name!r}"
                )
                if topic.error_code
                else None
                for topic in response.responses
            }

        return await self.requests.for_each(
            wanted, ask, raise_errors, final=(UnknownTopicOrPartition,)
        )
