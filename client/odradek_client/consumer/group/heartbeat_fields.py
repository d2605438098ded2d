"""The fields of ConsumerGroupHeartbeat that are sent only when they have changed (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek_protocol.schemas.consumer_group_heartbeat import (
    REGULAR_EXPRESSION_SINCE,
    ConsumerGroupHeartbeatRequest,
    OwnedTopicPartitions,
)


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of a member: topics by name, or a pattern that the broker matches."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


class HeartbeatFields:
    """The fields a coordinator knows of a member: one that a heartbeat leaves out is as it was."""

    def __init__(self, rebalance_timeout_ms: int, server_assignor: str | None) -> None:
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._server_assignor = server_assignor
        self._sent: dict[str, object] = {}

    def send_all(self) -> None:
        """The next heartbeat has every field."""
        self._sent.clear()

    @property
    def owned_sent(self) -> Mapping[bytes, frozenset[int]] | None:
        """The partitions that the coordinator was told of, None if the next heartbeat tells."""
        return self._sent.get("topic_partitions")  # type: ignore[return-value]

    def fill(
        self,
        request: ConsumerGroupHeartbeatRequest,
        subscription: MemberSubscription,
        owned: Mapping[bytes, frozenset[int]],
        version: int,
    ) -> None:
        """Put into `request` what was not sent yet. `owned`: the partitions held, by topic id."""
        subscribed: dict[str, object] = {"subscribed_topic_names": sorted(subscription.topics)}
        if version >= REGULAR_EXPRESSION_SINCE:
            # Null would mean "as before": a pattern is taken back by an empty one.
            subscribed["subscribed_topic_regex"] = subscription.regex or ""
        # Both or none, as other clients have it: librdkafka's mock broker insists.
        together: list[dict[str, object]] = [
            {"rebalance_timeout_ms": self._rebalance_timeout_ms},
            {"server_assignor": self._server_assignor},
            subscribed,
        ]
        for fields in together:
            if any(name not in self._sent or self._sent[name] != fields[name] for name in fields):
                self._sent |= fields
                for name, value in fields.items():
                    setattr(request, name, value)
        if self._sent.get("topic_partitions") != owned:
            self._sent["topic_partitions"] = dict(owned)
            request.topic_partitions = [
                OwnedTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in sorted(owned.items())
                if numbers
            ]
