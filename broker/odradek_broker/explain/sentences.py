"""The kinds of events and of current states, and the sentence of each (`odradek explain`).

`{field}` stands for a field; text in square brackets is left out unless all of its fields are
given. Fields that are not in the sentence are for programs. Special fields: `partitions` (those
partitions of an event whose topics the user may see), `error` (the name of a Kafka error), `client`
(see `describe_client`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, unique

from odradek_protocol.visible import visible

Value = int | str | tuple[str, ...]
Fields = Mapping[str, Value]


@unique
class EventKind(Enum):
    """The kinds of events; the value is the sentence."""

    # --- A transactional id ---
    TRANSACTION_STEP = (
        "{request}[ from {client}]: {before} -> {after}[; producer id {producer_id}][, epoch {epoch}]"
        "[; added {partitions}][ (offsets of group {group})]"
        "[; fences {fenced} (producer id {fenced_id}, epoch {fenced_epoch})][{note}]"
    )
    TRANSACTION_TIMEOUT = (
        "timeout: open for {age}, and {timeout} were allowed: {before} -> {after};"
        " producer id {producer_id}, epoch {epoch}[; fences {fenced} (producer id {fenced_id}, epoch"
        " {fenced_epoch})]"
    )
    TRANSACTION_REFUSED = (
        "{request}[ from {client}] with producer id {producer_id}, epoch {epoch},"
        " was refused with {error}: [{partitions} is ]{reason}"
    )
    TRANSACTION_NOT_RECORDED = (
        "{request}[ from {client}] could not be recorded ({error}), and has had no effect"
    )
    MARKERS_SENT = "{marker} markers with epoch {epoch} go to {partitions}[ (coordinator epoch {coordinator_epoch})]"
    MARKERS_AGAIN = "the marker for {partitions} was answered {error}; it is sent again in {pause}"
    MARKERS_STOPPED = "the marker for {partitions} was answered {error}: {reason}"
    TRANSACTION_COMPLETE = (
        "all markers are written: {before} -> {after}[; the next producer id is {producer_id},"
        " epoch {epoch}]"
    )
    TRANSACTION_RESUMED = (
        "the broker started and found {before}, with producer id {producer_id}, epoch {epoch}:"
        " the markers are written (again)[ to {partitions}]"
    )
    TRANSACTION_EXPIRED = (
        "expired, unused for {age}: {before} -> removed, with producer id {producer_id}, epoch"
        " {epoch}"
    )

    # --- A producer id ---
    PRODUCER_GIVEN = "given out to {client}: no transactional id, epoch {epoch}"
    PRODUCER_OF_TRANSACTION = (
        "{request}[ from {client}] for transactional id {transactional_id}: epoch {epoch}"
        "[; fences {fenced} (producer id {fenced_id}, epoch {fenced_epoch})]"
    )
    PRODUCER_REFUSED = (
        "{request}[ from {client}] for transactional id {transactional_id} with epoch {epoch} was"
        " refused with {error}: [{partitions} is ]{reason}"
    )
    FIRST_BATCH = "{partitions}: the first batch of this producer id, with epoch {epoch}, {sequences}, at offset {offset}"
    BATCH_OF_NEW_EPOCH = (
        "{partitions}: epoch {before} -> {epoch} by a batch with {sequences}, at offset {offset}"
    )
    MARKER_OF_NEW_EPOCH = (
        "{partitions}: epoch {before} -> {epoch} by the marker at offset {offset} that ended a"
        " transaction; sequences begin at 0 again"
    )
    DUPLICATE_BATCH = (
        "{partitions}: a batch with epoch {epoch}, {sequences}, came"
        " again; it is at offsets {offset} to {last_offset} already, and was answered with these"
    )
    BATCH_REFUSED = (
        "{partitions}: a batch with epoch {epoch}, {sequences}, was refused with {error}: {reason}"
    )
    MARKER_REFUSED = "{partitions}: a marker with epoch {epoch} was refused with {error}: {reason}"
    PRODUCER_EXPIRED = (
        "{partitions}: removed, because it has written nothing for {age}"
        " (producer.id.expiration.ms)"
    )

    # --- A group ---
    GROUP_RESTORED = (
        "the broker started and found generation {generation}, state {state}[, protocol {protocol}]"
        "[, leader {leader}][, members {members}]"
    )
    MEMBER_ID_GIVEN = "{client} was given the id {member}, and is to join with it"
    MEMBER_ID_UNUSED = (
        "{member} never joined with the id that it was given: nobody waits for it now"
    )
    MEMBER_JOINED = "{member}[ (static: {instance})][ of {client}] joined[; it speaks {protocols}]"
    MEMBER_REJOINED = "{member} joined again[, after {waited}]"
    MEMBER_REPLACED = "{client} joined as static member {instance}: it is {member} now, and {fenced_member} is fenced"
    MEMBER_LEFT = (
        "{member}[ (static: {instance})][ of {client}] left[: {reason}][ ({note})]"
        "[, in its words: {stated}]"
    )
    MEMBER_REMOVED = (
        "{member}[ (static: {instance})][ of {client}] was removed: {reason}[, whose words are:"
        " {stated}]"
    )
    REBALANCE_BEGAN = (
        "rebalance: {before} -> {after}, because {reason}[; waiting for {waiting_for}][, for at most"
        " {timeout}]"
    )
    GENERATION_BEGAN = (
        "generation {generation}[ after {waited}]: {before} -> {after}, leader {leader}, protocol"
        " {protocol}, members {members}[; the last to join was {last}]"
    )
    GROUP_CONVERTED = "the group speaks the {protocol} protocol from now on: {reason}"
    GROUP_EMPTIED = "nobody is left: {before} -> {after}, generation {generation}"
    GROUP_STABLE = "the assignment by the leader {leader} is stored: {before} -> {after}, generation {generation}"
    GROUP_REFUSED = (
        "{request}[ of {member}][ (static: {instance})][ of {client}] was refused with {error}:"
        " {reason}"
    )
    CONSUMER_JOINED = (
        "{member}[ (static: {instance})][ of {client}] joined[; it is subscribed to {topics}]"
    )
    CONSUMER_CHANGED = "{member}[ of {client}] has changed[; it is subscribed to {topics}]"
    CONSUMER_EPOCH = "the group epoch is {epoch}: there is to be a new assignment"
    CONSUMER_ASSIGNED = "assignment of epoch {epoch}: {members}[; the group is {state}]"
    CONSUMER_MOVED = (
        "{member} is at epoch {epoch}, {note}[; it has {partitions}][, and gives {pending} back]"
    )
    SHARE_STATES = (
        "{made} partitions have a state, so that they can be assigned[; {making} are to get one]"
        "[; the states of {deleting} topics are being deleted]"
    )
    OFFSETS_DELETED = "committed offsets were deleted ({reason}[, by {origin}]): {partitions}"
    OFFSETS_RESET = (
        "committed offsets were set by {origin}, which is no member: {partitions}[; {back} records"
        " back][; {ahead} records ahead]"
    )
    GROUP_GONE = "the group is gone: {reason}"

    # --- A record of a share group ---
    SHARE_RECORD_ACQUIRED = (
        "{member}[ of {client}] acquired it: delivery {count}[, again because {because}], with a"
        " lock for {lock}[; together with it offsets {range}]"
    )
    SHARE_RECORD_RENEWED = "{member}[ of {client}] renewed the lock"
    SHARE_RECORD_ACCEPTED = "{member}[ of {client}] accepted it: it is finished"
    SHARE_RECORD_REJECTED = (
        "{member}[ of {client}] rejected it: it is archived, and is not delivered again"
    )
    SHARE_RECORD_GAP = (
        "{member}[ of {client}] acknowledged it as a gap: there is no record for clients at this"
        " offset (it was compacted, or it marks the end of a transaction)"
    )
    SHARE_RECORD_BACK = "{how}, so it is available again after delivery {count}"
    SHARE_RECORD_GIVEN_UP = (
        "{how} after delivery {count}, and share.delivery.count.limit allows no more: it"
        " is archived"
    )
    SHARE_RECORD_REFUSED = "an answer of {member}[ of {client}] was refused with {error}: {reason}"
    SHARE_RECORD_NOT_RECORDED = "the {request} by {member}[ of {client}] could not be stored ({error}), and has had no effect"
    SHARE_RECORD_DEAD_LETTERED = "it has a dead letter at offset {offset}[ of {partitions}]"
    SHARE_RECORD_NOT_DEAD_LETTERED = "it has no dead letter: {reason}"
    SHARE_RECORD_REMOVED = "it is archived: {reason}"
    SHARE_RECORD_LOG_START = (
        "the group's start offset moved to offset {offset}, where the log begins: it is not delivered"
        " any more"
    )
    SHARE_RECORD_RESET = (
        "an administrator reset the offsets of the group[ to offset {offset}]: {note}"
    )
    SHARE_RECORD_LOADED = "the leader loaded the stored state: {note}[, delivery {count}]"
    SHARE_RECORD_FORGOTTEN = (
        "the leader forgot who has which record ({reason}): what is not stored is available again"
    )

    # --- A client ---
    CLIENT_CONNECTED = (
        "connection {connection} from {host}[ to listener {listener}][ as {user}] began[; the client is"
        " {software}]"
    )
    CLIENT_DISCONNECTED = (
        "connection {connection} from {host}[ as {user}] ended after {age} and {requests} requests:"
        " {reason}"
    )

    # --- A partition ---
    LOG_CLEANED = (
        "compacted up to offset {offset} in {took}: {before} -> {after}[; {keyless} records without a key"
        " were dropped][; {note}]"
    )
    CLEANING_FAILED = "a compaction was given up: {reason}"
    CLEANING_STOPPED = "it is not compacted any more until the next start: {reason}"

    # --- A mirror topic ---
    MIRROR_BEGAN = "{partitions}: a mirror sent its first request since the start of the broker"
    MIRROR_APPENDED = "records of the source were appended to {topic}"
    MIRROR_RESTARTED = (
        "{partitions}: the log was started again at offset {offset}, because the source has no"
        " records before it"
    )
    MIRROR_EPOCH_RAISED = "{partitions}: the leader epoch rises to {epoch}, as at the source"
    MIRROR_LOG_START_MOVED = "{partitions}: the log starts at offset {offset} now, as at the source"
    MIRROR_REFUSED = "{partitions}: batches of the mirror were refused with {error}: {reason}"
    MIRROR_PRODUCE_REFUSED = (
        "{partitions}: records of a producer were refused with {error}: the topic is read-only until"
        " it is promoted"
    )
    MIRROR_PROMOTED = (
        "{topic} was promoted to an ordinary topic[; {aborted} open transactions were aborted]"
    )
    MIRROR_NOT_PROMOTED = "a promotion failed with {error}: {reason}"

    # --- Current states ---
    NOW_TRANSACTION = (
        "{state}, producer id {producer_id}, epoch {epoch}[; open for {age}][, {timeout} are allowed]"
        "[; its client is gone: its last connection ended {gone}]"
        "[; partitions {partitions}][; last change {updated} ago][ ({note})]"
    )
    NOW_PRODUCER = (
        "{partitions}: epoch {epoch}[, last batch: sequence {last_sequence} at offset {offset}], the next"
        " sequence is {next_sequence}[; a transaction is open since offset {transaction_offset}]"
        "[; last written {updated} ago][ ({note})]"
    )
    NOW_OWNER = (
        "transactional id {transactional_id} {relation}: {state}, producer id {producer_id}, epoch"
        " {epoch}"
    )
    NOW_GROUP = (
        "{state}[ for {updated}], generation {generation}[, protocol {protocol}][, leader {leader}];"
        " members: {members}; partitions with committed offsets: {offsets}"
    )
    NOW_CONSUMER_GROUP = (
        "{state}, group epoch {epoch}, assignment of epoch {assignment_epoch}; members: {members};"
        " partitions with committed offsets: {offsets}"
    )
    NOW_SHARE_GROUP = (
        "{state}, group epoch {epoch}, assignment of epoch {assignment_epoch}; members: {members};"
        " partitions with a state: {made}[; {making} are to get one][; the states of {deleting}"
        " topics are being deleted]"
    )
    NOW_SHARE_RECORD = "{note}[, delivery {count}][; {reason}]"
    NOW_SHARE_PARTITION = (
        "{partitions}: start offset {offset}, end {end}; in flight: {acquired} with members, {available}"
        " available again, {finished} finished[; {empty}][; {reason}]"
    )
    NOW_MEMBER = (
        "member {member}[ (static: {instance})][ of {client}][, session timeout {timeout}][: {note}]"
        "[; it has {partitions}]"
    )
    NOW_STABLE = "consumers with read_committed get everything, up to offset {offset}"
    NOW_HELD_BACK = (
        "consumers with read_committed stop at offset {offset}, {end} is the end: a transaction[ of"
        " transactional id {transactional_id}][ (producer id {producer_id}, epoch {epoch})] began"
        " there[ and has been open for {age}][; it ends by itself after {timeout}][; {reason}]"
        "[; {more} more are open after it][; end it with `{advice}`]"
    )
    NOW_COMPACTION = (
        "clean up to offset {offset} of {end}; of {total} bytes in closed segments {dirty} are new"
        " ({share}); {reason}"
    )
    NOW_CONNECTED = (
        "connection {connection} from {host}[ to listener {listener}][ as {user}], open for {age}; {requests}"
        " requests[, the last one {request}][; the client is {software}]"
    )
    NOW_MIRROR = (
        "{topic} is a mirror of {source}, with {count} partitions: read-only until it is promoted"
    )
    NOW_NO_MIRROR = "{topic} is no mirror topic: it takes records of producers"
    NOW_MIRRORED = (
        "{partitions}: offsets {start} to {offset}[; {behind} records behind the source, which ended at"
        " {end} when the mirror reported this {told} ago]"
    )
    NOW_VERDICT = (
        "{verdict}: {reason}[: {why}][ of transactional id {transactional_id}][ for {user}][, {detail}]"
        "[; its {client}][; in {partitions}][, and {more} more]"
    )
    NOW_LAG = (
        "the oldest record that it has not read has an age of {age}[ {bound}][, in {partitions}]"
    )
    NOW_NOTHING = "{reason}"


_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_FIELD = re.compile(r"\{(\w+)\}")


def sentence(kind: EventKind, fields: Fields) -> str:
    """The sentence of an event or state. A required field that is missing is shown as `?`."""
    filled = _OPTIONAL.sub(lambda part: _filled(part[1], fields, optional=True), kind.value)
    return _filled(filled, fields, optional=False)


def _filled(part: str, fields: Fields, *, optional: bool) -> str:
    if optional:
        names = _FIELD.findall(part)
        # The values are inserted last, because the text of a field may have braces.
        return part if all(fields.get(name, "") not in ("", ()) for name in names) else ""
    return _FIELD.sub(lambda name: _text(fields.get(name[1], "?")), part)


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return visible(", ".join(value)) if value else "none"
    return visible(str(value))


def describe_client(client_id: str | None, host: str) -> str:
    """A client as events show it, without the slash that Java writes before an address."""
    return f"client {client_id or '(no id)'} at {host.removeprefix('/') or '(unknown)'}"


def duration_text(duration_ms: int) -> str:
    """A duration for people: `640 ms`, `3.2 s`, `12 min`, `5.1 h`, `3.0 d`."""
    if duration_ms < 1_000:
        return f"{max(duration_ms, 0)} ms"
    seconds = duration_ms / 1_000
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    raise AssertionError("a minute or more has a unit")
