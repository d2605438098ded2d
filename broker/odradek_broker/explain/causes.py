"""The verdict about a consumer group as a sentence that names the cause.

A cause is looked for if a group is not OK, in the partition with the largest lag of those with the
group's verdict. The first of `_CHECKS` that finds something names the cause. What a member does is
known from the connections with its client id and address: the time of the last Fetch, errors in
answers to Fetch, and the last wait for a quota.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from odradek_broker.coordinator.groups.classic.group import GroupState, Member
from odradek_broker.coordinator.groups.classic.join_phase import classic_session_timeout_ms
from odradek_broker.coordinator.groups.modern.group import ModernMember
from odradek_broker.coordinator.groups.partitions import named
from odradek_broker.coordinator.groups.settings import group_setting
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.explain.blocking_transaction import blocked_partition, fields_of_owner
from odradek_broker.explain.history import Fields, SubjectState
from odradek_broker.explain.sentences import EventKind, describe_client, duration_text
from odradek_broker.explain.transactions import client_of
from odradek_broker.explain.verdicts import GroupVerdict, Verdict, Window
from odradek_broker.node import Node
from odradek_broker.quotas.managers import QuotaType
from odradek_broker.request import Peer
from odradek_broker.storage.log import PartitionLog
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.assignment import decode_assignment
from odradek_protocol.stored.subscription import PROTOCOL_TYPE

#: A client that has fetched nothing for this long although records wait does not poll. An error, a
#: refusal or a wait for a quota that is older than this is no cause.
FRESH_MS = 30_000
#: The requests of a consumer that the group refuses if a right is missing.
_OF_CONSUMERS = frozenset(
    {"FindCoordinator", "JoinGroup", "ConsumerGroupHeartbeat", "OffsetFetch", "OffsetCommit"}
)

AnyMember = Member | ModernMember


def owners_of(node: Node, group_id: str) -> Generator[None, None, dict[TopicPartition, AnyMember]]:
    """The member that has each partition, with a pause for each member. Only groups of consumers
    are read: members of streams groups have tasks, and classic groups may be of another protocol
    type."""
    owners: dict[TopicPartition, AnyMember] = {}
    consumers, classic = node.groups.consumer_group(group_id), node.groups.group(group_id)
    if consumers is not None:
        for each in list(consumers.members.values()):
            yield
            owners |= dict.fromkeys(named(each.assigned, node.metadata), each)
    elif classic is not None and classic.protocol_type == PROTOCOL_TYPE:
        for member in list(classic.members.values()):
            yield
            try:
                given = decode_assignment(classic.assignment(member.member_id)).assigned_partitions
            except DecodeError:
                continue
            owners |= {(part.topic, index): member for part in given for index in part.partitions}
    return owners


@dataclass(slots=True)
class _Case:
    """A group that is not OK in one partition. `size`: the number of its members; `members`: those
    that may have the partition; `peers`: the connections of these. `ticks_ms`: the present
    monotonic time."""

    node: Node
    group_id: str
    where: TopicPartition
    log: PartitionLog | None
    window: Window
    verdict: Verdict
    size: int
    members: list[AnyMember]
    peers: list[Peer]
    wall_ms: int
    ticks_ms: int

    @property
    def client(self) -> str:
        return _client(self.members[0])

    def ago(self, ticks_ms: float) -> str:
        return f"{duration_text(int(self.ticks_ms - ticks_ms))} ago"

    def is_fresh(self, ticks_ms: float) -> bool:
        return ticks_ms >= 0 and self.ticks_ms - ticks_ms <= FRESH_MS


class Judge:
    """Makes the sentences about groups for one answer. The connections are those at the time of the
    first sentence with a cause."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._peers: dict[tuple[str, str], list[Peer]] | None = None

    def state_of(self, group_id: str) -> Generator[None, None, SubjectState]:
        """The verdict about a group, with a sentence and the cause, in steps."""
        node, wall_ms = self._node, self._node.clock.wall_ms()
        found = yield from node.verdicts.verdict(group_id, wall_ms)
        fields: Fields = {
            "verdict": found.verdict.name,
            "reason": _reason(found, node.groups.offset_count(group_id), wall_ms),
            "more": found.count - len(found.worst) or None,
        }
        if found.window is not None and found.verdict is not Verdict.OK:
            case = yield from self._case(group_id, found, found.window, wall_ms)
            fields |= next(filter(None, (check(case) for check in _CHECKS)), {})
            if fields.get("cause") == "open_transaction":
                fields |= yield from self._transaction(case)
        return SubjectState.of(EventKind.NOW_VERDICT, fields, partitions=found.worst)

    def _case(
        self, group_id: str, found: GroupVerdict, window: Window, wall_ms: int
    ) -> Generator[None, None, _Case]:
        node, where = self._node, found.worst[0]
        classic, consumers = node.groups.group(group_id), node.groups.consumer_group(group_id)
        group = classic or consumers or node.groups.streams_group(group_id)
        members: list[AnyMember] = [] if group is None else list(group.members.values())
        size = len(members)
        if consumers or (classic and classic.protocol_type == PROTOCOL_TYPE):
            owner = (yield from owners_of(node, group_id)).get(where)
            members = [owner] if owner else []
        if self._peers is None:
            self._peers = {}
            for peer in list(node.connections.peers.values()):
                yield
                self._peers.setdefault((peer.client_id or "", peer.host), []).append(peer)
        peers = [
            peer
            for each in members
            for peer in self._peers.get((each.client_id, each.client_host.removeprefix("/")), ())
        ]
        return _Case(
            node, group_id, where, node.log_of(where), window, found.verdict, size, members, peers,
            wall_ms, node.clock.monotonic_ms(),
        )  # fmt: skip

    def _transaction(self, case: _Case) -> Generator[None, None, Fields]:
        """The fields about the transaction that holds the partition back."""
        blocked = None if case.log is None else blocked_partition(case.log)
        if blocked is None or blocked.producer_id is None:
            return {}
        owners: list[Transaction] = []
        for each in list(self._node.transactions.transactions()):
            yield
            if each.producer_id == blocked.producer_id:
                owners.append(each)
        about = fields_of_owner(blocked, owners, may_describe=True, wall_ms=case.wall_ms)
        name, timeout = about.get("transactional_id"), about.get("timeout")
        if name is None:
            return {"detail": about["reason"]}
        end = f" and ends by itself after {timeout}" if timeout else f"; {about['reason']}"
        detail = f"which has been open for {about['age']}{end}"
        client = client_of(self._node.transaction_history.about(str(name)).events)
        if client is not None:
            there = any(describe_client(*each) == client for each in self._peers or ())
            client = f"{client} is {'connected' if there else 'gone'}"
        return {"transactional_id": name, "detail": detail, "client": client}


def _client(member: AnyMember) -> str:
    return describe_client(member.client_id, member.client_host)


def _reason(found: GroupVerdict, offsets: int, wall_ms: int) -> str:
    window = found.window
    if window is None or (found.verdict is Verdict.OK and not found.lag):
        return f"it keeps up in all {offsets} partitions" if offsets > 1 else "it keeps up"
    where = f" in {found.count} of {offsets} partitions" if offsets > 1 else ""
    times, lags = window.times, window.lags
    if found.verdict is Verdict.WARNING:
        during = duration_text(max(times[-1] - times[0], 0))
        return f"it falls behind{where}: {lags[0]} records waited {during} ago, {lags[-1]} wait now"
    wait = "1 record waits" if found.lag == 1 else f"{found.lag} records wait"
    wait = f"{wait if found.lag else 'it reads nothing'}{where}"
    if found.verdict is Verdict.STALLED and not window.held:
        since = duration_text(max(wall_ms - times[-1], 0))
        return f"{wait}, and all its commits there for {since} are of offset {window.offset}"
    since = duration_text(max(wall_ms - window.committed_ms, 0))
    return f"{wait}, and its last commit there was {since} ago"


# --- Checks ---------------------------------------------------------------------------------------


def _missing_right(case: _Case) -> Fields | None:
    denial = case.node.audit.denials.get(f"GROUP:{case.group_id}")
    if case.size or denial is None:
        return None
    at_ms, principal, operation, request = denial
    if not case.is_fresh(at_ms) or request not in _OF_CONSUMERS:
        return None
    why = f"members may not join, the right {operation} on the group is missing"
    detail = f"and {request} was refused {case.ago(at_ms)}"
    return {"cause": "missing_right", "why": why, "user": principal, "detail": detail}


def _partition(case: _Case) -> Fields | None:
    log, offset = case.log, case.window.offset
    if log is not None and log.offline:
        return {"cause": "offline", "why": "the partition is offline because of a disk error"}
    if log is None or offset <= log.high_watermark:
        return None
    why = f"its position {offset} is after the end of the partition, {log.high_watermark}"
    return {"cause": "out_of_range", "why": why}


def _no_members(case: _Case) -> Fields | None:
    if case.size or (case.verdict is not Verdict.STOPPED and not case.window.held):
        return None
    return {"cause": "no_members", "why": "it has no members"}


def _rebalance(case: _Case) -> Fields | None:
    group = case.node.groups.group(case.group_id)
    rebalances = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    if group is None or group.state not in rebalances:
        return None
    late = [_client(each) for each in group.members.values() if not each.awaits]
    detail = f"for {duration_text(case.wall_ms - group.state_since_ms)}"
    detail += f", and waits for {late[0]}" if late else ""
    return {"cause": "rebalance", "why": "it rebalances", "detail": detail}


def _unassigned(case: _Case) -> Fields | None:
    if case.members or not case.size:
        return None
    members = "its member is not" if case.size == 1 else f"none of its {case.size} members is"
    return {"cause": "unassigned", "why": f"{members} assigned this partition"}


def _fetch_error(case: _Case) -> Fields | None:
    errors = [
        peer.fetch_errors[case.where] for peer in case.peers if case.where in peer.fetch_errors
    ]
    error, at_ms = max(errors, key=lambda each: each[1], default=(ErrorCode.NONE, -1))
    if not case.is_fresh(at_ms):
        return None
    denied, outside = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OFFSET_OUT_OF_RANGE
    cause = {denied: "missing_right", outside: "out_of_range"}.get(error, "fetch_error")
    why = f"fetches of {case.client} return {error.name}"
    return {"cause": cause, "why": why, "detail": f"the last time {case.ago(at_ms)}"}


def _open_transaction(case: _Case) -> Fields | None:
    fetching = [peer.read_committed for peer in case.peers if peer.fetched_ms >= 0]
    if not case.window.held or (fetching and not any(fetching)):
        return None
    return {"cause": "open_transaction", "why": "they are behind an open transaction"}


_QUOTAS: dict[str, str] = {
    QuotaType.FETCH: "consumer_byte_rate",
    QuotaType.REQUEST: "request_percentage",
}


def _quota(case: _Case) -> Fields | None:
    waits = ((peer.throttled_until_ms, peer.throttled_by) for peer in case.peers)
    until_ms, quota = max(waits, default=(-1, ""))
    if not case.is_fresh(until_ms):
        return None
    last = "at present" if until_ms > case.ticks_ms else f"the last time {case.ago(until_ms)}"
    why = f"{case.client} is throttled by its quota {_QUOTAS.get(quota, quota)}"
    return {"cause": "quota", "why": why, "detail": last}


def _no_poll(case: _Case) -> Fields | None:
    fetched_ms = max((peer.fetched_ms for peer in case.peers), default=-1)
    stands = case.verdict is Verdict.STOPPED or case.window.held
    if not stands or case.is_fresh(fetched_ms):
        return None
    fetched = f"its last fetch was {case.ago(fetched_ms)}"
    if fetched_ms < 0:
        fetched = f"it has {'fetched nothing since it' if case.peers else 'not'} connected"
    member = case.members[0]
    end_ms = case.node.groups.session_end_ms(case.group_id, member.member_id)
    if end_ms is not None:
        fetched += f", and it was last heard of {case.ago(end_ms - _session_ms(case, member))}"
    why = f"{case.client} does not poll"
    return {"cause": "no_poll", "why": why, "detail": fetched, "member": member.member_id}


def _session_ms(case: _Case, member: AnyMember) -> int:
    if isinstance(member, Member):
        return classic_session_timeout_ms(member)
    kind = "consumer" if case.node.groups.consumer_group(case.group_id) else "streams"
    name, node = f"{kind}.session.timeout.ms", case.node
    own_ms = member.own_session_timeout_ms
    return (
        group_setting(node.config, node.metadata, case.group_id, name) if own_ms is None else own_ms
    )


def _no_commit(case: _Case) -> Fields | None:
    if case.verdict is not Verdict.STOPPED:
        return {"cause": "slow"}
    fetched = case.ago(max(peer.fetched_ms for peer in case.peers))
    why = f"{case.client} fetches, the last time {fetched}, but does not commit"
    return {"cause": "no_commit", "why": why}


#: The checks in their order.
_CHECKS: tuple[Callable[[_Case], Fields | None], ...] = (
    _missing_right, _partition, _no_members, _rebalance, _unassigned, _fetch_error,
    _open_transaction, _quota, _no_poll, _no_commit,
)  # fmt: skip
