"""`odradek share dead-letters` and `redeliver`: the records that a share group has given up."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    BrokerOptions,
    Execute,
    connected,
    end_plan,
    print_json,
    print_rows,
    print_table,
    run,
    tell,
)
from odradek_cli.completion import group_names, topic_names
from odradek_cli.options import argument, option
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import uuid_text
from odradek_records.offset_grammar import utc_time

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.consumer.consumer import Consumer
    from odradek_client.structs import ConsumerRecord

_PREFIX = "__dlq.errors."
#: The prefix of the headers that are not Kafka's.
_OUR_PREFIX = "__dlq.odradek."
_TOPIC_SETTING = "errors.deadletterqueue.topic.name"
_ALLOWED = "errors.deadletterqueue.group.enable"
_POLL_MS = 500
#: The time to wait for an existing record.
_READ_MS = 10_000
_DEFAULT_LIMIT = 1_000

Group = Annotated[str, argument("GROUP", "Group id.", group_names)]
Limit = Annotated[int, option("--limit N", "Only the newest N dead letters.", min=1, max=100_000)]


class Letter(NamedTuple):
    """A dead letter, with the position of the given-up record. `topic_id`: the id of its topic in
    Kafka's form; None in the dead letters of Apache Kafka. `timestamp`: the record's time in ms;
    None if unknown."""

    topic: str
    partition: int
    offset: int
    topic_id: str | None
    timestamp: int | None
    delivery_count: int
    reason: str
    record: ConsumerRecord

    @property
    def copied(self) -> bool:
        """True if the record's contents are in the dead letter."""
        record = self.record
        return record.key is not None or record.value is not None or bool(_own_headers(record))

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"

    @property
    def where(self) -> str:
        """The place of the dead letter, and what tells its record from others with the name."""
        topic, partition, offset = self.record[:3]
        named = "without a topic id" if self.topic_id is None else f"of topic id {self.topic_id}"
        return f"{topic}-{partition} at offset {offset}, {named}"

    @property
    def contents(self) -> tuple[Any, ...]:
        """The parts of the record that are produced again, if the dead letter has a copy."""
        return self.copied, self.record.key, self.record.value, _own_headers(self.record)

    def row(self) -> dict[str, Any]:
        """The dead letter in the form of `dead-letters --json`."""
        record = self.record
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "topic_id": self.topic_id,
            "timestamp": self.timestamp,
            "delivery_count": self.delivery_count,
            "reason": self.reason,
            "time": utc_time(record.timestamp),
            "copied": self.copied,
            "dead_letter": {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
            },
        }


def letter_of(record: ConsumerRecord, group: str) -> Letter | None:
    """The dead letter in a record of a dead letter topic; None if it belongs to another group, or
    if the record is no dead letter."""
    named = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    if named.get(f"{_PREFIX}group") != group:
        return None
    timestamp = named.get(f"{_OUR_PREFIX}timestamp")
    try:
        return Letter(
            named[f"{_PREFIX}topic"],
            int(named[f"{_PREFIX}partition"]),
            int(named[f"{_PREFIX}offset"]),
            named.get(f"{_OUR_PREFIX}topic.id"),
            None if timestamp is None else int(timestamp),
            int(named[f"{_PREFIX}delivery.count"]),
            named[f"{_PREFIX}message"],
            record,
        )
    except (KeyError, ValueError):
        return None


def _own_headers(record: ConsumerRecord) -> list[tuple[str, bytes | None]]:
    prefixes = _PREFIX, _OUR_PREFIX
    return [each for each in record.headers if not each[0].startswith(prefixes)]


def told_apart(letters: Iterable[Letter]) -> tuple[list[Letter], list[str]]:
    """The newest dead letter of each record, and the errors of dead letters that may be about one
    record or about several.

    Dead letters with one place name several records if the topic was created again: the topic ids
    tell these apart. Dead letters without topic ids name one record if all have the same contents.
    """
    places: dict[tuple[str, int, int], list[Letter]] = {}
    for letter in letters:
        places.setdefault(letter[:3], []).append(letter)
    chosen: list[Letter] = []
    errors: list[str] = []
    for some in places.values():
        unnamed = [each for each in some if each.topic_id is None]
        if unnamed and all(each.contents == some[-1].contents for each in some):
            chosen.append(some[-1])
            continue
        chosen += {each.topic_id: each for each in some if each.topic_id is not None}.values()
        errors += [
            f"{each.name} cannot be redelivered: it is unknown which of its {len(some)} dead letters"
            f" are about one record; this one is in {each.where}"
            for each in unnamed
        ]
    return chosen, errors


# --- dead-letters ---------------------------------------------------------------------------------


def dead_letters(
    group: Group, brokers: BrokerOptions, limit: Limit = _DEFAULT_LIMIT, as_json: AsJson = False
) -> None:
    """The records that a share group has given up, from its dead letter topic.

    The group's setting errors.deadletterqueue.topic.name names the topic. REASON is from the
    broker: the record was rejected, or delivered as often as the limit allows.
    """

    async def main() -> list[Letter]:
        async with _reader(brokers) as consumer:
            return await _letters(consumer, await _topic(brokers, group), group, limit)

    rows = [letter.row() for letter in run(main())]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ["TOPIC", "PARTITION", "OFFSET", "DELIVERIES", "TIME", "REASON"],
            [
                [
                    row["topic"],
                    str(row["partition"]),
                    str(row["offset"]),
                    str(row["delivery_count"]),
                    row["time"],
                    row["reason"],
                ]
                for row in rows
            ],
            drop="DELIVERIES TIME",
            folds="REASON",
        )
    if not rows:
        tell(f"{group} has no dead letters")


async def _topic(brokers: BrokerOptions, group: str) -> str:
    """The dead letter topic of a group. Ends the program if there is none."""
    from odradek_client.admin import ConfigResource

    resource = ConfigResource.group(group)
    async with brokers.admin() as admin:
        found = (await admin.describe_configs(resource, names=[_TOPIC_SETTING]))[resource]
        entry = found.get(_TOPIC_SETTING)
        if entry is None:
            fail(f"the broker knows no {_TOPIC_SETTING}: it is of Kafka 4.4 and later")
        topic = entry.value
        if not topic:
            fail(
                f"{group} has no dead letter topic; name one with"
                f" `odradek config set group {group} {_TOPIC_SETTING}=dlq.NAME`"
            )
        await _check_topic(admin, group, topic)
    return topic


async def _check_topic(admin: Admin, group: str, topic: str) -> None:
    """End the program if the dead letter topic does not exist, and print a note if it does not
    accept dead letters."""
    from odradek_client.admin import ConfigResource

    if topic not in await admin.list_topics():
        fail(
            f"{topic}, the dead letter topic of {group}, does not exist; make it with"
            f" `odradek topic create {topic} --config {_ALLOWED}=true`"
        )
    resource = ConfigResource.topic(topic)
    allowed = (await admin.describe_configs(resource, names=[_ALLOWED]))[resource].get(_ALLOWED)
    if allowed is not None and allowed.value != "true":
        tell(f"{topic} gets no dead letters: it does not have {_ALLOWED}=true")


@asynccontextmanager
async def _reader(brokers: BrokerOptions) -> AsyncIterator[Consumer]:
    from odradek_client.consumer.consumer import Consumer

    # Reading must not create the topic.
    settings = {**brokers.settings(), "allow_auto_create_topics": False}
    async with connected(Consumer, settings) as consumer:
        yield consumer


async def _letters(consumer: Consumer, topic: str, group: str, limit: int) -> list[Letter]:
    """The newest dead letters of a group, in the order of their partitions and offsets."""
    found: deque[Letter] = deque(maxlen=limit)
    total = 0
    for number in await consumer.partitions_for(topic):
        tp = (topic, number)
        (end,) = (await consumer.end_offsets(tp)).values()
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        while await consumer.position(tp) < end:
            for record in await consumer.poll(_POLL_MS):
                letter = letter_of(record, group) if record.offset < end else None
                if letter is not None:
                    found.append(letter)
                    total += 1
    if total > limit:
        tell(f"{total - limit} older dead letters are left out; --limit shows more")
    return list(found)


# --- redeliver ------------------------------------------------------------------------------------


def redeliver(
    group: Group,
    topic: Annotated[
        str | None, option("--topic -t TOPIC", "The place of one record.", topic_names)
    ] = None,
    partition: Annotated[
        int | None, option("--partition -p P", "The place of one record.", min=0)
    ] = None,
    offset: Annotated[int | None, option("--offset N", "The place of one record.", min=0)] = None,
    topic_id: Annotated[
        str | None, option("--topic-id ID", "Only dead letters of the topic with this id.")
    ] = None,
    everything: Annotated[bool, option("--all", "All records that have a dead letter.")] = False,
    *,
    brokers: BrokerOptions,
    limit: Limit = _DEFAULT_LIMIT,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Take records that a share group has given up, and produce them to their topics again.

    A record is produced to the partition that it came from. Its key, value and headers are taken
    from the dead letter if it has a copy, else from the original record, which the log must still
    have. If the topic was created again, one place has had several records: --topic-id says which
    one is meant, and dead letters that cannot be told apart are listed as errors. Dead letters
    stay: a second redelivery produces the record a second time. Nothing is produced without
    --execute.
    """
    one = (topic, partition, offset)
    if everything and one != (None, None, None):
        fail("--all takes no --topic, --partition or --offset", 2)
    if not everything and None in one:
        fail("say which record: --topic T --partition P --offset N, or --all", 2)
    rows, errors = run(
        _redeliver(brokers, group, None if everything else one, topic_id, limit, execute)
    )
    print_rows("TOPIC PARTITION OFFSET FROM NEW-OFFSET", rows, as_json=as_json, drop="FROM")
    end_plan(rows, errors, "nothing was produced", execute=execute)


async def _redeliver(
    brokers: BrokerOptions,
    group: str,
    one: tuple[str | None, int | None, int | None] | None,
    topic_id: str | None,
    limit: int,
    execute: bool,
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each record that is, or would be, redelivered; and the errors of the other
    records."""
    from odradek_client.errors import OdradekError
    from odradek_client.producer.producer import Producer

    rows: list[dict[str, Any]] = []
    async with _reader(brokers) as consumer:
        letters, errors = await _chosen(brokers, consumer, group, one, topic_id, limit)
        known = await _partitions(brokers, letters)
        chosen: list[tuple[Letter, ConsumerRecord]] = []
        for letter in letters:
            try:
                chosen.append((letter, await _contents(consumer, letter, known)))
            except (OdradekError, LookupError) as error:
                errors.append(f"{letter.name} cannot be redelivered: {error}")
    if not execute:
        return [_row(letter, None) for letter, _ in chosen], errors
    async with connected(Producer, brokers.settings()) as producer:
        for letter, record in chosen:
            try:
                written = await producer.send_and_wait(
                    letter.topic,
                    record.value,
                    record.key,
                    headers=_own_headers(record),
                    partition=letter.partition,
                )
            except OdradekError as error:
                errors.append(f"{letter.name} was not redelivered: {error}")
            else:
                rows.append(_row(letter, written.offset))
    return rows, errors


async def _chosen(
    brokers: BrokerOptions,
    consumer: Consumer,
    group: str,
    one: tuple[str | None, int | None, int | None] | None,
    topic_id: str | None,
    limit: int,
) -> tuple[Sequence[Letter], list[str]]:
    """The selected dead letters, each record once, and the errors of others. Ends the program if
    `one` was asked for and is missing, or if several records have this place; prints a note if the
    group has none at all."""
    topic = await _topic(brokers, group)
    letters = [
        each
        for each in await _letters(consumer, topic, group, limit)
        if one in (None, each[:3]) and topic_id in (None, each.topic_id)
    ]
    chosen, errors = told_apart(letters)
    if one is not None and len(chosen) + len(errors) > 1:
        fail(
            f"{letters[0].name} has dead letters of several records, because the topic was created"
            " again; say which one with --topic-id: "
            + "; ".join(f"{each.where}, at {utc_time(each.record.timestamp)}" for each in letters)
        )
    if not letters and one is not None:
        fail(
            f"{group} has no dead letter of {one[0]}-{one[1]} at offset {one[2]};"
            f" `odradek share dead-letters {group}` lists those that it has"
        )
    if not letters:
        tell(f"{group} has no dead letters")
    return chosen, errors


async def _partitions(
    brokers: BrokerOptions, letters: Sequence[Letter]
) -> dict[tuple[str, int], str]:
    """The existing partitions of the topics that the dead letters name, with the topics' ids."""
    async with brokers.admin() as admin:
        names = {letter.topic for letter in letters}.intersection(await admin.list_topics())
        described = await admin.describe_topics(sorted(names)) if names else {}
        return {
            (name, each.partition): uuid_text(found.topic_id)
            for name, found in described.items()
            for each in found.partitions
        }


async def _contents(
    consumer: Consumer, letter: Letter, known: Mapping[tuple[str, int], str]
) -> ConsumerRecord:
    """The record to produce: the copy in the dead letter, or else the original record. LookupError
    if that record was deleted, if its partition is not in `known`, or if the log may have another
    record at the offset."""
    if (letter.topic, letter.partition) not in known:
        raise LookupError("there is no such partition any more")
    if letter.copied:
        return letter.record
    tp = (letter.topic, letter.partition)
    if letter.topic_id is None:
        raise LookupError(
            "the dead letter has neither a copy nor a topic id, as those of Apache Kafka, so the"
            " record at the offset may be another one"
        )
    if letter.topic_id != known[tp]:
        raise LookupError(
            "the dead letter has no copy, and the topic was created again since, which has deleted"
            " the record"
        )
    (first,) = (await consumer.beginning_offsets(tp)).values()
    (end,) = (await consumer.end_offsets(tp)).values()
    if not first <= letter.offset < end:
        raise LookupError(
            f"the dead letter has no copy, and the record is gone: the log has offsets {first} to"
            f" {end - 1}"
        )
    consumer.assign([tp])
    consumer.seek(tp, letter.offset)
    for _ in range(_READ_MS // _POLL_MS):
        for record in await consumer.poll(_POLL_MS, 1):
            if record.offset == letter.offset:
                if letter.timestamp not in (None, record.timestamp):
                    raise LookupError("the dead letter has no copy, and the log another record")
                return record
            raise LookupError("the dead letter has no copy, and compaction has removed the record")
        if await consumer.position(tp) >= end:
            break
    raise LookupError("the dead letter has no copy, and the record cannot be read")


def _row(letter: Letter, new_offset: int | None) -> dict[str, Any]:
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "from": "copy" if letter.copied else "log",
        "new_offset": new_offset,
    }
