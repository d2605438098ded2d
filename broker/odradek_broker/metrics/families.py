"""Families of metrics as lines of Prometheus' text format; each sample becomes a line immediately.

A broker with ten thousand partitions has more than a hundred thousand samples. So samples are not
kept as objects, the text of labels may be shared by many families (`labels_text`), and the
generators of samples yield `PAUSE`, at which the reader may pause for other work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar

#: The type of keys that can be sorted.
K = TypeVar("K", bound=Any)

#: A point in the stream of families at which the caller may pause for other work.
PAUSE: Final = None

#: The number of keys that are sorted without a pause.
_SORTED_AT_ONCE = 1_000
#: The number of lines in a part of an encoded family; each part is made without a pause.
_PART_LINES = 1_000
_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    """The labels of a sample: `{topic="t",partition="0"}`; empty without labels. Raises ValueError
    if the numbers of names and values differ."""
    if not names and not values:
        return ""
    pairs = zip(names, values, strict=True)
    inside = ",".join([f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in pairs])
    return f"{{{inside}}}"


class Family:
    """A metric with its samples. `value`: for a metric without labels, the value of its only
    sample."""

    __slots__ = ("_lines", "labels", "name", "sample")
    kind = "gauge"
    suffix = ""

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), value: float | None = None
    ) -> None:
        self.name = name
        self.labels = labels
        #: The name of the family's plain samples; others have this name and a suffix (`_sum`).
        self.sample = name + self.suffix
        head = self.sample
        self._lines = [
            f"# HELP {head} {text.translate(_HELP_ESCAPES)}\n# TYPE {head} {self.kind}\n"
        ]
        if value is not None:
            self.add_line("", value)

    def add_metric(self, labels: Sequence[str], value: float) -> None:
        self.add_line(labels_text(self.labels, labels), value)

    def add_line(self, place: str, value: float) -> None:
        """Add a sample whose labels are text already."""
        self._lines.append(f"{self.sample}{place} {float(value)!r}\n")

    def _add(self, suffix: str, place: str, value: float) -> None:
        self._lines.append(f"{self.name}{suffix}{place} {float(value)!r}\n")

    def encoded(self) -> bytes:
        """The family in Prometheus' text format."""
        return b"".join(self.parts())

    def parts(self) -> Iterator[bytes]:
        """The encoded family in parts of limited length. Each line is returned only once, so that
        its memory can be freed with its part. To free a hundred thousand lines together would take
        milliseconds.
        """
        lines, self._lines = self._lines, []
        for first in range(0, len(lines), _PART_LINES):
            part = lines[first : first + _PART_LINES]
            lines[first : first + _PART_LINES] = [""] * len(part)
            yield "".join(part).encode()


class Gauge(Family):
    """A number that goes up and down."""

    __slots__ = ()


class Counter(Family):
    """A number that only grows; its samples end in `_total`."""

    __slots__ = ()
    kind = "counter"
    suffix = "_total"


class Summary(Family):
    """The number and the sum of observations."""

    __slots__ = ()
    kind = "summary"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        count_value: float | None = None,
        sum_value: float | None = None,
    ) -> None:
        super().__init__(name, text, labels)
        if count_value is not None and sum_value is not None:
            self.add_summary((), count_value, sum_value)

    def add_summary(self, labels: Sequence[str], count: float, total: float) -> None:
        """Add the number and the sum of some observations."""
        place = labels_text(self.labels, labels)
        self._add("_count", place, count)
        self._add("_sum", place, total)


class HistogramFamily(Family):
    """Observations counted in buckets, each with its upper bound as text; the last is `+Inf`."""

    __slots__ = ()
    kind = "histogram"

    def add_buckets(
        self, labels: Sequence[str], buckets: Iterable[tuple[str, float]], total: float
    ) -> None:
        """Add the cumulative counts of the buckets, and the sum of all observations."""
        names = [*self.labels, "le"]
        count = 0.0
        for bound, count in buckets:
            self._add("_bucket", labels_text(names, [*labels, bound]), count)
        place = labels_text(self.labels, labels)
        self._add("_count", place, count)
        self._add("_sum", place, total)


Work = Callable[[], None]
"""Work for another thread than the event loop's; the next family needs the result."""

Families = Iterator[Family | Work | None]
"""Families, with the places between their samples where the caller may pause, and with work."""


def in_order(keys: Iterable[K]) -> Generator[None, None, Iterator[K]]:
    """The sorted keys, as the result of `yield from`. The keys are sorted in steps, with a `PAUSE`
    after each step."""
    left = iter(keys)
    runs = []
    while run := sorted(islice(left, _SORTED_AT_ONCE)):
        runs.append(run)
        yield PAUSE
    return merge(*runs)


def gathered(families: Families) -> Iterator[Family]:
    """The families, without pauses between them."""
    for each in families:
        if isinstance(each, Family):
            yield each
        elif each is not None:
            each()
