"""Costs of validating records when they are produced.

    python -m benchmarks.validation [--rounds 7] [--count 3000] [--json]

First, only the check is measured, in this process: a batch is checked as before an append
(structure, checksum, records), with and without the check of the records. Then three brokers of
ours take turns with the same Produce requests, which have one batch of 16 KB each and are encoded
beforehand. The first broker validates only headers (`record.validation=header`), the second
validates records, and the third validates records without the compiled codec (ODRADEK_PURE). The
result is the processor time of each broker per request; other load on the machine hardly changes
it. The share is the additional time divided by the time of the first broker for the whole request.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
import timeit
from collections.abc import Iterator

from benchmarks.support import Report, Spread, Target, odradek_broker, parser, say

from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.validation import prepare
from odradek_protocol import frames
from odradek_protocol.compression import Codec
from odradek_protocol.keys import api_of
from odradek_protocol.records import native
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_BYTES = 16 * 1024
NOW_MS = 1_700_000_000_000
TOPIC = "bench"
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY)
_VERSION = 9
_IN_FLIGHT = 4
_LETTERS = b'abcdefghijklmnop {}:,"0123456789'


def make_batch(record_bytes: int, codec: Codec) -> bytes:
    """A batch of text that compresses well. Its size before compression, which producers limit by
    `batch.size`, is 16 KB."""
    letters = random.Random(1)
    builder = BatchBuilder(codec)
    while builder.estimated_bytes + record_bytes < BATCH_BYTES:
        value = bytes(letters.choices(_LETTERS, k=record_bytes))
        builder.append(NOW_MS + builder.record_count // 10, b"key", value)
    return bytes(builder.build())


def frame_of(batch: bytes) -> bytes:
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])],
    )
    return b"".join(frames.encode_request(request, _VERSION, 1, "bench"))


def _answers(connection: socket.socket, count: int) -> None:
    """Read `count` answers. An error ends the run."""
    stream = connection.makefile("rb")
    for _ in range(count):
        answer = stream.read(int.from_bytes(stream.read(4), "big"))
        found = frames.decode_response(api_of(ProduceRequest), _VERSION, answer)
        assert isinstance(found, ProduceResponse)
        if found.responses[0].partition_responses[0].error_code:
            raise SystemExit(f"refused: {found}")


def request_us(target: Target, frame: bytes, count: int) -> float:
    """The broker's processor time in microseconds per request, measured with `count` requests."""
    host, port = target.bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before = target.cpu_s()
        for _ in range(count // _IN_FLIGHT):
            connection.sendall(frame * _IN_FLIGHT)
            _answers(connection, _IN_FLIGHT)
        after = target.cpu_s()
    if before is None or after is None:
        raise SystemExit("the processor time of a process cannot be read on this system")
    return (after - before) / (count // _IN_FLIGHT * _IN_FLIGHT) * 1e6


def _create_topic(target: Target) -> None:
    host, port = target.bootstrap.rsplit(":", 1)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(timeout_ms=30_000, topics=[topic])
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"".join(frames.encode_request(request, 7, 1, "bench")))
        stream = connection.makefile("rb")
        stream.read(int.from_bytes(stream.read(4), "big"))


@contextlib.contextmanager
def _brokers() -> Iterator[dict[str, Target]]:
    with contextlib.ExitStack() as stack:
        found = {}
        for name, validation, pure in (
            ("header", "header", "0"),
            ("full", "full", "0"),
            ("full, pure", "full", "1"),
        ):
            os.environ["ODRADEK_PURE"] = pure
            settings = {"record.validation": validation, "log.retention.bytes": 1 << 28}
            found[name] = stack.enter_context(odradek_broker("page-cache", settings, metrics=False))
            _create_topic(found[name])
        os.environ["ODRADEK_PURE"] = "0"
        yield found


def measure(report: Report, rounds: int, count: int) -> None:
    report.table(
        "Broker CPU of a Produce request with one batch of 16 KB, page-cache",
        ("records", "header us", "full us", "more", "pure us", "more, pure"),
    )
    with _brokers() as brokers:
        for record_bytes in (100, 1000):
            for codec in CODECS:
                frame = frame_of(make_batch(record_bytes, codec))
                say(f"{record_bytes} B, {codec.name.lower()}")
                times: dict[str, list[float]] = {name: [] for name in brokers}
                for _ in range(rounds):
                    for name, target in brokers.items():
                        times[name].append(request_us(target, frame, count))
                _row(report, f"{record_bytes} B, {codec.name.lower()}", times)


def _alone_us(batch: memoryview, config: LogConfig) -> float:
    """The processor time in microseconds of one check of a batch in this process, in the best
    round."""
    timer = timeit.Timer(
        lambda: prepare(batch, config, AppendOrigin.CLIENT, NOW_MS), timer=time.process_time
    )
    return min(timer.repeat(25, 100)) / 100 * 1e6


def measure_alone(report: Report) -> None:
    report.table(
        "A batch of 16 KB checked, without a broker",
        ("records", "stored bytes", "header us", "full us", "pure us"),
    )
    compiled = native.CODEC
    for record_bytes in (100, 1000):
        for codec in CODECS:
            batch = memoryview(bytearray(make_batch(record_bytes, codec)))
            times = []
            for validation, twin in (("header", compiled), ("full", compiled), ("full", None)):
                native.CODEC = twin
                config = LogConfig(record_validation=validation)
                times.append(_alone_us(batch, config))
            native.CODEC = compiled
            report.row(
                (
                    f"{record_bytes} B, {codec.name.lower()}",
                    f"{len(batch):,}",
                    *(f"{each:.1f}" for each in times),
                ),
                header_us=times[0],
                full_us=times[1],
                pure_us=times[2],
            )


def _row(report: Report, name: str, times: dict[str, list[float]]) -> None:
    header, full, pure = times.values()
    more = Spread.of([b / a - 1 for a, b in zip(header, full, strict=True)])
    more_pure = Spread.of([b / a - 1 for a, b in zip(header, pure, strict=True)])
    medians = [Spread.of(each).median for each in (header, full, pure)]
    report.row(
        (
            name,
            f"{medians[0]:.0f}",
            f"{medians[1]:.0f}",
            f"{more.median:.0%}",
            f"{medians[2]:.0f}",
            f"{more_pure.median:.0%}",
        ),
        header_us=medians[0],
        full_us=medians[1],
        more=more.median,
        pure_us=medians[2],
        more_pure=more_pure.median,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--count", type=int, default=3000)
    arguments = options.parse_args()
    report = Report("validation", as_json=arguments.json)
    report.machine()
    measure_alone(report)
    measure(report, arguments.rounds, arguments.count)


if __name__ == "__main__":
    main()
