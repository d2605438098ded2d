"""A scripted broker that serves a share group from the model `ShareLeader`."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek_protocol.common_structs import GroupAssignment, PartitionsOfTopicId
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatResponse
from scripted_broker import ScriptedBroker, topic_id
from share_leader import Partition, ShareLeader


class ShareBroker(ScriptedBroker):
    """A broker with one topic that a share group reads. Records that a producer sends to the topic
    are also delivered to the group."""

    def __init__(self, topic: str = "t", partitions: int = 2) -> None:
        super().__init__(topics={topic: partitions})
        self.topic, self.count = topic, partitions
        self.leader = ShareLeader()
        self.renewed_often = asyncio.Event()
        for number in range(partitions):
            self.leader.partitions[(topic_id(topic), number)] = Partition()
        self.always(ApiKey.SHARE_GROUP_HEARTBEAT, self.heartbeat)
        self.always(ApiKey.SHARE_FETCH, self.fetch)
        self.always(ApiKey.SHARE_ACKNOWLEDGE, self.acknowledge)

    def heartbeat(self, request: Any, version: int) -> Any:
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=max(request.member_epoch, 0) + 1 if request.member_epoch >= 0 else -1,
            heartbeat_interval_ms=5_000,
            assignment=GroupAssignment(
                topic_partitions=[
                    PartitionsOfTopicId(
                        topic_id=topic_id(self.topic), partitions=list(range(self.count))
                    )
                ]
            ),
        )

    def now(self) -> None:
        self.leader.now_ms = asyncio.get_running_loop().time() * 1000

    async def fetch(self, request: Any, version: int) -> Any:
        self.now()
        self._take_produced()
        answer = self.leader.answer(request)
        if not any(p.acquired_records for t in answer.responses for p in t.partitions):
            await asyncio.sleep(min(request.max_wait_ms, 50) / 1000)
        return answer

    def acknowledge(self, request: Any, version: int) -> Any:
        self.now()
        if len(self.received(ApiKey.SHARE_ACKNOWLEDGE)) >= 5:
            self.renewed_often.set()
        return self.leader.answer(request)

    def _take_produced(self) -> None:
        for number in range(self.count):
            produced = self.log(self.topic, number).values
            if produced:
                self.append(*produced, partition=number)
                produced.clear()

    def append(self, *values: bytes | None, partition: int = 0) -> None:
        self.leader.partitions[(topic_id(self.topic), partition)].append(list(values))

    def states(self, partition: int = 0) -> list[str]:
        return [r.state for r in self.leader.partitions[(topic_id(self.topic), partition)].records]
