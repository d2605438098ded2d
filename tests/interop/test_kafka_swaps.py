"""Starts of Apache Kafka and of our broker with directories that a killed Apache Kafka left in the
middle of compaction."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kafka_cluster
from killed_kafka import SETTINGS, CleanedByKafka, logs_of
from logs import DIRECTORY, make_log
from odradek_broker.storage.log_options import LogStart
from odradek_testkit.simulation.disk import MemoryFiles

pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).parent / "java" / "Load.java"
_DEADLINE_S = 300.0


def _copy_out(files: MemoryFiles, place: Path) -> None:
    place.mkdir(parents=True)
    for path in files.paths():
        if path.startswith(DIRECTORY):
            (place / path.rpartition("/")[2]).write_bytes(files.content(path))


def test_l46_both_brokers_finish_an_interrupted_compaction_alike(tmp_path: Path) -> None:
    ours: dict[Path, tuple[dict[str, bytes], int, int]] = {}
    what: dict[Path, str] = {}
    for first_source in (0, 1):
        for number, kill in enumerate(CleanedByKafka.make(first_source=first_source).kills()):
            place = tmp_path / f"from-{first_source}" / str(number) / "t-0"
            _copy_out(kill.files, place)
            log = make_log(kill.files, start=LogStart(cleaned=True), **SETTINGS)
            ours[place] = logs_of(kill.files), log.log_start_offset, log.log_end_offset
            what[place] = kill.what
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{place}\n" for place in ours))
    done = subprocess.run(
        [kafka_cluster.java(), "-cp", kafka_cluster.class_path(), str(PROGRAM), str(listed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(str(tmp_path))]
    assert len(lines) == len(ours) > 40
    for line in lines:
        directory, start, end = line.split()
        place = Path(directory)
        kafkas = {path.name: path.read_bytes() for path in place.glob("*.log")}
        assert (kafkas, int(start), int(end)) == ours[place], what[place]
