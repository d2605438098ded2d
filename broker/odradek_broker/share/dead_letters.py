"""Dead letters: records of a dead letter topic that stand for records which a share group has given
up (KIP-1191, rules H-202 and H-204).

The headers of a dead letter name the record, as texts: those that begin with `__dlq.errors.` are
Kafka's, and those that begin with `__dlq.odradek.` tell the record from others that had its place,
if its topic was created again. A dead letter with a copy of the record also has the record's key,
value and headers.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import TypeVar

from odradek_broker.share.in_flight import GivenUpBecause
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchHeader, Buffer
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.records.record import Record, iter_records

R = TypeVar("R")

_PREFIX = "__dlq.errors."
TOPIC = f"{_PREFIX}topic"
PARTITION = f"{_PREFIX}partition"
OFFSET = f"{_PREFIX}offset"
GROUP = f"{_PREFIX}group"
DELIVERY_COUNT = f"{_PREFIX}delivery.count"
MESSAGE = f"{_PREFIX}message"
_OUR_PREFIX = "__dlq.odradek."
TOPIC_ID = f"{_OUR_PREFIX}topic.id"
TIMESTAMP = f"{_OUR_PREFIX}timestamp"

#: The limit of a batch of dead letters: a larger batch would keep the broker from other work.
BATCH_BYTES_MAX = 1024 * 1024

Headers = list[tuple[str, bytes | None]]


class DeadLetterOrigin(NamedTuple):
    """A share partition, as dead letters name it."""

    group_id: str
    topic: str
    topic_id: bytes
    partition: int

    @property
    def id_text(self) -> bytes:
        """The topic's id in Kafka's form, 22 characters."""
        return urlsafe_b64encode(self.topic_id).rstrip(b"=")


class DeadLetter(NamedTuple):
    """A record that was given up. `timestamp_ms`: the time of the record, None if the record cannot
    be read. `copied`: the record that the dead letter contains; None if the dead letter has only
    its position."""

    offset: int
    delivery_count: int
    reason: GivenUpBecause
    timestamp_ms: int | None = None
    copied: Record | None = None

    def headers(self, source: DeadLetterOrigin) -> Headers:
        """The headers of the dead letter: first the headers of the record, then the headers that
        name the record."""
        own: Headers = [
            (TOPIC, source.topic.encode()),
            (PARTITION, str(source.partition).encode()),
            (OFFSET, str(self.offset).encode()),
            (GROUP, source.group_id.encode()),
            (DELIVERY_COUNT, str(self.delivery_count).encode()),
            (MESSAGE, self.reason.value.encode()),
            (TOPIC_ID, source.id_text),
        ]
        if self.timestamp_ms is not None:
            own.append((TIMESTAMP, str(self.timestamp_ms).encode()))
        if self.copied is None:
            return own
        # A record that was dead-lettered before and produced again has these headers already.
        prefixes = _PREFIX, _OUR_PREFIX
        kept = [each for each in self.copied.headers if not each[0].startswith(prefixes)]
        return [*kept, *own]


class LetterBatch:
    """Dead letters that are written together."""

    def __init__(self, letters: list[DeadLetter], builder: BatchBuilder) -> None:
        self.letters = letters
        self._builder = builder

    def encoded(self) -> bytearray:
        """The batch; a new copy with each call, because an append changes it."""
        return self._builder.build()


def letter_batches(
    source: DeadLetterOrigin, letters: Iterable[DeadLetter | R], now_ms: int, max_bytes: int
) -> Iterator[LetterBatch | R]:
    """The dead letters in batches of at most `max_bytes`. Whatever else is in `letters`, for which
    the caller may pause, is yielded as it is. A copy that is too large for any batch is left out
    (H-204). A dead letter that is too large even without its copy is alone in a batch that exceeds
    the limit."""
    limit = min(max_bytes, BATCH_BYTES_MAX)
    builder, together = BatchBuilder(), []
    for letter in letters:
        if not isinstance(letter, DeadLetter):
            yield letter
            continue
        if _add(builder, source, letter, now_ms, limit) >= 0:
            together.append(letter)
            continue
        if together:
            yield LetterBatch(together, builder)
        builder, together = BatchBuilder(), []
        if _add(builder, source, letter, now_ms, max_bytes) < 0:
            letter = letter._replace(copied=None)
            _add(builder, source, letter, now_ms, None)
        together.append(letter)
    if together:
        yield LetterBatch(together, builder)


def _add(
    builder: BatchBuilder,
    source: DeadLetterOrigin,
    letter: DeadLetter,
    now_ms: int,
    limit_bytes: int | None,
) -> int:
    copied = letter.copied
    key, value = (None, None) if copied is None else (copied.key, copied.value)
    headers = letter.headers(source)
    if limit_bytes is None:
        return builder.append(now_ms, key, value, headers)
    return builder.append(now_ms, key, value, headers, limit_bytes)


def letters_in(
    batch: Buffer, header: BatchHeader, source: DeadLetterOrigin, first_offset: int
) -> list[tuple[int, int, int]]:
    """The dead letters of a share partition in a batch of a dead letter topic, from an offset on:
    (offset of the record, its deliveries, offset of its dead letter). Raises BatchError.

    Batches with a producer id were not written by this broker, and are ignored (H-206).
    """
    found: list[tuple[int, int, int]] = []
    if header.producer_id != NO_PRODUCER_ID or header.is_control:
        return found
    for record in iter_records(batch, header):
        named = dict(record.headers)
        if record.offset < first_offset or not _is_of(named, source):
            continue
        offset, count = _number(named.get(OFFSET)), _number(named.get(DELIVERY_COUNT))
        if offset is not None and count is not None:
            found.append((offset, count, record.offset))
    return found


def _is_of(named: dict[str, bytes | None], source: DeadLetterOrigin) -> bool:
    return (
        named.get(GROUP) == source.group_id.encode()
        and named.get(TOPIC) == source.topic.encode()
        and named.get(PARTITION) == str(source.partition).encode()
        and named.get(TOPIC_ID, source.id_text) == source.id_text
    )


def _number(text: bytes | None) -> int | None:
    # A stored delivery count has 16 bits, an offset has 63 bits.
    if text is None or not text.isdigit() or len(text) > 18:
        return None
    return int(text)
