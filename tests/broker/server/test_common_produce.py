"""The hand-written codec of Produce changes nothing (D7, P-06 to P-23, T-60 to T-62, Q-01, R-03 to
R-08).

Two nodes get the same requests, and one of them has only the generated codec. Their answers, files,
state and counters must be equal.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from logs import NOW_MS, make_batch
from odradek_broker.deferred import Deferred
from odradek_broker.quotas.client_quotas import CLIENT_ID, USER, QuotaKey, quota_entity
from odradek_broker.storage.errors import StorageError
from odradek_protocol import codec, frames
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import update_crc
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_testkit.simulation.disk import DiskFailure
from produce_worlds import (
    DENIED,
    TOPICS,
    Denying,
    ProduceWorld,
    check_one_batch,
)

VERSIONS = list(ProduceRequest.versions)
pytestmark = pytest.mark.usefixtures("codec_twin")

PRODUCER = 7
OTHERS = ["stamped"]
EVERYBODY = quota_entity([(USER, None), (CLIENT_ID, None)])


@dataclass(frozen=True)
class Sent:
    """A Produce request. The default values describe the simplest request."""

    version: int = 9
    topic: str = "orders"
    partition: int = 0
    acks: int = -1
    timeout_ms: int = 1000
    client_id: str | None = "me"
    transactional_id: str | None = None
    batch: Callable[[], bytes | None] = lambda: bytes(make_batch(3))
    #: The number of additional batches, which are for partition 1 of each topic.
    beside: int = 0
    topics: int = 1
    #: A change of the encoded frame. The frame begins with the API key.
    change: Callable[[bytearray], bytes] = bytes


def request_of(sent: Sent, *topic_ids: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=sent.partition, records=sent.batch())]
    data += [
        PartitionProduceData(index=1, records=bytes(make_batch(1))) for _ in range(sent.beside)
    ]
    topics = [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
        for name, topic_id in zip([sent.topic, *OTHERS], topic_ids, strict=False)
    ]
    return ProduceRequest(
        transactional_id=sent.transactional_id,
        acks=sent.acks,
        timeout_ms=sent.timeout_ms,
        topic_data=topics,
    )


def frame_of(world: ProduceWorld, sent: Sent) -> bytes:
    names = [sent.topic, *OTHERS][: sent.topics]
    request = request_of(sent, *(world.topic_id(name) for name in names))
    parts = frames.encode_request(request, sent.version, 77, sent.client_id)
    return sent.change(bytearray(b"".join(parts)[4:]))


Step = Callable[[ProduceWorld], None]


def both(steps: list[Sent | Step], **settings: str) -> ProduceWorld:
    """Play the steps on two nodes, and compare the nodes after each step; returns the node with the
    hand-written codec."""
    common = ProduceWorld(common_codec=True, **settings)
    generated = ProduceWorld(common_codec=False, **settings)
    for step in steps:
        for world in (common, generated):
            if isinstance(step, Sent):
                world.send(frame_of(world, step))
            else:
                step(world)
        traces, expected = common.traces(), generated.traces()
        for name in expected:
            assert traces[name] == expected[name], (name, step)
    for world in (common, generated):
        world.flush()
        world.pass_time(100_000)
        world.flush()
    assert common.traces() == generated.traces()
    return common


# --- Steps ----------------------------------------------------------------------------------------


def flush(world: ProduceWorld) -> None:
    world.flush()


def hang_up(world: ProduceWorld) -> None:
    world.hang_up()


def wait(duration_ms: int) -> Step:
    return lambda world: world.pass_time(duration_ms)


def fail(kind: str, **more: Any) -> Step:
    def step(world: ProduceWorld) -> None:
        world.files.fail(DiskFailure(kind, **more))

    return step


def heal(world: ProduceWorld) -> None:
    world.files.heal()
    world.node.maintain()


def delete(topic: str) -> Step:
    def step(world: ProduceWorld) -> None:
        if topic in world.node.metadata.topics:
            with suppress(StorageError):
                world.delete(topic)

    return step


def quota(key: QuotaKey, limit: float | None) -> Step:
    return lambda world: world.node.quotas.update(EVERYBODY, key, limit)


def deny(world: ProduceWorld) -> None:
    world.node.authorizer = Denying()


def marker(*, commit: bool, epoch: int = 0) -> Step:
    return lambda world: world.end_transaction("orders", PRODUCER, epoch, commit=commit)


def verifier(**given: Any) -> Step:
    def step(world: ProduceWorld) -> None:
        for name, value in given.items():
            setattr(world.verifier, name, value)

    return step


def release(world: ProduceWorld) -> None:
    if world.verifier.held:
        world.verifier.release()


def read_data(world: ProduceWorld) -> None:
    """Wait for data, as a parked fetch does."""
    partition = world.node.partition("orders", 0)
    if partition is not None:
        partition.data_waiters[lambda _: world.replies.append((-1, "data"))] = None


def up_to(end: int) -> Callable[[bytearray], bytes]:
    return lambda frame: bytes(frame[:end])


# --- Batches --------------------------------------------------------------------------------------


def numbered(sequence: int, count: int = 2, **more: Any) -> Callable[[], bytes]:
    given = {"producer_id": PRODUCER, "sequence": sequence, **more}
    return lambda: bytes(make_batch(count, **given))


def in_transaction(sequence: int, **more: Any) -> Callable[[], bytes]:
    return numbered(sequence, transactional=True, **more)


def altered(batch: Callable[[], bytes], position: int, value: int, *, sound: bool) -> Any:
    """The batch with one byte changed. `sound`: the checksum is corrected."""

    def build() -> bytes:
        content = bytearray(batch())
        content[position % len(content)] = value
        if sound:
            update_crc(content, 0)
        return bytes(content)

    return build


TRANSACTIONAL = Sent(transactional_id="tx", version=11)

STORIES: dict[str, list[Sent | Step]] = {
    **{
        f"version {version}": [
            Sent(version=version),
            Sent(version=version, acks=1, client_id=None),
            Sent(version=version, acks=0, client_id=""),
            flush,
            Sent(version=version, topic="stamped"),
            Sent(version=version, batch=numbered(0)),
            Sent(version=version, batch=numbered(0)),
            flush,
            Sent(version=version, batch=numbered(9)),
            Sent(version=version, topic="absent"),
            Sent(version=version, partition=5),
            Sent(version=version, acks=7),
        ]
        for version in VERSIONS
    },
    "compressed, stamped, checked or believed": [
        Sent(topic=topic, version=version, batch=batch)
        for topic in TOPICS
        for version in (6, 7, 13)
        for batch in (
            lambda: bytes(make_batch(2, codec=Codec.GZIP)),
            lambda: bytes(make_batch(2, codec=Codec.ZSTD)),
            lambda: bytes(make_batch(2, key=None)),
            lambda: bytes(make_batch(2, timestamp=NOW_MS + 10**8)),
            lambda: bytes(make_batch(40)),
            altered(lambda: bytes(make_batch(2)), 22, 8, sound=True),
            altered(lambda: bytes(make_batch(2)), 60, 9, sound=True),
        )
    ],
    "no batch, two, an old one, damage": [
        Sent(acks=acks, batch=batch)
        for acks in (-1, 0)
        for batch in (
            lambda: None,
            lambda: b"",
            lambda: bytes(61),
            lambda: bytes(make_batch(1)) * 2,
            lambda: bytes(make_batch(1)) + b"more",
            lambda: bytes(make_batch(1))[:-1],
            altered(lambda: bytes(make_batch(1)), 16, 1, sound=False),
            altered(lambda: bytes(make_batch(1)), -1, 99, sound=False),
            altered(lambda: bytes(make_batch(1)), 22, 0x20, sound=True),
            altered(lambda: bytes(make_batch(1)), 22, 0x10, sound=True),
        )
    ],
    "duplicates, gaps and old epochs": [
        *[Sent(batch=numbered(sequence)) for sequence in (0, 2, 4, 6, 8, 10)],
        Sent(batch=numbered(10)),
        flush,
        Sent(batch=numbered(4)),
        Sent(batch=numbered(0)),
        Sent(batch=numbered(20)),
        Sent(batch=numbered(0, epoch=1)),
        Sent(batch=numbered(12)),
        Sent(batch=numbered(5, epoch=2)),
        Sent(batch=numbered(-1)),
    ],
    "a transaction": [
        replace(TRANSACTIONAL, batch=in_transaction(0)),
        replace(TRANSACTIONAL, batch=in_transaction(2)),
        replace(TRANSACTIONAL, batch=in_transaction(2)),
        replace(TRANSACTIONAL, batch=in_transaction(4), acks=0),
        flush,
        replace(TRANSACTIONAL, batch=in_transaction(6), transactional_id=None),
        replace(TRANSACTIONAL, batch=numbered(6)),
        replace(TRANSACTIONAL, batch=in_transaction(6, epoch=1)),
        marker(commit=True),
        replace(TRANSACTIONAL, batch=in_transaction(6)),
        flush,
        marker(commit=False),
        flush,
        replace(TRANSACTIONAL, batch=in_transaction(8), version=13),
        replace(TRANSACTIONAL, batch=in_transaction(10), version=13),
        flush,
    ],
    "a transaction that waits for its coordinator": [
        verifier(holding=True),
        replace(TRANSACTIONAL, batch=in_transaction(0)),
        replace(TRANSACTIONAL, batch=in_transaction(2)),
        wait(10),
        release,
        replace(TRANSACTIONAL, batch=in_transaction(4)),
        flush,
        marker(commit=True),
        replace(TRANSACTIONAL, batch=in_transaction(6)),
        wait(1000),
        release,
        flush,
        verifier(holding=False, error=ErrorCode.INVALID_TXN_STATE),
        marker(commit=True),
        replace(TRANSACTIONAL, batch=in_transaction(8)),
    ],
    "the disk is slow": [
        Sent(timeout_ms=100),
        Sent(timeout_ms=0),
        Sent(timeout_ms=-5),
        Sent(timeout_ms=100, acks=0),
        wait(0),
        wait(60),
        Sent(timeout_ms=100, topic="stamped"),
        Sent(timeout_ms=300),
        wait(40),
        wait(60),
        flush,
        Sent(timeout_ms=100),
        wait(100),
        flush,
    ],
    "the disk is full": [
        fail("append", code=errno.ENOSPC, torn_bytes=10, path_part="orders"),
        Sent(),
        Sent(),
        fail("append", code=errno.ENOSPC, for_ever=True),
        Sent(batch=numbered(0)),
        Sent(acks=0),
        heal,
        Sent(batch=numbered(0)),
        flush,
    ],
    "the disk fails at a write": [
        Sent(),
        fail("append", torn_bytes=10),
        fail("truncate"),
        Sent(),
        Sent(),
        flush,
    ],
    "the disk fails at a flush": [
        Sent(),
        Sent(acks=1),
        Sent(acks=0),
        Sent(batch=numbered(0)),
        fail("sync"),
        flush,
        Sent(),
        Sent(acks=0),
    ],
    "the topic is deleted": [Sent(), Sent(acks=0), delete("orders"), Sent(), flush],
    "the peer is gone": [Sent(), Sent(topic="stamped"), hang_up, flush],
    "quotas": [
        quota(QuotaKey.PRODUCER_BYTE_RATE, 50.0),
        Sent(),
        Sent(acks=0),
        flush,
        Sent(client_id=None),
        quota(QuotaKey.PRODUCER_BYTE_RATE, None),
        quota(QuotaKey.REQUEST_PERCENTAGE, 0.01),
        Sent(),
        Sent(version=3),
        flush,
        quota(QuotaKey.REQUEST_PERCENTAGE, None),
        Sent(),
    ],
    "rights": [
        deny,
        Sent(),
        Sent(topic=f"{DENIED}-orders"),
        replace(TRANSACTIONAL, batch=in_transaction(0)),
        replace(TRANSACTIONAL, batch=in_transaction(2), transactional_id=DENIED),
        replace(TRANSACTIONAL, batch=in_transaction(2)),
        flush,
    ],
    "the broker's own topic": [Sent(topic="__consumer_offsets"), Sent(topic="__cluster_metadata")],
    "several batches": [Sent(beside=1), Sent(topics=2), Sent(topics=2, beside=2), flush],
    "readers wait": [read_data, Sent(), flush, Sent(topic="stamped"), flush],
    "segments are rolled": [
        Sent(topic="rolling"),
        wait(2000),
        Sent(topic="rolling", batch=lambda: bytes(make_batch(1, timestamp=NOW_MS + 2000))),
        flush,
    ],
    "frames that end early or late": [
        *[Sent(change=up_to(-cut)) for cut in (1, 2, 3, 40, 90)],
        Sent(change=lambda frame: bytes(frame) + b"\0"),
        Sent(change=lambda frame: bytes(frame[:2]) + b"\0\1" + bytes(frame[4:])),
        Sent(change=lambda frame: bytes(frame[:2]) + b"\0\x40" + bytes(frame[4:])),
        Sent(change=lambda frame: bytes(frame[:10]) + b"\xff" + bytes(frame[11:])),
        *[Sent(change=up_to(end)) for end in range(16)],
    ],
    "tags": [
        # Tagged fields in the header, the partition, the topic and the request.
        Sent(change=lambda frame: bytes(frame[:12]) + b"\1\x07\1x" + bytes(frame[13:])),
        Sent(change=lambda frame: bytes(frame[:-1]) + b"\1\x07\1x"),
        Sent(change=lambda frame: bytes(frame[:-2]) + b"\1\x07\1x\0"),
        Sent(change=lambda frame: bytes(frame[:-3]) + b"\1\x07\1x\0\0"),
    ],
    "lengths that are longer than they need be": [
        # The lengths of the topics and of the topic's name have two bytes, although one would
        # suffice.
        Sent(change=lambda frame: bytes(frame[:20]) + b"\x82\0" + bytes(frame[21:])),
        Sent(change=lambda frame: bytes(frame[:21]) + b"\x87\0" + bytes(frame[22:])),
    ],
}


@pytest.mark.parametrize(
    ("durability", "validation"), [("page-cache", "full"), ("fsync", "full"), ("fsync", "header")]
)
@pytest.mark.parametrize("story", STORIES)
def test_d7_both_produce_codecs_have_the_same_effects(
    story: str, durability: str, validation: str
) -> None:
    both(STORIES[story], log_durability=durability, record_validation=validation)


@pytest.mark.parametrize("version", VERSIONS)
def test_d7_common_produce_requests_do_not_use_the_generated_decoder(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ProduceWorld(common_codec=True, log_durability="page-cache")
    sent = [
        Sent(version=version),
        Sent(version=version, acks=0),
        Sent(version=version, batch=numbered(0)),
        Sent(version=version, batch=numbered(0)),
        Sent(version=version, topic="stamped"),
        Sent(version=version, topic="absent"),
        Sent(version=version, client_id=None),
        Sent(version=version, batch=lambda: bytes(make_batch(2, codec=Codec.LZ4))),
        replace(TRANSACTIONAL, version=version, batch=in_transaction(0)),
    ]
    requests = [frame_of(world, each) for each in sent]
    monkeypatch.setattr(codec, "decode", lambda *_: pytest.fail("decoded"))
    for request in requests:
        world.send(request)
    assert sum(isinstance(reply, bytes) for _, reply in world.replies) == len(sent) - 1


@pytest.mark.parametrize("common_codec", [True, False])
@pytest.mark.parametrize(
    "sent",
    [Sent(), Sent(acks=0), Sent(beside=1), Sent(topics=2, version=13)],
    ids=["one batch", "acks=0", "two partitions", "two topics"],
)
def test_p22_a_produce_that_waits_for_the_disk_does_not_keep_its_frame(
    common_codec: bool, sent: Sent
) -> None:
    """A connection may have hundreds of waiting requests, each of 1 MB."""
    world = ProduceWorld(common_codec=common_codec, log_durability="fsync")
    memory = bytearray(frame_of(world, sent))
    reply = world.dispatcher.answer(world.peer, memoryview(memory))
    assert isinstance(reply, Deferred) and not reply.done
    memory.clear()  # BufferError if a view of it is left
    world.flush()
    assert reply.done


def test_q09_a_request_quota_throttles_common_produce_requests() -> None:
    world = ProduceWorld(common_codec=True, log_durability="page-cache")
    quota(QuotaKey.REQUEST_PERCENTAGE, 0.01)(world)
    for _ in range(9):
        world.send(frame_of(world, Sent()))
    assert world.node.metrics.throttled_requests


SENT = st.builds(
    Sent,
    version=st.integers(3, 13),
    topic=st.sampled_from([*TOPICS, "absent", "__consumer_offsets"]),
    partition=st.sampled_from([0, 0, 0, 1, 9]),
    acks=st.sampled_from([-1, -1, 0, 1, 2]),
    timeout_ms=st.sampled_from([0, 100, 1000, -1]),
    client_id=st.sampled_from(["me", "", None, "äöü", "x" * 300]),
    transactional_id=st.sampled_from([None, None, "tx", ""]),
    batch=st.one_of(
        st.builds(
            lambda count, codec, at: lambda: bytes(make_batch(count, codec=codec, timestamp=at)),
            st.integers(1, 20),
            st.sampled_from(Codec),
            st.sampled_from([NOW_MS, NOW_MS + 1500, NOW_MS + 10**8, -1]),
        ),
        st.builds(
            numbered,
            st.integers(0, 8).map(lambda half: 2 * half),
            epoch=st.integers(0, 1),
            transactional=st.booleans(),
        ),
        st.builds(
            altered,
            st.just(numbered(0)),
            st.integers(0, 200),
            st.integers(0, 255),
            sound=st.booleans(),
        ),
    ),
    beside=st.sampled_from([0, 0, 0, 0, 1]),
)
STEPS: Any = st.one_of(
    SENT,
    SENT,
    SENT,
    st.sampled_from(
        [
            flush,
            flush,
            wait(50),
            wait(500),
            hang_up,
            heal,
            marker(commit=True),
            marker(commit=False, epoch=1),
            verifier(holding=True),
            verifier(holding=False),
            release,
            read_data,
            quota(QuotaKey.PRODUCER_BYTE_RATE, 100.0),
            quota(QuotaKey.PRODUCER_BYTE_RATE, None),
            fail("append", code=errno.ENOSPC),
            fail("append", torn_bytes=3),
            fail("sync", path_part="orders"),
            delete("stamped"),
        ]
    ),
)


@settings(max_examples=budget.examples(40))
@given(steps=st.lists(STEPS, max_size=25), durability=st.sampled_from(["page-cache", "fsync"]))
def test_d7_both_produce_codecs_have_the_same_effects_for_random_steps(
    steps: list[Any], durability: str
) -> None:
    both(steps, log_durability=durability)


def few_bytes() -> bytes:
    """Fewer bytes than a batch header has. The magic byte among them is 2."""
    return bytes(16) + b"\2" + bytes(30)


@pytest.mark.parametrize("version", VERSIONS)
def test_n06_both_produce_codecs_agree_on_a_change_of_any_byte_around_records(version: int) -> None:
    """Each byte is changed, including those of lengths, counts and tags."""
    builds: list[Callable[[], bytes]] = [lambda: bytes(make_batch(1)), few_bytes]
    for batch in builds:
        request = request_of(Sent(batch=batch, transactional_id="tx"), bytes(16))
        frame = b"".join(frames.encode_request(request, version, 77, "me"))[4:]
        records = batch()
        before = frame.index(records)
        places = [*range(before), *range(before + len(records), len(frame))]
        check_one_batch(memoryview(bytearray(frame)))
        for place in places:
            for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
                changed = bytearray(frame)
                changed[place] = value
                check_one_batch(memoryview(changed))


@given(data=st.data(), version=st.integers(3, 13), sent=SENT)
def test_n06_both_produce_codecs_agree_on_randomly_changed_frames(
    data: Any, version: int, sent: Sent
) -> None:
    """Any bytes are changed, removed or inserted."""
    request = request_of(sent, bytes(16))
    parts = frames.encode_request(request, version, 77, sent.client_id)
    frame = bytearray(b"".join(parts)[4:])
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, min(len(frame), 120)))
        frame[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    check_one_batch(memoryview(frame))
