"""Produce: accepted batches, refused ones, and the checks of producer ids and sequences (P, R)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.script import (
    NO_SUCH_ID,
    THEN_MS,
    Ask,
    Batch,
    Receive,
    Scenario,
    Send,
    Step,
    fetch_body,
    produce_body,
    producer,
    scenarios_of,
    topic,
)

_END: Step = Ask("Fetch", fetch_body(), version=11)


def _refused(
    name: str, records: Any, versions: str = "3-13", configs: Mapping[str, str] | None = None
) -> Scenario:
    """A scenario with one Produce request, and a fetch of the partition afterwards."""
    return Scenario(
        name,
        "Produce",
        [*topic(configs=configs), Ask("Produce", produce_body(records)), _END],
        versions,
    )


def _idempotent(
    sequence: int, epoch: int | str = "$pid_epoch", values: Sequence[str] = ("a",), **more: Any
) -> Step:
    batch = Batch(
        values,
        producer_id=more.pop("pid", "$pid"),
        producer_epoch=epoch,
        base_sequence=sequence,
        **more,
    )
    return Ask("Produce", produce_body(batch))


def _sequences(name: str, *steps: Step, versions: str = "3-13") -> Scenario:
    return Scenario(name, "Produce", [*topic(), *producer(None), *steps, _END], versions)


def _cut(batch: bytearray) -> bytearray:
    return batch[:-3]


def _wrong_crc(batch: bytearray) -> bytearray:
    batch[17] ^= 0xFF
    return batch


def _twice(batch: bytearray) -> bytearray:
    return batch + batch


SCENARIOS = [
    *scenarios_of(
        {
            ("produce-and-fetch", "Produce", "3-13"): [
                *topic(),
                Ask("Produce", produce_body(Batch(["a", "b", "c"]))),
                Ask("Produce", produce_body(Batch(["d"]), acks=1)),
                Ask("Fetch", fetch_body()),
            ],
            ("produce-acks-zero-is-seen-by-the-next-request", "Produce"): [
                *topic(),
                Ask("Produce", produce_body(Batch(["a", "b"]), acks=0), answered=False),
                _END,
            ],
            ("produce-acks-zero-refused-closes", "Produce"): [
                *topic(),
                Ask("Produce", produce_body(Batch(edit=_wrong_crc), acks=0), answered=False),
                Ask("Fetch", fetch_body(), version=11),
            ],
            ("produce-to-unknown-topic", "Produce"): [
                Ask("Produce", produce_body(Batch(), name="@unknown", topic_id=NO_SUCH_ID))
            ],
            ("produce-to-unknown-partition", "Produce"): [
                *topic(),
                Ask("Produce", produce_body(Batch(), partition=1)),
                Ask("Produce", produce_body(Batch(), partition=-1)),
            ],
            ("produce-with-odd-acks", "Produce"): [
                *topic(),
                Ask("Produce", produce_body(Batch(), acks=2)),
                Ask("Produce", produce_body(Batch(), acks=-2)),
                _END,
            ],
            ("produce-with-odd-acks-and-no-batch", "Produce", "3-13"): [
                *topic(),
                *(
                    Ask("Produce", produce_body(records, acks=2))
                    for records in (
                        b"",
                        Batch(edit=lambda batch: batch * 2),
                        Batch(edit=lambda batch: batch[:-3]),
                        Batch(edit=lambda batch: batch[:16] + b"\1" + batch[17:]),
                        Batch(header={"crc": 5}),
                        Batch(codec="ZSTD"),
                    )
                ),
                Ask("Produce", produce_body(b"", acks=2, partition=9)),
                _END,
            ],
            ("produce-one-partition-twice", "Produce"): [
                *topic(),
                Ask(
                    "Produce",
                    {
                        "acks": -1,
                        "timeout_ms": 5000,
                        "topic_data": [
                            {
                                "name": "@t",
                                "topic_id": "$t",
                                "partition_data": [
                                    {"index": 0, "records": Batch(["a"])},
                                    {"index": 0, "records": Batch(["b"])},
                                ],
                            }
                        ],
                    },
                ),
            ],
            ("produce-one-topic-twice", "Produce"): [
                *topic(partitions=2),
                Ask(
                    "Produce",
                    {
                        "acks": -1,
                        "timeout_ms": 5000,
                        "topic_data": [
                            {
                                "name": "@t",
                                "topic_id": "$t",
                                "partition_data": [{"index": index, "records": Batch(["a"])}],
                            }
                            for index in (0, 1)
                        ],
                    },
                ),
            ],
            ("produce-good-and-bad-partitions", "Produce"): [
                *topic(partitions=2),
                Ask(
                    "Produce",
                    {
                        "acks": -1,
                        "timeout_ms": 5000,
                        "topic_data": [
                            {
                                "name": "@t",
                                "topic_id": "$t",
                                "partition_data": [
                                    {"index": 0, "records": Batch(["a"])},
                                    {"index": 1, "records": Batch(["b"], edit=_wrong_crc)},
                                    {"index": 2, "records": Batch(["c"])},
                                ],
                            },
                        ],
                    },
                ),
            ],
            ("produce-nothing", "Produce"): [Ask("Produce", {"acks": -1, "timeout_ms": 1000})],
            ("produce-pipelined", "Produce"): [
                *topic(),
                *(Send(Ask("Produce", produce_body(Batch([text])))) for text in "abc"),
                Receive(),
                Receive(),
                Receive(),
                _END,
            ],
        }
    ),
    _refused("produce-empty-records", b""),
    _refused("produce-one-byte", b"\0"),
    _refused("produce-garbage", b"\xff" * 200),
    _refused("produce-half-a-header", Batch(edit=lambda batch: batch[:30])),
    _refused("produce-length-2gb", Batch(edit=lambda batch: batch[:8] + b"\x7f" + batch[9:])),
    _refused("produce-cut-batch", Batch(edit=_cut)),
    _refused("produce-wrong-crc", Batch(edit=_wrong_crc)),
    _refused("produce-two-batches", Batch(edit=_twice)),
    _refused("produce-magic-0", Batch(header={"magic": 0})),
    _refused("produce-magic-1", Batch(header={"magic": 1})),
    _refused("produce-magic-3", Batch(header={"magic": 3})),
    _refused("produce-base-offset-7", Batch(["a", "b"], header={"base_offset": 7})),
    _refused("produce-control-batch", Batch(header={"attributes": 0x20})),
    _refused("produce-transactional-without-id", Batch(header={"attributes": 0x10})),
    _refused("produce-unknown-attributes", Batch(header={"attributes": 0x400})),
    _refused("produce-delete-horizon-bit", Batch(header={"attributes": 0x40})),
    _refused("produce-unknown-codec", Batch(header={"attributes": 0x05})),
    _refused("produce-log-append-bit", Batch(header={"attributes": 0x08})),
    _refused(
        "produce-to-log-append-time-topic",
        Batch(["a", "b"]),
        configs={"message.timestamp.type": "LogAppendTime"},
    ),
    _refused("produce-zero-records", Batch(header={"record_count": 0, "last_offset_delta": -1})),
    _refused("produce-negative-count", Batch(header={"record_count": -1})),
    _refused(
        "produce-more-records-claimed", Batch(header={"record_count": 5, "last_offset_delta": 4})
    ),
    _refused(
        "produce-fewer-records-claimed",
        Batch(["a", "b", "c"], header={"record_count": 2, "last_offset_delta": 1}),
    ),
    _refused("produce-last-offset-delta-only", Batch(["a", "b"], header={"last_offset_delta": 9})),
    _refused("produce-largest-timestamp-too-small", Batch(["a", "b"], header={"max_timestamp": 5})),
    _refused(
        "produce-largest-timestamp-too-large",
        Batch(["a", "b"], header={"max_timestamp": THEN_MS + 5000}),
    ),
    _refused(
        "produce-too-old",
        Batch(["a", "b"]),
        configs={"message.timestamp.before.max.ms": "3600000"},
    ),
    _refused("produce-too-new", Batch(["a", "b"], timestamp_ms=4_000_000_000_000)),
    _refused("produce-no-timestamp", Batch(["a"], timestamp_ms=-1)),
    _refused("produce-too-large", Batch(["x" * 2000]), configs={"max.message.bytes": "1000"}),
    _refused(
        "produce-keyless-to-compacted", Batch(["a", "b"]), configs={"cleanup.policy": "compact"}
    ),
    _refused(
        "produce-keyed-to-compacted",
        Batch(["a", "b"], keys=["k", "k"]),
        configs={"cleanup.policy": "compact"},
    ),
    *(
        _refused(f"produce-{name}", Batch(["a" * 50] * 3, codec=name.upper()))
        for name in ("gzip", "snappy", "lz4", "zstd")
    ),
    _refused(
        "produce-recompressed",
        Batch(["a" * 50] * 3, codec="GZIP"),
        configs={"compression.type": "zstd"},
    ),
    _refused(
        "produce-uncompressed-by-topic",
        Batch(["a"] * 3, codec="GZIP"),
        configs={"compression.type": "uncompressed"},
    ),
    # --- producers with an id ---
    _sequences("sequence-in-order", _idempotent(0, values="abc"), _idempotent(3), _idempotent(4)),
    _sequences("sequence-repeated", _idempotent(0, values="ab"), _idempotent(0, values="ab")),
    _sequences(
        "sequence-repeated-older",
        *(_idempotent(n) for n in range(5)),
        _idempotent(0),
        _idempotent(5),
        _idempotent(0),
    ),
    _sequences(
        "sequence-partial-overlap", _idempotent(0, values="abc"), _idempotent(0, values="ab")
    ),
    _sequences("sequence-gap", _idempotent(0), _idempotent(2)),
    _sequences("sequence-begins-late", _idempotent(7), _idempotent(8)),
    _sequences("sequence-negative", _idempotent(-1)),
    _sequences("sequence-wraps", _idempotent(2147483646, values="abc"), _idempotent(1)),
    _sequences("epoch-newer-from-zero", _idempotent(0), _idempotent(0, epoch="$pid_epoch+1")),
    _sequences("epoch-newer-not-from-zero", _idempotent(0), _idempotent(1, epoch="$pid_epoch+1")),
    _sequences(
        "epoch-older", _idempotent(0, epoch=1), _idempotent(0, epoch=0), _idempotent(1, epoch=1)
    ),
    _sequences("epoch-negative", _idempotent(0, epoch=-1)),
    _sequences("producer-id-unknown", _idempotent(0, pid=987654321, epoch=3)),
]
