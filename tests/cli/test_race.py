"""The benchmark `race` against other brokers: the chosen rows, the comparison, the marks, and the
removal of files and processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from benchmarks.race import java
from benchmarks.race.__main__ import TRIALS, Race
from benchmarks.race.contenders import (
    ALL,
    KAFKA_FLUSHING,
    KAFKA_PAGE_CACHE,
    MOCK,
    OURS_FSYNC,
    OURS_PAGE_CACHE,
)
from benchmarks.race.results import BEHIND, COMPARISONS, Result, shown, tell
from benchmarks.race.rows import MS, Row, Run, Trial, chosen
from benchmarks.support import Report, Target

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 120
RATE = Row("rate", "records")
WAIT = Row("wait", "one record", MS)


def _names(wanted: str) -> list[str]:
    return [row.name for _, rows in chosen(TRIALS, wanted) for row in rows]


def test_every_row_has_a_unique_name() -> None:
    names = _names("")
    assert len(names) == len(set(names)) == sum(len(trial.rows) for trial in TRIALS)


def test_rows_are_picked_by_name_and_by_pattern_in_the_order_of_the_table() -> None:
    assert _names("produce-1kb-16kb") == ["produce-1kb-16kb"]
    picked = _names("own-produce-100b, partitions-*")
    assert picked == [*(f"partitions-{count}" for count in (1, 10, 100, 1000)), "own-produce-100b"]


def test_a_trial_of_several_rows_gives_the_picked_ones() -> None:
    ((trial, rows),) = chosen(TRIALS, "one-record-p99")
    assert len(trial.rows) == 2
    assert [row.name for row in rows] == ["one-record-p99"]


def test_a_name_that_fits_no_row_is_an_error_with_a_list_of_rows() -> None:
    with pytest.raises(ValueError, match=r"'produced'.*produce-1kb-1mb"):
        chosen(TRIALS, "produce-*,produced")


def test_larger_rates_and_smaller_waits_are_ahead() -> None:
    for row, worse, better in ((RATE, 100.0, 200.0), (WAIT, 2.0, 1.0)):
        ahead = Result(row, {OURS_PAGE_CACHE: [better], KAFKA_PAGE_CACHE: [worse]})
        behind = Result(row, {OURS_PAGE_CACHE: [worse], KAFKA_PAGE_CACHE: [better]})
        ratios = [each.ratio(OURS_PAGE_CACHE, KAFKA_PAGE_CACHE) for each in (ahead, behind)]
        assert [ratio.median for ratio in ratios if ratio] == [2.0, 0.5]
        assert ahead.behind() == []
        assert behind.behind() == [COMPARISONS[0][0]]


def test_ratios_are_of_the_same_round() -> None:
    result = Result(RATE, {OURS_FSYNC: [10.0, 40.0, 90.0], KAFKA_FLUSHING: [10.0, 20.0, 30.0]})
    ratio = result.ratio(OURS_FSYNC, KAFKA_FLUSHING)
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 1.0, 3.0)


def test_a_broker_that_failed_later_is_compared_in_its_finished_rounds() -> None:
    result = Result(RATE, {OURS_FSYNC: [10.0, 40.0], KAFKA_FLUSHING: [20.0]})
    ratio = result.ratio(OURS_FSYNC, KAFKA_FLUSHING)
    assert ratio is not None
    assert ratio.median == 0.5
    assert result.ratio(OURS_FSYNC, KAFKA_PAGE_CACHE) is None


def test_the_mock_cluster_is_no_comparison() -> None:
    assert Result(RATE, {OURS_PAGE_CACHE: [1.0], MOCK: [9.0]}).behind() == []


def test_equal_results_are_not_behind() -> None:
    assert Result(RATE, {OURS_FSYNC: [5.0], KAFKA_PAGE_CACHE: [5.0]}).behind() == []


def test_cells_mark_rows_behind_and_dash_missing_results() -> None:
    result = Result(RATE, {OURS_PAGE_CACHE: [300.0], OURS_FSYNC: [100.0], KAFKA_PAGE_CACHE: [200]})
    cells = result.cells()
    assert len(cells) == 1 + len(ALL) + len(COMPARISONS)
    assert cells[0] == "records, MB/s"
    assert [cells[1 + ALL.index(name)] for name in (MOCK, KAFKA_FLUSHING)] == ["-", "-"]
    assert cells[-len(COMPARISONS) :] == [
        "1.50 (1.50-1.50)",
        f"0.50 (0.50-0.50) {BEHIND}",
        "-",
        "-",
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1234.0, 1000.0, 1500.0], "1,234 (1,000-1,500)"),
        ([12.34], "12.3 (12.3-12.3)"),
        ([0.1234, 0.2], "0.16 (0.12-0.20)"),
    ],
)
def test_figures_have_about_three_digits(values: Sequence[float], text: str) -> None:
    assert shown(values) == text


def test_the_table_ends_with_the_rows_that_are_behind(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        Result(RATE, {OURS_PAGE_CACHE: [1.0], KAFKA_PAGE_CACHE: [2.0]}),
        Result(WAIT, {OURS_PAGE_CACHE: [1.0], KAFKA_PAGE_CACHE: [2.0]}),
    ]
    tell(Report("race", as_json=False), results, 1)
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert [BEHIND in line for line in table] == [False, False, True, False]
    assert lines[-1] == f"1 of 2 rows are {BEHIND} Kafka in a comparison: rate."


def test_the_output_of_kafkas_performance_tools_is_parsed() -> None:
    output = (
        "251201 records sent, 50240.2 records/sec (47.91 MB/sec), 556.1 ms avg latency, 917.0 ms max latency.\n"
        "400000 records sent, 263157.9 records/sec (250.97 MB/sec), 97.68 ms avg latency, 331.00 ms max latency,"
        " 88 ms 50th, 217 ms 95th, 228 ms 99th, 230 ms 99.9th.\n"
    )
    assert java.records_sent(output) == (400_000, 263157.9)
    table = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
        " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
        "2026-01-01 00:00:00:000, 2026-01-01 00:00:02:000, 381.4697, 190.7, 400000, 200000.0,"
        " 300, 1700, 224.3, 235294.1\n"
    )
    assert java.records_fetched(f"a warning, or two\n{table}") == (400_000, 235294.1)
    for read in (java.records_sent, java.records_fetched):
        with pytest.raises(ValueError, match=r"no (summary|table)"):
            read("Exception in thread main")


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.race", "--only-ours", "--scale", "0.002", *arguments]


def _left(folder: Path) -> list[str]:
    """Files in the folder, and command lines of processes that name the folder."""
    found = [str(path) for path in folder.iterdir()]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text:
            found.append(text)
    return found


@pytest.mark.full
def test_odradek_alone_runs_every_kind_of_row(tmp_path: Path) -> None:
    rows = (
        *("produce-1kb-16kb", "produce-1kb-16kb-idempotent", "partitions-10", "transactions-10ms"),
        *("consume-1kb", "one-record-*", "connections-10*", "own-*-100b", "java-consume"),
    )
    done = subprocess.run(
        _command("--rounds", "1", "--json", "--rows", ",".join(rows)),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=False,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    about, *lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert about["cores"]
    wanted = [row.name for _, some in chosen(TRIALS, ",".join(rows)) for row in some]
    assert [line["name"] for line in lines] == [name for name in wanted if name != "java-consume"]
    for line in lines:
        assert set(line["rounds"]) == {OURS_PAGE_CACHE, OURS_FSYNC}
        assert all(len(each) == 1 and each[0] > 0 for each in line["rounds"].values())
    assert "without java-consume" in done.stderr
    assert _left(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.full
def test_a_stopped_race_leaves_no_files_or_processes(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        _command("--rounds", "1000", "--rows", "one-record-loaded-p50"),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("1/1 "):
                break
        process.send_signal(number)
        process.communicate(timeout=_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert _left(tmp_path) == []


@pytest.mark.full
def test_rows_can_be_listed_without_a_broker() -> None:
    done = subprocess.run(
        [*_command("--list"), "--rows", "java-*"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    named = [line.split()[0] for line in done.stdout.splitlines()]
    assert named == [row.name for trial in java.JAVA for row in trial.rows]


@contextlib.contextmanager
def _counting(target: Target, scale: float) -> Iterator[Run]:
    """A trial whose figures are 1, 2, 3, ...; Kafka's second run fails."""
    count = 0

    def run() -> tuple[float]:
        nonlocal count
        count += 1
        if target.name == KAFKA_PAGE_CACHE and count > 1:
            raise SystemExit("refused")
        return (float(count),)

    yield run


def _race(minutes: float, trial: Trial) -> Race:
    targets = [Target(name, "", os.getpid()) for name in (OURS_FSYNC, KAFKA_PAGE_CACHE, MOCK)]
    race = Race(targets, 3, 1.0, minutes)
    race.run(trial, trial.rows)
    return race


def test_a_broker_that_fails_is_left_out_of_the_row_and_named() -> None:
    race = _race(60, Trial((RATE,), _counting, mock=False, warm=False))
    (result,) = race.results
    assert result.rounds == {OURS_FSYNC: [1.0, 2.0, 3.0], KAFKA_PAGE_CACHE: [1.0]}
    assert race.failures == [f"rate, {KAFKA_PAGE_CACHE}: SystemExit('refused')"]
    assert not race.ours_failed


def test_the_warm_up_round_is_not_counted() -> None:
    (result,) = _race(60, Trial((RATE,), _counting)).results
    assert result.rounds == {OURS_FSYNC: [2.0, 3.0, 4.0], MOCK: [2.0, 3.0, 4.0]}


def test_a_row_has_one_round_when_the_time_is_used_up() -> None:
    race = _race(1e-9, Trial((RATE,), _counting, warm=False))
    assert race.over
    assert [list(result.rounds.values()) for result in race.results] == [[[1.0]] * 3]


def test_the_mock_cluster_runs_no_consume_rows() -> None:
    reading = [trial for trial in TRIALS if "consume" in trial.rows[0].name]
    assert reading
    assert not any(trial.mock for trial in reading)
