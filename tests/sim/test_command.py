"""`python -m tests.sim`: arguments, Ctrl+C, failing seeds that are kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sim import __main__ as command
from tests.sim import workers
from tests.sim.mutants import MUTANTS, Catch
from tests.sim.mutants.table import BEGIN, END, table, write_table
from tests.sim.regressions import read_regressions
from tests.sim.run import run_seed


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["simulation", *arguments])
    return command.main()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seeds -1", "argument --seeds: '-1' is not a whole number from 1 on"),
        ("--seed 0", "argument --seed: '0' is not a whole number from 1 on"),
        ("--seed x", "argument --seed: 'x' is not a whole number from 1 on"),
        ("--minutes 0", "argument --minutes: '0' is not a number of minutes above 0"),
        ("--minutes nan", "argument --minutes: 'nan' is not a number of minutes above 0"),
        ("--seeds 3 --workload cooking", "argument --workload: invalid choice: 'cooking'"),
        ("--trace", "--trace needs --seed"),
        ("--seeds 3 --trace", "--trace needs --seed"),
        ("--seed 3 --from 2", "--from goes with --seeds or --minutes"),
        ("--mutants --from 2", "--from goes with --seeds or --minutes"),
        ("--from 5 --seeds 4", "--from 5 is behind the last seed, 4"),
        ("--seeds 3 --table t.md", "--table needs --mutants"),
        ("--mutants --keep f", "--keep goes with --seed, --seeds or --minutes"),
        ("--seed 1 --seeds 2", "not allowed with argument --seed"),
    ],
)
def test_contradictory_arguments_are_refused(
    arguments: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *arguments.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.full
def test_a_failing_seed_is_minimised_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant = MUTANTS["the broker checks neither sequence numbers nor duplicates"]
    file = tmp_path / "kept.jsonl"
    with mutant.patched():
        arguments = f"--workload {mutant.workload} --seed {mutant.seed} --keep {file}"
        assert call(monkeypatch, *arguments.split()) == 1
        (kept,) = read_regressions(file)
        again = kept.run()
    told = capsys.readouterr().out
    assert f"VIOLATED: {mutant.workload}, seed {mutant.seed}" in told
    assert f"kept in {file}" in told
    assert again.violations[0] == kept.violated
    whole = run_seed(mutant.workload, mutant.seed)
    assert len(kept.faults) < len(whole.faults)
    assert kept.run().violations == [], "without the bug it passes"


_WORKER_ENDED = (
    r"python -m tests.sim: error: a worker process ended before its work, as one that is"
    r" killed or finds no memory; it was running \w[\w-]*, seeds? \d+( to \d+)?\n"
)


@pytest.fixture
def endless(repository: Path) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.sim", "--minutes", "5", "--workload", "produce"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=repository,
    )
    yield running
    running.kill()
    running.communicate()


def workers_of(running: subprocess.Popen[bytes]) -> list[int]:
    """The ids of the command's worker processes; waits until there are some."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and running.poll() is None:
        if found := children.read_text().split():
            return [int(each) for each in found]
        time.sleep(0.05)
    raise AssertionError("no worker was started")


@pytest.mark.full
def test_ctrl_c_ends_quietly_with_the_number_of_runs(endless: subprocess.Popen[bytes]) -> None:
    workers_of(endless)
    os.killpg(endless.pid, signal.SIGINT)
    out, err = endless.communicate(timeout=60)
    assert endless.returncode == 130
    assert err == b""
    assert re.fullmatch(rb"\d+ runs in .* 0 with violations\n", out)


@pytest.mark.full
def test_a_killed_worker_ends_the_run_with_an_error(
    endless: subprocess.Popen[bytes],
) -> None:
    os.kill(workers_of(endless)[0], signal.SIGKILL)
    out, err = endless.communicate(timeout=120)
    assert endless.returncode == 1
    assert re.fullmatch(_WORKER_ENDED, err.decode()), err
    assert b" runs in " in out


#: A worker is killed after writing half of its result: the reader must not wait for the other half.
_DIES_WHILE_IT_ANSWERS = """
import os, signal, sys
from multiprocessing.connection import Connection
from tests.sim.__main__ import main

parent = os.getpid()

def half(self, buf, write=os.write):
    if os.getpid() == parent:
        return send(self, buf, write)
    os.write(self.fileno(), bytes(buf)[: len(buf) // 2])
    os.kill(os.getpid(), signal.SIGKILL)

send, Connection._send = Connection._send, half
sys.argv[1:] = "--seeds 2 --workload damaged-batches".split()
sys.exit(main())
"""


@pytest.mark.full
def test_a_worker_killed_during_its_answer_ends_the_run_with_an_error(
    repository: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIES_WHILE_IT_ANSWERS],
        cwd=repository,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(_WORKER_ENDED, done.stderr.decode()), done.stderr


def slow_at_first(number: int) -> int:
    time.sleep(0.0 if number else 0.5)
    return -number


def test_a_slow_task_delays_later_results_and_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "worker_count", lambda: 2)
    numbers = range(60)
    assert list(workers.in_workers(slow_at_first, numbers)) == [(each, -each) for each in numbers]


def test_the_table_of_mutants_is_written_into_a_document(tmp_path: Path) -> None:
    first, second = list(MUTANTS)[:2]
    catches = [Catch(first, 7, "produce: b'a' | b'b' is nowhere"), Catch(second, None)]
    document = tmp_path / "reliability.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_table(document, catches)
    assert document.read_text() == f"before\n{BEGIN}\n\n{table(catches)}\n\n{END}\nafter\n"
    assert (
        f"| {first} | `{MUTANTS[first].workload}` | 7 | produce: b'a' \\| b'b' is nowhere |"
        in table(catches)
    )
    assert f"| {second} | `{MUTANTS[second].workload}` | not caught |  |" in table(catches)
    document.write_text("nothing to replace")
    with pytest.raises(ValueError, match="lacks the lines"):
        write_table(document, catches)


def test_only_a_message_of_its_checker_catches_a_mutant() -> None:
    mutant = MUTANTS["offset commits of an older generation are accepted"]
    assert mutant.is_caught_by("committed: orders-0: 3 is committed, after 7 was observed")
    assert not mutant.is_caught_by("liveness: 60000 ms after the faults: nothing was asked")
