"""The admin's call about streams groups, against a scripted broker."""

from __future__ import annotations

from odradek import Admin
from odradek_client.admin import StreamsTask
from odradek_client.errors import InvalidGroup
from odradek_protocol.common_structs import InternalTopicInfo, StreamsTaskIds
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.streams_group_describe import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTasks,
    DescribedTopology,
    StreamsGroupDescribeResponse,
)
from scripted_broker import ScriptedBroker


def _group(topology: DescribedTopology | None) -> DescribedStreamsGroup:
    member = DescribedStreamsMember(
        member_id="m",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        topology_epoch=1,
        process_id="p",
        assignment=DescribedTasks(
            active_tasks=[StreamsTaskIds(subtopology_id="0", partitions=[2, 1])],
            standby_tasks=[StreamsTaskIds(subtopology_id="1", partitions=[0])],
        ),
        target_assignment=DescribedTasks(
            active_tasks=[StreamsTaskIds(subtopology_id="0", partitions=[1])],
            warmup_tasks=[StreamsTaskIds(subtopology_id="0", partitions=[3])],
        ),
    )
    return DescribedStreamsGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        topology=topology,
        members=[member],
    )


async def test_a_streams_group_is_described() -> None:
    subtopology = DescribedSubtopology(
        subtopology_id="0",
        source_topics=["b", "a"],
        repartition_sink_topics=["sink"],
        state_changelog_topics=[InternalTopicInfo(name="log", partitions=3, replication_factor=1)],
        repartition_source_topics=[
            InternalTopicInfo(name="again", partitions=3, replication_factor=1)
        ],
    )
    async with ScriptedBroker(topics={"t": 2}) as broker:
        broker.always(
            ApiKey.STREAMS_GROUP_DESCRIBE,
            lambda *_: StreamsGroupDescribeResponse(
                groups=[_group(DescribedTopology(epoch=1, subtopologies=[subtopology]))]
            ),
        )
        async with Admin(bootstrap_servers=broker.address) as admin:
            found = (await admin.describe_streams_groups("g"))["g"]
    assert (found.state, found.epoch, found.assignment_epoch, found.topology_epoch) == (
        "Reconciling",
        5,
        4,
        1,
    )
    (described,) = found.subtopologies
    assert (described.sources, described.repartition_sinks) == (["a", "b"], ["sink"])
    assert (described.changelogs, described.repartition_sources) == (["log"], ["again"])
    (member,) = found.members
    assert (member.client_id, member.process_id, member.epoch) == ("c", "p", 4)
    assert member.tasks.active == [StreamsTask("0", 1), StreamsTask("0", 2)]
    assert member.tasks.standby == [StreamsTask("1", 0)]
    assert (member.target.active, member.target.warmup) == (
        [StreamsTask("0", 1)],
        [StreamsTask("0", 3)],
    )


async def test_a_streams_group_without_topology_is_described_and_a_missing_one_fails() -> None:
    gone = DescribedStreamsGroup(group_id="x", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    async with ScriptedBroker(topics={"t": 2}) as broker:
        broker.always(
            ApiKey.STREAMS_GROUP_DESCRIBE,
            lambda *_: StreamsGroupDescribeResponse(groups=[_group(None), gone]),
        )
        async with Admin(bootstrap_servers=broker.address) as admin:
            found = await admin.describe_streams_groups(["g", "x"], raise_errors=False)
    assert (found["g"].topology_epoch, found["g"].subtopologies) == (None, [])
    assert isinstance(found.errors["x"], InvalidGroup)
