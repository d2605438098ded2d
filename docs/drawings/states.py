"""docs/understand/states.md: the state machines as Mermaid diagrams, drawn from their tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek_broker.coordinator.groups.classic import group as classic
from odradek_broker.coordinator.groups.consumer import group as consumer
from odradek_broker.coordinator.transactions import transaction
from odradek_broker.server import authentication, session
from odradek_broker.server.authentication import TRANSITIONS
from odradek_broker.share import in_flight
from odradek_client.consumer.group.classic_membership import JOIN_STATE_STEPS, JoinState
from odradek_client.consumer.group.consumer_membership import MEMBER_STATE_STEPS, MemberState
from odradek_client.consumer.subscription_state import FETCH_STATE_STEPS, FetchState
from odradek_client.producer.transaction_states import ALLOWED_FROM, ClientTxnState
from odradek_client.share.membership import SHARE_STEPS, ShareMemberState
from odradek_client.share.record import RECORD_STEPS, DeliveryState
from odradek_mirror.copier_state import COPIER_STEPS, CopierState
from odradek_protocol.errors import ErrorCode

_HEAD = """\
# State diagrams

<!-- Made by `python -m docs.drawings` from the tables in the code; a test holds it equal. -->

Every state machine in the code is a table, and a step that its table does not have raises an error.
The diagrams are drawn from these tables. In the larger ones a state that can be entered from every
other one is named below the diagram; so are the states that may follow themselves.
"""

#: The size of a large diagram, in states. A large diagram has no arrows to a state that can follow
#: every other state; a sentence below the diagram names that state.
_LARGE = 5


@dataclass(frozen=True)
class Machine:
    """A table of steps. `steps`: the states that may follow each state; `start`: the first
    state."""

    title: str
    table: str
    text: str
    start: str
    steps: Mapping[str, frozenset[str]]


def _followers(predecessors: Mapping[Any, Collection[Any]]) -> dict[Any, set[Any]]:
    """A table of predecessors, turned into a table of following states."""
    followers: dict[Any, set[Any]] = {state: set() for state in predecessors}
    for target, sources in predecessors.items():
        for source in sources:
            followers[source].add(target)
    return followers


def _named(
    steps: Mapping[Any, Iterable[Any]], names: Mapping[Any, str]
) -> dict[str, frozenset[str]]:
    return {
        names[source]: frozenset(names[target] for target in targets)
        for source, targets in steps.items()
    }


def _camel(states: type[Enum]) -> dict[Any, str]:
    """The state's name in camel case: PREPARE_LEAVING becomes PrepareLeaving."""
    return {each: each.name.title().replace("_", "") for each in states}


def _machines() -> list[Machine]:
    return [
        Machine(
            "Classic group (broker)",
            "broker/odradek_broker/coordinator/groups/classic/group.py",
            "The states that Kafka's tools show.",
            classic.GroupState.EMPTY.value,
            _named(
                _followers(classic.PREDECESSORS), {each: each.value for each in classic.GroupState}
            ),
        ),
        Machine(
            "Transaction (broker)",
            "broker/odradek_broker/coordinator/transactions/transaction.py",
            "The state of a transactional id. `Dead` and `PrepareEpochFence` are never stored.",
            transaction.TransactionState.EMPTY.label,
            _named(
                _followers(transaction.ENTERED_FROM),
                {each: each.label for each in transaction.TransactionState},
            ),
        ),
        Machine(
            "Record of a share partition (broker)",
            "broker/odradek_broker/share/in_flight.py",
            "`Acquired` is never stored: after a restart the record is available again.",
            "Available",
            _named(in_flight.NEXT, _camel(in_flight.RecordState)),
        ),
        Machine(
            "Connection (broker)",
            "broker/odradek_broker/server/session.py",
            "A connection whose client has to authenticate is in the state `Open` meanwhile; its"
            " authentication has states of its own, below.",
            "Open",
            _named(session.SESSION_STATE_STEPS, _camel(session.SessionState)),
        ),
        Machine(
            "Authentication of a connection (broker)",
            "broker/odradek_broker/server/authentication.py",
            "At listeners of SASL. From `Complete` a client comes back to `Handshake` when it"
            " authenticates again.",
            "Initial",
            _named(
                {
                    state: {then for (before, _), then in TRANSITIONS.items() if before is state}
                    for state in authentication.SaslState
                },
                _camel(authentication.SaslState),
            ),
        ),
        Machine(
            "Producer (client)",
            "client/odradek_client/producer/transaction_states.py",
            "A producer that is only idempotent knows `Uninitialized`, `Initializing`, `Ready` and"
            " `FatalError`; the other states are those of a transactional one.",
            "Uninitialized",
            _named(_followers(ALLOWED_FROM), _camel(ClientTxnState)),
        ),
        Machine(
            "Fetching a partition (client)",
            "client/odradek_client/consumer/subscription_state.py",
            "Each partition that is assigned to a consumer is in one of these states.",
            "Initializing",
            _named(FETCH_STATE_STEPS, _camel(FetchState)),
        ),
        Machine(
            "Member of a classic group (client)",
            "client/odradek_client/consumer/group/classic_membership.py",
            "`Unjoined` follows a lost membership, and precedes every attempt to join.",
            "Unjoined",
            _named(JOIN_STATE_STEPS, _camel(JoinState)),
        ),
        Machine(
            "Member of a consumer group (client)",
            "client/odradek_client/consumer/group/consumer_membership.py",
            "`Fenced`: the broker removed the member, which joins again. `Stale`: it left because the"
            " application did not poll, and joins again when it does.",
            "Unsubscribed",
            _named(MEMBER_STATE_STEPS, _camel(MemberState)),
        ),
        Machine(
            "Member of a share group (client)",
            "client/odradek_client/share/membership.py",
            "A member that the broker has removed is in `Joining` again. `Stale`: it left because the"
            " application did not poll, and joins again when it does.",
            "Unsubscribed",
            _named(SHARE_STEPS, _camel(ShareMemberState)),
        ),
        Machine(
            "Record of a share group (client)",
            "client/odradek_client/share/record.py",
            "`Answered`: the application has acknowledged the record, and the broker's answer is not"
            " there yet. `Failed`: the broker refused it, or the lock expired.",
            "Acquired",
            _named(RECORD_STEPS, _camel(DeliveryState)),
        ),
        Machine(
            "Mirror, exactly once",
            "mirror/odradek_mirror/copier_state.py",
            "An instance owns the mirror in `Idle`, `Copying` and `Committing`. After a failure, and"
            " when the target has refused a partition, it starts again after its last committed"
            " transaction.",
            "Starting",
            _named(COPIER_STEPS, _camel(CopierState)),
        ),
    ]


def _mermaid(lines: Iterable[str]) -> str:
    return "```mermaid\nstateDiagram-v2\n" + "".join(f"    {line}\n" for line in lines) + "```\n"


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)


def _section(machine: Machine) -> str:
    everywhere = [
        target
        for target in machine.steps
        if len(machine.steps) >= _LARGE
        and all(target in targets for source, targets in machine.steps.items() if source != target)
    ]
    arrows = [f"[*] --> {machine.start}"] + [
        f"{source} --> {target}"
        for source, targets in machine.steps.items()
        for target in machine.steps
        if target in targets and target != source and target not in everywhere
    ]
    itself = [state for state, targets in machine.steps.items() if state in targets]
    notes = []
    if everywhere:
        notes.append(f"From every state: {_list(everywhere)}.")
    if stays := [state for state in itself if state not in everywhere]:
        notes.append(f"Followed by itself: {_list(stays)}.")
    note = "\n" + " ".join(notes) + "\n" if notes else ""
    return f"""
## {machine.title}

{machine.text} Table: `{machine.table}`.

{_mermaid(arrows)}{note}"""


def _action(action: classic.ClassicAction) -> str:
    """The text of an action; the name of the code if the action is only an error code."""
    return ErrorCode(int(action.value)).name if action.value.isdigit() else action.value


def _classic_requests() -> str:
    states = list(classic.GroupState)
    rows = [
        "| | " + " | ".join(each.value for each in states) + " |",
        "|---" * (len(states) + 1) + "|",
        *(
            f"| {request.value} | "
            + " | ".join(_action(classic.ANSWERS[state, request]) for state in states)
            + " |"
            for request in classic.ClassicRequest
        ),
    ]
    return "\nWhat each state does with a request of a member:\n\n" + "\n".join(rows) + "\n"


def _session_pauses() -> str:
    names = _camel(session.Pause)
    rows = [
        "| state | the connection |",
        "|---|---|",
        *(
            f"| {_camel(session.SessionState)[each]} | {each.value} |"
            for each in session.SessionState
        ),
        "",
        "While one of these reasons lasts, nothing is read from an open connection:",
        "",
        "| reason | while | requests that have been read |",
        "|---|---|---|",
        *(
            f"| {names[pause]} | {pause.value} | {'are handled' if handles else 'wait'} |"
            for pause, handles in session.PAUSES.items()
        ),
    ]
    return "\n" + "\n".join(rows) + "\n"


def _consumer_member() -> str:
    """The section about a consumer group member. In the diagram, every change of the state passes
    through one choice."""
    names = _camel(consumer.MemberState)
    arrows = ["state reconcile <<choice>>", f"[*] --> {names[consumer.MemberState.STABLE]}"]
    rows = ["| state | the heartbeat | what follows |", "|---|---|---|"]
    for state in consumer.MemberState:
        for step in consumer.ReportReaction:
            reasons = {
                (report, newer)
                for (source, report, newer), follows in consumer.STEPS.items()
                if (source, follows) == (state, step)
            }
            if not reasons:
                continue
            rows.append(f"| {names[state]} | {_in_words(reasons)} | {step.value} |")
            if step is consumer.ReportReaction.RECONCILE:
                arrows.append(f"{names[state]} --> reconcile: {_in_words(reasons)}")
    arrows += [f"reconcile --> {names[state]}" for state in consumer.MemberState]
    lines = "\n".join(rows)
    return f"""
## Member of a consumer group (broker)

A heartbeat may say what the member owns. What follows from that and from the target assignment is in
the table. `UnrevokedPartitions`: the member has been asked to give partitions back and has not done so
yet. `UnreleasedPartitions`: it waits for partitions that others still own.
Table: `broker/odradek_broker/coordinator/groups/consumer/group.py`.

{_mermaid(arrows)}
{lines}
"""


def _in_words(reasons: set[tuple[consumer.RevocationReport, bool]]) -> str:
    """The words for a step's condition: what a heartbeat reports about partitions to revoke, and
    whether the target is newer."""
    reports = {report for report, _ in reasons}
    newer = {newer for _, newer in reasons}
    if len(reasons) != len(reports) * len(newer):
        raise ValueError(f"these reasons want a row each: {reasons}")
    words = []
    if len(reports) < len(consumer.RevocationReport):
        words.append(
            " or ".join(report.value for report in consumer.RevocationReport if report in reports)
        )
    if len(newer) == 1:
        words.append("the target is newer" if True in newer else "the target is not newer")
    return ", ".join(words) or "any"


def page() -> str:
    """The whole page."""
    sections = [_section(each) for each in _machines()]
    classic_group, transactions, share_record, connection, *others = sections
    broker = [classic_group, _classic_requests(), _consumer_member(), transactions, share_record]
    return "".join([_HEAD, *broker, connection, _session_pauses(), *others])
