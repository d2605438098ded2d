"""The requests of a share consumer to its group: heartbeats, whose answers assign partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek_client.config.share_consumer import ShareConsumerConfig
from odradek_client.consumer.group.heartbeats import EpochHeartbeats
from odradek_client.consumer.group.membership import MembershipAction, MembershipSettings
from odradek_client.network.client import NetworkClient
from odradek_client.share.acknowledgements import TopicIdPartition
from odradek_client.share.membership import Assignment, ShareMembership, ShareMemberState

log = logging.getLogger("odradek.client.share")


class ShareGroupLoop(EpochHeartbeats):
    """The loop of a member of a share group: sends its heartbeats, and takes over the assigned
    partitions.

    `on_assigned(partitions)` is called with every new assignment; `signal` wakes a waiting poll.
    """

    membership: ShareMembership
    _unsupported = "the broker does not serve share groups; Kafka does so from 4.2 on"
    _log = log

    def __init__(
        self,
        config: ShareConsumerConfig,
        group_id: str,
        network: NetworkClient,
        on_assigned: Callable[[list[TopicIdPartition]], None],
        signal: Callable[[], None],
    ) -> None:
        settings = MembershipSettings(
            group_id=group_id,
            session_timeout_ms=config.max_poll_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
        )
        membership = ShareMembership(settings, network.new_uuid(), config.client_rack or None)
        super().__init__(config, network, membership)
        self._config = config
        self._on_assigned = on_assigned
        self._signal = signal
        self._topics: frozenset[str] = frozenset()
        self._taken_over: tuple[Assignment, frozenset[bytes]] = ({}, frozenset())

    # --- polls ------------------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str]) -> None:
        """Subscribe to exactly these topics with the next heartbeat."""
        if topics != self._topics:
            self._topics = topics
            self.membership.hasten_heartbeat()
            self._heartbeat_wanted.set()

    def poll(self) -> None:
        """The group's part of a poll: join if needed. Raises the error of a heartbeat."""
        membership = self.membership
        membership.polled(self._now_ms())
        if membership.failure is not None:
            raise membership.failure
        if membership.state in (ShareMemberState.UNSUBSCRIBED, ShareMemberState.STALE):
            membership.join()
            self._heartbeat_wanted.set()
        self._start_heartbeats()

    def take_over(self) -> None:
        """Pass on the assigned partitions of the topics whose names are known."""
        names = self._network.cluster.topic_names
        assignment = self.membership.assignment
        known = frozenset(topic_id for topic_id in assignment if topic_id in names)
        if len(known) < len(assignment):
            self._network.request_metadata_update()
        if (assignment, known) == self._taken_over:
            return
        self._taken_over = (assignment, known)
        partitions = [
            TopicIdPartition(topic_id, names[topic_id], number)
            for topic_id in sorted(known)
            for number in sorted(assignment[topic_id])
        ]
        log.info(
            "group %s: assigned %s",
            self._group_id,
            ", ".join(f"{each.topic}-{each.partition}" for each in partitions) or "nothing",
        )
        self._on_assigned(partitions)

    # --- heartbeats -------------------------------------------------------------------------------

    def _heartbeat_due_ms(self) -> int:
        membership = self.membership
        if membership.poll_overdue(self._now_ms()):
            self._warn_poll_overdue()
            membership.leave(stale=True)
            self.take_over()
        return super()._heartbeat_due_ms()

    async def _send_heartbeat(self, node_id: int) -> MembershipAction:
        request = self.membership.heartbeat_request(self._topics, self._now_ms())
        self._request = request
        response = await self._coordinator.send(
            node_id, request, timeout_ms=self._config.request_timeout_ms
        )
        return self.membership.on_heartbeat(request, response, self._now_ms())

    def _on_heartbeat_ended(self) -> None:
        self.take_over()
        self._signal()

    # --- leaving ----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Leave the group. If the request cannot be sent, the coordinator removes the member when
        its session expires."""
        await self._stop_heartbeats()
        membership = self.membership
        if membership.leave():
            await self._send_last_heartbeat()
        membership.failure = None
        self.take_over()
