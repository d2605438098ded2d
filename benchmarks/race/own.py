"""The rows of our own client."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

from benchmarks.client_consume import odradek_getmany
from benchmarks.client_produce import CLIENTS
from benchmarks.clients import PARTITIONS, fill, values_of
from benchmarks.race.contenders import topic_at
from benchmarks.race.rows import THOUSANDS_PER_S, Row, Run, Trial
from benchmarks.support import Target

_RECORDS = {100: 300_000, 1000: 100_000}
_produce = CLIENTS["odradek send_nowait"]


def _values(size: int, scale: float) -> list[bytes]:
    return values_of(size, max(PARTITIONS, int(_RECORDS[size] * scale)))


@contextlib.contextmanager
def _producing(size: int, target: Target, scale: float) -> Iterator[Run]:
    values = _values(size, scale)

    def run() -> Sequence[float]:
        with topic_at(target) as topic:
            return (len(values) / 1000 / _produce(target.bootstrap, topic, values),)

    yield run


@contextlib.contextmanager
def _consuming(size: int, target: Target, scale: float) -> Iterator[Run]:
    values = _values(size, scale)
    count = len(values)

    def run() -> Sequence[float]:
        took_s = odradek_getmany(target.bootstrap, topic, count, PARTITIONS)
        return (count / 1000 / took_s,)

    with topic_at(target, PARTITIONS) as topic:
        fill(target.bootstrap, topic, values)
        del values
        yield run


def _trials() -> Iterator[Trial]:
    for size, text in ((1000, "1 KB"), (100, "100 B")):
        name = text.replace(" ", "").lower()
        row = Row(f"own-produce-{name}", f"our client produces {text} in 16 KB", THOUSANDS_PER_S)
        yield Trial((row,), functools.partial(_producing, size))
        row = Row(f"own-consume-{name}", f"our client consumes {text}", THOUSANDS_PER_S)
        yield Trial((row,), functools.partial(_consuming, size), mock=False)


OWN = tuple(_trials())
