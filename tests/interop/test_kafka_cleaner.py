"""Apache Kafka's cleaner and ours clean the same directories of our broker: the resulting files
must be the same, byte by byte (L-23 to L-26)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kafka_cluster
from compaction import compact
from compaction_history import RETENTION_MS, CompactedHistory
from logs import DIRECTORY
from odradek_protocol.compression import Codec
from odradek_testkit.simulation.disk import MemoryFiles

pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).parent / "java" / "Clean.java"
_DEADLINE_S = 300.0
_ROUNDS = 4
_SEEDS = range(12)
_INDEX_INTERVAL_BYTES = 100


class Rounds:
    """A history that is cleaned several times, with the files before and after each cleaning."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.history = CompactedHistory(
            seed, codecs=(Codec.NONE,), index_interval_bytes=_INDEX_INTERVAL_BYTES
        )
        self.folder = folder
        self.jobs: list[str] = []
        self.after: dict[Path, dict[str, bytes]] = {}

    def run(self) -> None:
        history = self.history
        for number in range(_ROUNDS):
            for _ in range(history.random.randint(10, 40)):
                history.step()
            history.flush()
            place = self.folder / f"round-{number}" / "t-0"
            copy_out(history.files, place)
            first_dirty = history.cleaned_to or 0
            history.cleaned_to = compact(
                history.log, history.files, history.now_ms, history.cleaned_to
            )
            self.jobs.append(
                f"{place} {history.config['segment_bytes']} {_INDEX_INTERVAL_BYTES} {RETENTION_MS}"
                f" {first_dirty} {history.now_ms}"
            )
            self.after[place] = closed_segments(
                {
                    path.rpartition("/")[2]: history.files.content(path)
                    for path in history.files.paths()
                    if path.startswith(DIRECTORY)
                }
            )
            history.now_ms += history.random.choice((0, 100, 600))


def copy_out(files: MemoryFiles, place: Path) -> None:
    """Write a partition's directory to the disk of this machine."""
    place.mkdir(parents=True)
    for path in files.paths():
        name = path.rpartition("/")[2]
        if path.startswith(DIRECTORY) and not name.endswith(".deleted"):
            (place / name).write_bytes(files.content(path))


def closed_segments(content: dict[str, bytes]) -> dict[str, bytes]:
    """The files of all segments but the active one. Empty indexes are left out: such a file may
    exist or not."""
    active = max(name for name in content if name.endswith(".log"))
    return {
        name: data
        for name, data in content.items()
        if name.endswith((".log", ".index", ".timeindex", ".txnindex"))
        and name[:20] != active[:20]
        and (data or name.endswith(".log"))
    }


def test_l23_l24_l26_kafkas_cleaner_writes_the_same_files(tmp_path: Path) -> None:
    cleanings = [Rounds(seed, tmp_path / f"seed-{seed}") for seed in _SEEDS]
    for each in cleanings:
        each.run()
    jobs = [job for each in cleanings for job in each.jobs]
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(jobs) + "\n")
    done = subprocess.run(
        [kafka_cluster.java(), "-cp", kafka_cluster.class_path(), str(PROGRAM), str(listed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == f"{len(jobs)} of {len(jobs)}"
    for each in cleanings:
        for place, ours in each.after.items():
            kafkas = closed_segments({path.name: path.read_bytes() for path in place.iterdir()})
            assert kafkas == ours, place
