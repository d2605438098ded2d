"""The membership in a share group (KIP-932), whose only request is the heartbeat; the answers have
the assignment.

Several members may have the same partition, so a member revokes no partitions before it takes over
an assignment. A member is in one of these states; `SHARE_STEPS` has the legal steps::

    UNSUBSCRIBED  not in the group, and not joining it
    JOINING       its next heartbeat joins the group, with epoch 0
    STABLE        in the group
    LEAVING       its next heartbeat, due immediately, leaves the group
    STALE         left because the application did not poll; joins again at the next poll
    FATAL         the group refuses the member, and would refuse it again
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from odradek_client.consumer.group.membership import (
    HEARTBEAT_MS_MIN,
    EpochMembership,
    MembershipAction,
    MembershipSettings,
)
from odradek_client.errors import InvalidGroup, OdradekError, UnsupportedByBroker, error_for
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


class ShareMemberState(Enum):
    """The state of a member of a share group."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "fatal"


_S = ShareMemberState
#: The states that may follow each state. JOINING follows itself when the group refuses the member.
SHARE_STEPS: dict[ShareMemberState, frozenset[ShareMemberState]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
    _S.JOINING: frozenset({_S.JOINING, _S.STABLE, _S.LEAVING, _S.FATAL}),
    _S.STABLE: frozenset({_S.STABLE, _S.JOINING, _S.LEAVING, _S.FATAL}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED, _S.STALE}),
    _S.STALE: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
    _S.FATAL: frozenset({_S.UNSUBSCRIBED}),
}

HEARTBEATING = frozenset({_S.JOINING, _S.STABLE, _S.LEAVING})
_IN_GROUP = frozenset({_S.JOINING, _S.STABLE})

_FENCING = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        # The group itself was deleted; the member creates it again.
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_REDISCOVER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
#: The text if the broker supports share groups, but has them disabled.
SWITCHED_OFF = (
    "the cluster has share groups switched off: set its feature share.version to 1 "
    "(kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature share.version=1)"
)

OTHER_KIND = "there is a group of another kind with this name; choose another group_id"

Assignment = Mapping[bytes, frozenset[int]]
"""Assigned partitions by topic id."""


class ShareMembership(EpochMembership):
    """The membership of a consumer in its share group.

    The group loop sends each request when it is due, and reports the answer or its absence.
    `assignment` has the assigned partitions. The consumer can take over the assigned partitions at
    any time.
    """

    state: ShareMemberState

    def __init__(
        self, settings: MembershipSettings, member_id: str, rack_id: str | None = None
    ) -> None:
        super().__init__(settings, member_id, SHARE_STEPS, HEARTBEATING)
        self.state = ShareMemberState.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.assignment: Assignment = {}
        self._rack_id = rack_id
        self._sent_topics: frozenset[str] | None = None
        self._interval_ms = 0
        self._stale = False

    @property
    def in_group(self) -> bool:
        """True if the group has admitted this member."""
        return self.epoch > JOIN_EPOCH and self.state is _S.STABLE

    @property
    def may_commit(self) -> bool:
        """Always False, because a share group has no offsets that members commit."""
        return False

    # --- joining and leaving ---

    def join(self) -> None:
        """Make the next heartbeat join the group. The heartbeat is due immediately. Raises
        IllegalState if the member is in the group."""
        self._step(_S.JOINING)
        self._begin()

    def _begin(self) -> None:
        self.epoch = JOIN_EPOCH
        self.assignment = {}
        self._sent_topics = None
        self._next_heartbeat_ms = 0

    def leave(self, *, stale: bool = False) -> bool:
        """Make the next heartbeat leave the group. The heartbeat is due immediately. False if the
        member is not in the group. `stale`: the member leaves because the application did not poll,
        and joins again at the next poll."""
        if self.state not in _IN_GROUP:
            if self.state not in (_S.UNSUBSCRIBED, _S.LEAVING):
                self._step(_S.UNSUBSCRIBED)
            self.assignment = {}
            return False
        self._step(_S.LEAVING)
        self._begin()
        self.epoch = LEAVE_EPOCH
        self._stale = stale
        return True

    def left(self) -> None:
        if self.state is _S.LEAVING:
            self._step(_S.STALE if self._stale else _S.UNSUBSCRIBED)

    def poll_overdue(self, now_ms: int) -> bool:
        return self.state in _IN_GROUP and super().poll_overdue(now_ms)

    # --- heartbeats ---

    def hasten_heartbeat(self) -> None:
        """Make the next heartbeat due immediately, because something has changed."""
        self._next_heartbeat_ms = 0

    def heartbeat_request(self, topics: frozenset[str], now_ms: int) -> ShareGroupHeartbeatRequest:
        """The next heartbeat. It contains the topics only if they have changed since the last
        answered heartbeat; so the caller has to report every answer, and the lack of an answer."""
        self._next_heartbeat_ms = now_ms + max(self._interval_ms, 1)
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.state is _S.LEAVING:
            self.left()
            return request
        if self.state is _S.JOINING:
            request.rack_id = self._rack_id
        if topics != self._sent_topics:
            request.subscribed_topic_names = sorted(topics)
            self._sent_topics = topics
        return request

    def on_heartbeat(
        self,
        request: ShareGroupHeartbeatRequest,
        response: ShareGroupHeartbeatResponse,
        now_ms: int,
    ) -> MembershipAction:
        """Take the answer to a heartbeat. A fatal error is stored in `failure` for the next
        poll."""
        if request.member_epoch != self.epoch or self.state not in _IN_GROUP:
            return MembershipAction.IGNORE
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            return self._on_error(code, response.error_message, now_ms)
        self._interval_ms = max(response.heartbeat_interval_ms, HEARTBEAT_MS_MIN)
        self._last_heard_ms = now_ms
        self._next_heartbeat_ms = now_ms + max(self._interval_ms, 1)
        if response.member_epoch > JOIN_EPOCH:
            self.epoch = response.member_epoch
            self._step(_S.STABLE)
        if response.assignment is not None:
            self.assignment = {
                topic.topic_id: frozenset(topic.partitions)
                for topic in response.assignment.topic_partitions
                if topic.partitions
            }
        return MembershipAction.GO_ON

    def _on_error(self, code: ErrorCode, message: str | None, now_ms: int) -> MembershipAction:
        self._sent_topics = None
        joining = self.state is _S.JOINING
        if joining and code is ErrorCode.GROUP_ID_NOT_FOUND:
            # A join creates a missing group. So this error means that a group of another type has
            # the name.
            self.fail(InvalidGroup(f"{self.about}: {OTHER_KIND} ({code.name})", code=code))
            return MembershipAction.GO_ON
        if code in _FENCING:
            self.join()
            return MembershipAction.BACK_OFF if joining else MembershipAction.JOIN
        if code in _REDISCOVER or code.retriable:
            self._next_heartbeat_ms = now_ms  # the request is repeated, after a pause
            return MembershipAction.REDISCOVER if code in _REDISCOVER else MembershipAction.BACK_OFF
        if code is ErrorCode.UNSUPPORTED_VERSION:
            self.fail(UnsupportedByBroker(f"{self.about}: {SWITCHED_OFF} ({code.name})", code=code))
        else:
            self.fail(error_for(code, message, about=self.about))
        return MembershipAction.GO_ON

    def on_no_answer(self, request: ShareGroupHeartbeatRequest, now_ms: int) -> None:
        """Send the topics again, because the request or its answer was lost."""
        if request.member_epoch >= JOIN_EPOCH:
            self._sent_topics = None
            self._next_heartbeat_ms = now_ms

    def fail(self, failure: OdradekError) -> None:
        if self.state in _IN_GROUP:
            self.failure = failure
            self.assignment = {}
            self._step(_S.FATAL)
