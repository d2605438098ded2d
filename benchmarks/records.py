"""Microbenchmarks of the record layer: microseconds per record, per header, per checksum.

    python -m benchmarks.records [--compare] [--json]

Each operation is measured with both twins of the record codec, if the compiled twin is in use.
"Arrow" is the decoding of batches into the columns of one Arrow batch. With --compare, aiokafka's
Cython codec and kafka-python's codec are measured too.

"uniform" batches have values of one length, "mixed" batches have values of 0.5 to 1.5 times this
length, and "keyed" batches also have keys of 10 to 20 bytes and increasing timestamps. "headers"
are keyed batches with one header per record, and "events" are keyed batches with timestamps from
anywhere in a day. Each number is the best of several rounds, for one batch of 16 KiB (or ten
records, if that is more).
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.support import Report, best_us, parser, shown

from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec, compress, decompress
from odradek_protocol.records import native
from odradek_protocol.records.arrow import ArrowRows, chosen_columns
from odradek_protocol.records.batch import iter_batches, read_header
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.records.record import read_body, read_records

Row = tuple[int, bytes | None, bytes, list[tuple[str, bytes | None]]]
NOW = 1_700_000_000_000
BATCH_BYTES = 16 * 1024


def rows_of(kind: str, value_bytes: int) -> list[Row]:
    source = random.Random(1)
    count = max(10, BATCH_BYTES // (value_bytes + 10))
    rows: list[Row] = []
    for n in range(count):
        size = (
            value_bytes
            if kind == "uniform"
            else source.randint(value_bytes // 2, value_bytes * 3 // 2)
        )
        keyed = kind in ("keyed", "headers", "events")
        timestamp = NOW + (n // 4 if keyed else 0)
        if kind == "events":
            timestamp = NOW - source.randint(0, 86_400_000)
        key = bytes(source.randint(10, 20)) if keyed else None
        headers: list[tuple[str, bytes | None]] = [("trace", b"0123456789abcdef")]
        rows.append((timestamp, key, bytes(size), headers if kind == "headers" else []))
    return rows


def append_all(rows: list[Row]) -> BatchBuilder:
    builder = BatchBuilder()
    append = builder.append
    for timestamp, key, value, headers in rows:
        append(timestamp, key, value, headers)
    return builder


def append_all_foreign(builder_class: Any, rows: list[Row]) -> bytearray:
    builder = builder_class(2, 0, 0, -1, -1, -1, 1 << 30)
    append = builder.append
    for n, (timestamp, key, value, headers) in enumerate(rows):
        append(n, timestamp, key, value, headers)
    built: bytearray = builder.build()
    return built


def ours(rows: list[Row], codec: Any) -> list[float | None]:
    """The microseconds per record of each operation: append; append and build; read; gather for
    Arrow.

    `codec`: the compiled twin, or None for the twin in pure Python.
    """
    native.CODEC = codec
    count = len(rows)
    builder = append_all(rows)
    batch = bytes(builder.build())
    header = read_header(batch)
    return [
        best_us(lambda: append_all(rows)) / count,
        best_us(lambda: append_all(rows).build()) / count,
        best_us(lambda: read_records(batch, 0, header)) / count,
        best_us(lambda: gather(batch)) / count / _GATHERED,
    ]


#: The number of record batches in an Arrow batch; with several, the cost of the Arrow batch itself
#: hardly matters.
_GATHERED = 32


def gather(batch: bytes) -> None:
    """Decode `_GATHERED` batches into one Arrow batch, as `poll_arrow` does."""
    rows = ArrowRows(chosen_columns(None, include_headers=True))
    for _ in range(_GATHERED):
        header = read_header(batch)
        rows.add("t", 0, header, read_body(batch, 0, header))
    rows.take()


def foreign(builder_class: Any, reader_class: Any, rows: list[Row]) -> list[float | None]:
    """The microseconds per record of another library for the operations of `ours`; None for an
    operation that the library lacks.
    """
    count = len(rows)
    batch = bytes(append_all_foreign(builder_class, rows))
    build = best_us(lambda: append_all_foreign(builder_class, rows)) / count
    read = best_us(lambda: list(reader_class(batch))) / count
    return [None, build, read, None]


def records(report: Report, compare: bool) -> None:
    report.table("Records, us per record", ("batch", "append", "append and build", "read", "Arrow"))

    def row(name: str, numbers: list[float | None]) -> None:
        names = ("append_us", "append_and_build_us", "read_us", "arrow_us")
        report.row(
            [name, *(shown(number, ".3f") for number in numbers)],
            **dict(zip(names, numbers, strict=True)),
        )

    twins: list[tuple[str, Any]] = [("pure", None)]
    if native.CODEC is not None:
        twins.insert(0, ("compiled", native.CODEC))
    for value_bytes in (100, 1000):
        for kind in ("uniform", "mixed", "keyed", "headers", "events"):
            rows = rows_of(kind, value_bytes)
            for twin, codec in twins:
                row(f"{kind}, {value_bytes} B, {twin}", ours(rows, codec))
            native.CODEC = twins[0][1]
            if not compare:
                continue
            from aiokafka.record import default_records as aio
            from kafka.record import default_records as kp

            for name, module in (("aiokafka", aio), ("kafka-python", kp)):
                numbers = foreign(module.DefaultRecordBatchBuilder, module.DefaultRecordBatch, rows)
                row(f"{kind}, {value_bytes} B, {name}", numbers)


def pieces(report: Report) -> None:
    rows = rows_of("mixed", 100)
    builder = append_all(rows)
    batch = bytes(builder.build())
    many = b"".join(append_all(rows).build() for _ in range(64))
    report.table("Batches and checksums", ("what", "us", "GB/s"))

    def row(name: str, took_us: float, size_bytes: int | None = None) -> None:
        rate = None if size_bytes is None else size_bytes / took_us / 1000
        report.row((name, f"{took_us:.3f}", shown(rate, ".2f")), us=took_us, gb_per_s=rate)

    row("read a header", best_us(lambda: read_header(batch)))
    row("iter_batches, per batch", best_us(lambda: list(iter_batches(many))) / 64)
    row("build again (new sequence)", best_us(lambda: builder.build()))
    for size in (1024, 16 * 1024, 1024 * 1024):
        data = bytes(size)
        row(f"crc32c of {size:,} B", best_us(lambda data=data: crc32c(data)), size)  # type: ignore[misc]
    text = b"".join(b'{"id": %d, "name": "name %d", "ok": true}' % (n, n % 7) for n in range(400))
    for codec in Codec:
        packed = compress(codec, text)
        there = best_us(lambda codec=codec: compress(codec, text))  # type: ignore[misc]
        back = best_us(lambda codec=codec, packed=packed: decompress(codec, packed))  # type: ignore[misc]
        name = codec.name.lower()
        row(f"{name}, {len(text):,} B to {len(packed):,} B", there, len(text))
        row(f"{name}, back", back, len(text))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--compare", action="store_true", help="beside aiokafka and kafka-python")
    arguments = options.parse_args()
    report = Report("records", as_json=arguments.json)
    report.machine()
    records(report, arguments.compare)
    pieces(report)


if __name__ == "__main__":
    main()
