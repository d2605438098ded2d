"""FetchSession: incremental fetches of one node, by the client (KIP-227, K-20).

There is one session per node. The broker keeps the set of partitions; a request has only the
changes since the last one, and the removed partitions. A broker that answers session id 0 has no
sessions, and every request is a full one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_client.structs import TopicPartition
from odradek_protocol.constants import (
    INITIAL_SESSION_EPOCH,
    NO_FETCH_SESSION,
    NO_LEADER_EPOCH,
    SESSION_EPOCH_MAX,
)
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.fetch import FetchPartition, FetchTopic, ForgottenTopic


class PartitionRequest(NamedTuple):
    """A partition in the form of a Fetch request. `last_fetched_epoch`: the epoch of the record
    before `offset`, for a broker that looks for divergence; -1: it need not look."""

    offset: int
    max_bytes: int
    leader_epoch: int = NO_LEADER_EPOCH
    topic_id: bytes = ZERO_UUID
    last_fetched_epoch: int = NO_LEADER_EPOCH


@dataclass(slots=True)
class FetchSessionRequest:
    """The part of a Fetch request that depends on the session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """The fetch session with a node, and the partitions that the broker has in it (KIP-227)."""

    def __init__(self) -> None:
        self._id = NO_FETCH_SESSION
        self._epoch = INITIAL_SESSION_EPOCH
        self._known: dict[TopicPartition, PartitionRequest] = {}

    def request(self, wanted: dict[TopicPartition, PartitionRequest]) -> FetchSessionRequest:
        """The next request for the partitions `wanted`, in this order."""
        if self._epoch == INITIAL_SESSION_EPOCH:
            self._known = dict(wanted)
            # Session id and epoch (0, 0) request a session; with an id the old one is closed too
            # (F-20).
            return FetchSessionRequest(
                self._id, INITIAL_SESSION_EPOCH, topics_of(wanted.items()), []
            )
        known = self._known
        gone = {each: known[each] for each in known if each not in wanted}
        # A topic was created again under its name: the old id is removed from the session, the new
        # one added.
        gone |= {
            each: known[each]
            for each, now in wanted.items()
            if each in known and known[each].topic_id != now.topic_id
        }
        changed = [(each, now) for each, now in wanted.items() if known.get(each) != now]
        self._known = dict(wanted)
        return FetchSessionRequest(self._id, self._epoch, topics_of(changed), _forgotten(gone))

    def answered(self, session_id: int) -> None:
        """Take over the session id of an answer without a top-level error."""
        if session_id == NO_FETCH_SESSION:
            self._id, self._epoch = NO_FETCH_SESSION, INITIAL_SESSION_EPOCH
        elif self._epoch == INITIAL_SESSION_EPOCH or session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == SESSION_EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """Begin a new session with the next request, because the broker does not know this one any
        more."""
        self._id, self._epoch = NO_FETCH_SESSION, INITIAL_SESSION_EPOCH

    def restart(self) -> None:
        """Close the session and begin a new one, because it is uncertain what the broker has in
        it."""
        self._epoch = INITIAL_SESSION_EPOCH


def topics_of(wanted: Iterable[tuple[TopicPartition, PartitionRequest]]) -> list[FetchTopic]:
    """The partitions by topic, neighbours of one topic together. The order of partitions is kept,
    because brokers serve them in it (F-05)."""
    topics: list[FetchTopic] = []
    for (name, number), want in wanted:
        if not topics or topics[-1].topic != name:
            topics.append(FetchTopic(topic=name, topic_id=want.topic_id))
        topics[-1].partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.last_fetched_epoch,
                partition_max_bytes=want.max_bytes,
            )
        )
    return topics


def _forgotten(gone: dict[TopicPartition, PartitionRequest]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for (name, number), want in gone.items():
        topic = topics.setdefault(
            (name, want.topic_id), ForgottenTopic(topic=name, topic_id=want.topic_id)
        )
        topic.partitions.append(number)
    return list(topics.values())


def has_all_topic_ids(wanted: dict[TopicPartition, PartitionRequest]) -> bool:
    """True if every topic has an id, so that Fetch 13 can name it."""
    return all(want.topic_id != ZERO_UUID for want in wanted.values())
