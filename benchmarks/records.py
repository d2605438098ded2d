"""Microbenchmarks of the record layer: microseconds per record, per header, per checksum.

    python benchmarks/records.py            our own numbers
    python benchmarks/records.py --compare  beside aiokafka's Cython codec and kafka-python's

"uniform" batches have values of one length, "mixed" ones of 0.5 to 1.5 times that length, "keyed"
ones a key of 10 to 20 bytes and increasing timestamps as well; "headers" adds one header to
those, "events" gives them timestamps from anywhere in a day.
Each number is the best of several rounds, for one batch of 16 KiB (or ten records, if that is more).
"""

from __future__ import annotations

import argparse
import random
import timeit
from collections.abc import Callable
from typing import Any

from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec, compress, decompress
from odradek_protocol.records import BatchBuilder, iter_batches, read_header, read_records
from odradek_protocol.records.encoding import encode_rows

Row = tuple[int, bytes | None, bytes, list[tuple[str, bytes | None]]]
NOW = 1_700_000_000_000
BATCH_BYTES = 16 * 1024


def best_us(call: Callable[[], object], rounds: int = 7, round_s: float = 0.05) -> float:
    """Microseconds of one call: the best round, each long enough to measure."""
    timer = timeit.Timer(call)
    number = 1
    while (took := timer.timeit(number)) < round_s / 4:
        number *= 2
    number = max(1, int(number * round_s / took))
    return min(timer.repeat(rounds, number)) / number * 1e6


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


def ours(rows: list[Row]) -> list[str]:
    count = len(rows)
    builder = append_all(rows)
    batch = bytes(builder.build())
    header = read_header(batch)
    blocks = builder._blocks
    numbers = (
        best_us(lambda: append_all(rows)) / count,
        best_us(lambda: encode_rows(rows, blocks, NOW)) / count,
        best_us(lambda: append_all(rows).build()) / count,
        best_us(lambda: read_records(batch, 0, header)) / count,
    )
    return [f"{number:8.3f}" for number in numbers]


def foreign(builder_class: Any, reader_class: Any, rows: list[Row]) -> list[str]:
    count = len(rows)
    batch = bytes(append_all_foreign(builder_class, rows))
    build = best_us(lambda: append_all_foreign(builder_class, rows)) / count
    read = best_us(lambda: list(reader_class(batch))) / count
    return [" " * 8, " " * 8, f"{build:8.3f}", f"{read:8.3f}"]


def records(compare: bool) -> None:
    print(f"{'us per record':32}{'append':>8} {'encode':>8} {'a+build':>8} {'read':>8}")
    for value_bytes in (100, 1000):
        for kind in ("uniform", "mixed", "keyed", "headers", "events"):
            rows = rows_of(kind, value_bytes)
            print(f"{f'{kind}, {value_bytes} B':32}" + " ".join(ours(rows)))
            if not compare:
                continue
            from aiokafka.record import default_records as aio
            from kafka.record import default_records as kp

            for name, module in (("aiokafka", aio), ("kafka-python", kp)):
                numbers = foreign(module.DefaultRecordBatchBuilder, module.DefaultRecordBatch, rows)
                print(f"{'  ' + name:32}" + " ".join(numbers))


def pieces() -> None:
    rows = rows_of("mixed", 100)
    builder = append_all(rows)
    batch = bytes(builder.build())
    many = b"".join(append_all(rows).build() for _ in range(64))
    print()
    print(f"{'read_header':32}{best_us(lambda: read_header(batch)):8.3f} us")
    walked = best_us(lambda: list(iter_batches(many))) / 64
    print(f"{'iter_batches, per batch':32}{walked:8.3f} us")
    print(f"{'build again (new sequence)':32}{best_us(lambda: builder.build()):8.3f} us a batch")
    for size in (1024, 16 * 1024, 1024 * 1024):
        data = bytes(size)
        took = best_us(lambda data=data: crc32c(data))  # type: ignore[misc]
        print(f"{f'crc32c of {size:,} B':32}{took:8.3f} us   {size / took / 1000:8.2f} GB/s")
    text = b"".join(b'{"id": %d, "name": "name %d", "ok": true}' % (n, n % 7) for n in range(400))
    for codec in Codec:
        packed = compress(codec, text)
        there = best_us(lambda codec=codec: compress(codec, text))  # type: ignore[misc]
        back = best_us(lambda codec=codec, packed=packed: decompress(codec, packed))  # type: ignore[misc]
        print(
            f"{f'{codec.name.lower()} of {len(text):,} B':32}{there:8.1f} us there {back:8.1f} us back"
            f"   {len(packed):6,} B"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--compare", action="store_true", help="beside aiokafka and kafka-python")
    records(parser.parse_args().compare)
    pieces()
