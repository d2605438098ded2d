"""Comparison of our broker, Kafka and librdkafka's mock broker on the same rows, in turns.

    python -m benchmarks.race [--rows produce-*,consume-1kb] [--rounds 5] [--scale 1.0]
        [--minutes 55] [--only-ours] [--list] [--json]

Our broker runs twice, with `log.durability` page-cache and fsync. Kafka runs from its jars, with
its default settings and with `log.flush.interval.messages=1`, which flushes before it acknowledges.
The mock is written in C, works in memory, and checks almost nothing. Each broker is started once,
and warmed up with 400 MB. In every round each broker has one turn, and each round begins with a
different broker. Between two turns, the race waits until all brokers are idle, but at most a few
seconds. The records of a run are checked and deleted. After `--minutes` no further row begins, and
the current row has only the rounds that are already finished.

The table has a line for each row, with the median and the range of each broker's figures, and of
the ratios of the rounds. A ratio is above 1 where our broker is better, both for rates and for
milliseconds. A row whose median ratio to Kafka is below 1 is marked **behind**. If a broker cannot
serve a row, the row has a dash in the broker's column, and a note gives the reason. Without Java,
or without both Kafka's jars and Maven to fetch them, the race runs without Kafka, and says so.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from benchmarks.race.contenders import KAFKA_PAGE_CACHE, MOCK, OURS, rest, started, warm
from benchmarks.race.crowd import CONNECTIONS
from benchmarks.race.java import JAVA
from benchmarks.race.librdkafka import CONSUME, ONE_RECORD, PARTITIONS, PRODUCE, TRANSACTIONS
from benchmarks.race.own import OWN
from benchmarks.race.results import Result, tell
from benchmarks.race.rows import Row, Run, Trial, chosen
from benchmarks.race.share import SHARE
from benchmarks.support import Report, Target, parser, say

TRIALS: tuple[Trial, ...] = (
    *PRODUCE,
    *PARTITIONS,
    *TRANSACTIONS,
    *CONSUME,
    *ONE_RECORD,
    *CONNECTIONS,
    *SHARE,
    *JAVA,
    *OWN,
)


class Race:
    """Runs trials, and keeps their results and failures."""

    def __init__(
        self, targets: Sequence[Target], rounds: int, scale: float, minutes: float
    ) -> None:
        self._targets, self._rounds, self._scale = targets, rounds, scale
        self._began_s = time.monotonic()
        self._minutes = minutes
        self.results: list[Result] = []
        self.failures: list[str] = []
        self.ours_failed = False

    @property
    def seconds(self) -> float:
        """Seconds since the race began."""
        return time.monotonic() - self._began_s

    @property
    def over(self) -> bool:
        """True if the time limit of the race has passed."""
        return self.seconds > self._minutes * 60

    def run(self, trial: Trial, rows: Sequence[Row]) -> None:
        """Run all rounds of one trial, but only one round if the time limit has passed. A broker
        that fails is left out of the further rounds."""
        results = [Result(row) for row in trial.rows]
        self.results += [result for result in results if result.row in rows]
        with contextlib.ExitStack() as held:
            runs: dict[str, Run] = {}
            for target in self._targets:
                if target.name != MOCK or trial.mock:
                    with self._blamed(trial, target, runs):
                        runs[target.name] = held.enter_context(trial.at(target, self._scale))
            for number in range(-1 if trial.warm else 0, self._rounds):
                if number > 0 and self.over:
                    break
                shift = number % len(self._targets)
                for target in (*self._targets[shift:], *self._targets[:shift]):
                    run = runs.get(target.name)
                    if run is None:
                        continue
                    rest(self._targets)
                    with self._blamed(trial, target, runs):
                        figures = run()
                        if number >= 0:
                            for result, figure in zip(results, figures, strict=True):
                                result.rounds.setdefault(target.name, []).append(figure)

    @contextlib.contextmanager
    def _blamed(self, trial: Trial, target: Target, runs: dict[str, Run]) -> Iterator[None]:
        """Record a failure inside the block as a failure of the broker, without ending the race."""
        try:
            yield
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a client raises is its result
            runs.pop(target.name, None)
            self.ours_failed |= target.name in OURS
            self.failures.append(f"{trial.rows[0].name}, {target.name}: {error!r}")
            say(f"failed: {self.failures[-1]}")


def race(
    report: Report,
    selected: Sequence[tuple[Trial, tuple[Row, ...]]],
    rounds: int,
    scale: float,
    minutes: float,
    *,
    only_ours: bool,
) -> bool:
    """Run all trials. True if our brokers served every row. Ctrl+C still prints the results so
    far."""
    with (
        tempfile.TemporaryDirectory(prefix="odradek-race-") as folder,
        started(Path(folder), only_ours=only_ours) as targets,
    ):
        for target in targets:
            say(f"warming {target.name}")
            warm(target, scale)
        running = Race(targets, rounds, scale, minutes)
        kafka = any(target.name == KAFKA_PAGE_CACHE for target in targets)
        left_out = []
        try:
            for number, (trial, rows) in enumerate(selected, 1):
                if trial in JAVA and not kafka:
                    say(f"without {trial.rows[0].name}: its client comes with Kafka")
                    continue
                names = ", ".join(row.name for row in rows)
                if running.over:
                    left_out.append(names)
                    continue
                say(f"{number}/{len(selected)} {names} (after {running.seconds:.0f} s)")
                running.run(trial, rows)
        finally:
            tell(report, [result for result in running.results if result.rounds], rounds)
            for failure in running.failures:
                report.note(f"Failed: {failure}")
            if left_out:
                report.note(f"Not measured within {minutes:g} minutes: {', '.join(left_out)}")
    return not running.ours_failed


def _end(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: end brokers and clients as on Ctrl+C."""
    raise KeyboardInterrupt


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", default="", help="names or patterns of rows, with commas")
    options.add_argument("--rounds", type=int, default=5, help="that count")
    options.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    options.add_argument("--minutes", type=float, default=55.0, help="then no other row begins")
    options.add_argument("--only-ours", action="store_true", help="without Kafka and the mock")
    options.add_argument("--list", action="store_true", help="name the rows, and run nothing")
    arguments = options.parse_args()
    if arguments.rounds < 1 or arguments.scale <= 0 or arguments.minutes <= 0:
        options.error("--rounds, --scale and --minutes must be positive")
    try:
        selected = chosen(TRIALS, arguments.rows)
    except ValueError as problem:
        options.error(str(problem))
    if arguments.list:
        for _, rows in selected:
            for row in rows:
                print(f"{row.name:34}{row.title}, {row.unit}")
        return
    signal.signal(signal.SIGTERM, _end)
    report = Report("race", as_json=arguments.json)
    report.machine()
    try:
        whole = race(
            report,
            selected,
            arguments.rounds,
            arguments.scale,
            arguments.minutes,
            only_ours=arguments.only_ours,
        )
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main()
