"""A share session: the partitions that a leader fetches for one member, and the epoch of the next
request (KIP-932).

A request with epoch 0 opens a session with all partitions, later requests have only the changes,
and epoch -1 closes the session. A broker adds every partition in a ShareFetch to the session, even
a partition that the request contains only for its acknowledgements. The broker would then acquire
records of this partition. So the same request removes the partition from the session again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from odradek_client.share.acknowledgements import TopicIdPartition, Types, to_batches
from odradek_protocol.common_structs import PartitionsOfTopicId
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchPartition,
    ShareFetchTopic,
)
from odradek_protocol.settings import INT32_MAX

OPEN_EPOCH = 0
CLOSE_EPOCH = -1


@dataclass(slots=True)
class SessionRequest:
    """The fields of a ShareFetch that depend on the session."""

    epoch: int
    topics: list[ShareFetchTopic] = field(default_factory=list)
    forgotten: list[PartitionsOfTopicId] = field(default_factory=list)


class ShareSessionHandler:
    """The session of one member with one leader."""

    __slots__ = ("_epoch", "_partitions")

    def __init__(self) -> None:
        self._epoch = OPEN_EPOCH
        #: The partitions of the session at the broker, in the order in which they were named.
        self._partitions: dict[TopicIdPartition, None] = {}

    @property
    def is_open(self) -> bool:
        """True if the broker has the session, as far as the client knows. Acknowledgements are
        accepted only in a session."""
        return self._epoch != OPEN_EPOCH

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def partitions(self) -> Collection[TopicIdPartition]:
        return self._partitions.keys()

    def fetch(
        self,
        wanted: Collection[TopicIdPartition],
        acknowledged: Mapping[TopicIdPartition, Types],
    ) -> SessionRequest:
        """The next ShareFetch, after which the session has exactly the partitions `wanted`."""
        if not self.is_open:
            assert not acknowledged, "a request that opens a session has no acknowledgements"
            self._partitions = dict.fromkeys(wanted)
            return SessionRequest(self._epoch, _fetch_topics(wanted, {}))
        new = [each for each in wanted if each not in self._partitions]
        named = dict.fromkeys([*new, *acknowledged])
        forgotten = [each for each in {**self._partitions, **named} if each not in wanted]
        self._partitions = dict.fromkeys(
            each for each in {**self._partitions, **named} if each in wanted
        )
        return SessionRequest(
            self._epoch, _fetch_topics(named, acknowledged), _forgotten_topics(forgotten)
        )

    def answered(self) -> None:
        """Called when the broker has carried out the last request."""
        self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1

    def restart(self) -> None:
        """Open a new session with the next request, because the broker has lost this session, or
        because it is unknown whether the broker has carried out the last request."""
        self._epoch = OPEN_EPOCH
        self._partitions = {}


def _by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[TopicIdPartition]]:
    topics: dict[bytes, list[TopicIdPartition]] = {}
    for each in partitions:
        topics.setdefault(each.topic_id, []).append(each)
    return topics


def _fetch_topics(
    named: Iterable[TopicIdPartition], acknowledged: Mapping[TopicIdPartition, Types]
) -> list[ShareFetchTopic]:
    return [
        ShareFetchTopic(
            topic_id=topic_id,
            partitions=[
                ShareFetchPartition(
                    partition_index=each.partition,
                    acknowledgement_batches=to_batches(acknowledged.get(each, {})),
                )
                for each in some
            ],
        )
        for topic_id, some in _by_topic(named).items()
    ]


def _forgotten_topics(partitions: Iterable[TopicIdPartition]) -> list[PartitionsOfTopicId]:
    return [
        PartitionsOfTopicId(topic_id=topic_id, partitions=[each.partition for each in some])
        for topic_id, some in _by_topic(partitions).items()
    ]


def acknowledge_topics(acknowledged: Mapping[TopicIdPartition, Types]) -> list[AcknowledgeTopic]:
    """The part of a ShareAcknowledge that contains the acknowledgements, by topic."""
    return [
        AcknowledgeTopic(
            topic_id=topic_id,
            partitions=[
                AcknowledgePartition(
                    partition_index=each.partition,
                    acknowledgement_batches=to_batches(acknowledged[each]),
                )
                for each in some
            ],
        )
        for topic_id, some in _by_topic(acknowledged).items()
    ]
