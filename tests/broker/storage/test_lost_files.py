"""Every file other than the `.log` files is a cache, or is synced before anything depends on it.

Each file of a data directory is removed, emptied, torn, zeroed or changed in single bits, after a
clean stop and after a power cut. The answers after the next start must be the same as before. The
tests use a sample of files and bytes of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest

import budget
from journaled_logs import PATH, World
from logs import EVERYTHING, NOW_MS, append, append_marker, make_batch
from odradek_broker.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from odradek_broker.storage.errors import DataDirectoryError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.retention import segment_facts
from odradek_protocol.records.batch import iter_batches
from odradek_testkit.simulation.disk import MemoryFiles

TOPICS = {
    "plain": "delete",
    "trimmed": "delete",
    "money": "delete",
    "compacted": "compact",
    "compacted-money": "compact",
    "__cluster_metadata": "delete",
    "__consumer_offsets": "compact",
    "__transaction_state": "compact",
}
TRANSACTIONAL = ("money", "compacted-money", "__consumer_offsets")
#: Files that are not caches -> the kinds of stop after which a start needs them.
NO_CACHES = {
    "commit-journal": ("crashed",),
    "meta.properties": ("stopped", "crashed"),
    "log": ("stopped", "crashed"),
}
#: Text files in Kafka's formats, which have no checksums.
TEXTS = (
    RECOVERY_POINTS,
    LOG_STARTS,
    HIGH_WATERMARKS,
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
)
#: The size of an entry in bytes. A file that ends between two entries looks complete.
ENTRY_BYTES = {"index": 8, "timeindex": 12, "txnindex": 34}


class Topics:
    """The topic ids in the metadata."""

    def topic_id(self, topic: str) -> bytes | None:
        return bytes([list(TOPICS).index(topic) + 1]) * 16 if topic in TOPICS else None

    def is_removed(self, topic_id: bytes) -> bool:
        return False


class Answers(NamedTuple):
    """Everything that a log answers."""

    records: bytes
    bounds: tuple[int, int, int, int]
    aborted: list[list[tuple[int, int]]]
    times: list[tuple[int, int] | None]
    latest: tuple[int, int] | None
    ages: list[int]
    epochs: list[tuple[int, int]]
    producers: list[tuple[int, int, int | None]]


def _answers(log: PartitionLog) -> Answers:
    records, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 400, upper_bound=EVERYTHING, minimum_one=True)
        if not piece:
            break
        records += piece
        *_, (_, last) = iter_batches(piece)
        offset = last.next_offset
    ends = range(0, log.log_end_offset + 1, 3)
    return Answers(
        records,
        (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset),
        [sorted(log.aborted_transactions(end, end + 4)) for end in ends],
        [log.offset_for_timestamp(NOW_MS + at, EVERYTHING) for at in range(0, 60, 5)],
        log.max_timestamp_offset(),
        [
            facts.newest_ms()
            for facts in segment_facts(log._segments, log.log_end_offset, log.options.files)
        ],
        list(log.leader_epochs.entries),
        sorted(
            (entry.producer_id, entry.epoch, entry.transaction_first_offset)
            for entry in log._producers.state.entries()
        ),
    )


def _world(files: MemoryFiles) -> World:
    world = World(files, segment_bytes=1_000)
    world.topics = Topics()
    for topic, policy in TOPICS.items():
        world.configs[topic] = replace(world.config, cleanup_policy=frozenset({policy}))
    return world


class Disk(NamedTuple):
    files: MemoryFiles
    answers: dict[str, Answers]


@cache
def _disk(how: str) -> Disk:
    world = _world(MemoryFiles())
    world.start()
    logs = [world.create(topic, Topics().topic_id(topic) or b"") for topic in TOPICS]
    for step in range(24):
        for log in logs:
            producer_id = step % 3
            key = b"%d" % (step % 5)
            transactional = log.topic in TRANSACTIONAL
            append(
                log,
                make_batch(
                    1,
                    key=key,
                    value=bytes(60),
                    timestamp=NOW_MS + (step * 7) % 50,
                    producer_id=producer_id,
                    sequence=step // 3,
                    transactional=transactional,
                ),
            )
            if transactional and step % 6 > 2:
                append_marker(log, commit=step % 4 == 0, producer_id=producer_id)
        if step % 2:
            world.flush(*logs)
        if step == 12:
            world.checkpoint()
            trimmed = logs[list(TOPICS).index("trimmed")]
            # The offset is in the middle of a segment, and has as many digits as the log end
            # offset.
            assert world.logs.delete_records([(trimmed, 11)]) == [11]
            assert 11 not in [segment.base_offset for segment in trimmed.segments]
    world.flush(*logs)
    world.directory.cleaner_offsets["compacted", 0] = 10
    world.directory.cleaner_offsets_writer()()
    world.directory.use_cleaner_offsets()
    world.directory.sync_names()
    assert all(len(log.segments) > 2 for log in logs)
    answers = {log.topic: _answers(log) for log in logs}
    assert all(any(answers[topic].aborted) for topic in TRANSACTIONAL)
    if how == "stopped":
        assert world.stop() == []
    else:
        world.files.crash()
        assert world.files.content(PATH)
    return Disk(world.files, answers)


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if name in NO_CACHES else name.rpartition(".")[2]


def _changes(content: bytes, bits_every: int) -> Iterator[tuple[str, bytes | None]]:
    yield "removed", None
    if not content:
        return
    yield "emptied", b""
    yield "zeroed", bytes(len(content))
    for kept in {len(content) - 1, len(content) // 2}:
        yield f"torn at {kept}", content[:kept]
        yield f"zeros from {kept}", content[:kept] + bytes(len(content) - kept)
    for at in range(len(content) // 2 % bits_every, len(content), bits_every):
        changed = content[at] ^ 1 << at % 8
        yield f"a bit of byte {at}", content[:at] + bytes([changed]) + content[at + 1 :]


def _cuts(kind: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """The file cut at each place between two entries."""
    entry_bytes = ENTRY_BYTES[kind]
    for kept in range(entry_bytes, len(content), entry_bytes):
        yield f"{kept // entry_bytes} of {len(content) // entry_bytes} entries", content[:kept]


def _digits(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The text with one digit changed to another, for each digit."""
    for at, byte in enumerate(content):
        if chr(byte).isdigit():
            changed = content[:at] + bytes([byte ^ 1]) + content[at + 1 :]
            yield f"{chr(byte ^ 1)} at byte {at}", changed


def _check(how: str, damage: Callable[[MemoryFiles], None]) -> None:
    disk = _disk(how)
    files = disk.files.copy()
    damage(files)
    world = _world(files)
    world.start()
    for _ in range(2):
        for log in world.logs:
            assert not log.offline, log.offline_reason
            found, expected = _answers(log), disk.answers[log.topic]
            for name, one, other in zip(Answers._fields, found, expected, strict=True):
                assert one == other, (log.name, name)
        assert len(list(world.logs)) == len(TOPICS)
        # After another start, the rebuilt files still give the same answers.
        assert world.stop() == []
        world.start()
    world.logs.close()


def _table(how: str, kind: str, part: int, bits_every: int) -> None:
    paths = [path for path in _disk(how).files.paths() if _kind(path) == kind]
    for path in paths[::part]:
        for name, changed in _changes(_disk(how).files.content(path), bits_every):
            _check_with(how, path, name, changed)


def _check_with(how: str, path: str, name: str, changed: bytes | None) -> None:
    def damage(files: MemoryFiles) -> None:
        if changed is None:
            files.remove(path)
        else:
            files.put(path, changed)

    try:
        _check(how, damage)
    except Exception as problem:
        raise AssertionError(f"{path}, {name}: {problem!r}") from problem


def _kinds(how: str) -> list[str]:
    kinds = {_kind(path) for path in _disk(how).files.paths()}
    return sorted(kind for kind in kinds if how not in NO_CACHES.get(kind, ()))


CASES = [(how, kind) for how in ("stopped", "crashed") for kind in _kinds(how)]
#: The cases of the short run.
_SHORT_CASES = [case for case in CASES if case[0] == "crashed"][::2]


def test_l05_the_table_has_every_kind_of_file() -> None:
    assert {kind for _, kind in CASES} >= {
        "index",
        "timeindex",
        "txnindex",
        "snapshot",
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
    }


@pytest.mark.parametrize(("how", "kind"), budget.of_which(CASES, _SHORT_CASES))
def test_l05_l33_l35_a_start_without_a_file_answers_the_same(how: str, kind: str) -> None:
    _table(how, kind, 16, 67)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("how", "kind"), CASES)
def test_l05_l33_l35_a_start_with_any_damaged_file_answers_the_same(how: str, kind: str) -> None:
    """The test changes every file of each kind, and six times as many bits as the short test
    does."""
    _table(how, kind, 1, 11)


@pytest.mark.parametrize("kind", budget.of_which(ENTRY_BYTES, ["txnindex"]))
@pytest.mark.parametrize("how", budget.of_which(["stopped", "crashed"], ["crashed"]))
def test_l33_an_index_cut_between_two_entries_is_detected(how: str, kind: str) -> None:
    paths = [path for path in _disk(how).files.paths() if _kind(path) == kind]
    cuts = [(path, *cut) for path in paths for cut in _cuts(kind, _disk(how).files.content(path))]
    assert len(cuts) >= 15
    for path, name, changed in cuts[::3]:
        _check_with(how, path, name, changed)


@pytest.mark.full
@pytest.mark.parametrize("how", budget.of_which(["stopped", "crashed"], ["stopped"]))
@pytest.mark.parametrize("name", TEXTS)
def test_l35_a_changed_digit_in_a_text_file_changes_no_answer(how: str, name: str) -> None:
    """The changed digit is a valid number, and the rest of the file is unchanged."""
    files = _disk(how).files
    in_partition = name in (LEADER_EPOCHS, PARTITION_METADATA)
    path = f"data/trimmed-0/{name}" if in_partition else f"data/{name}"
    if name == HIGH_WATERMARKS and how == "crashed":
        assert not files.exists(path)  # only a clean stop writes the file
        return
    for number, (change, changed) in enumerate(_digits(files.content(path))):
        if number % 2:
            _check_with(how, path, change, changed)


@pytest.mark.parametrize("how", ["stopped", "crashed"])
@pytest.mark.parametrize(
    "kinds",
    [
        ("index", "timeindex", "txnindex"),
        ("index", "timeindex", "txnindex", "snapshot"),
        # The first two files both have log start offsets.
        ("log-start-offset-checkpoint", "point-offset-checkpoint", "replication-offset-checkpoint"),
        ("leader-epoch-checkpoint", "point-offset-checkpoint", "replication-offset-checkpoint"),
    ],
)
def test_l05_a_start_without_any_index_answers_the_same(how: str, kinds: tuple[str, ...]) -> None:
    def damage(files: MemoryFiles) -> None:
        for path in files.paths():
            if path.endswith(kinds):
                files.remove(path)

    _check(how, damage)


@pytest.mark.parametrize("content", [b"", b"version=1\n", b"\0" * 20])
def test_l41_a_start_with_a_damaged_identity_is_refused(content: bytes) -> None:
    """No record has the cluster id, so a start cannot rebuild the file."""
    files = _disk("stopped").files.copy()
    files.put(f"data/{META_PROPERTIES}", content)
    with pytest.raises(DataDirectoryError, match=META_PROPERTIES):
        _world(files).start()


def test_l41_a_changed_digit_of_an_identity_is_refused_or_harmless() -> None:
    disk = _disk("stopped")
    path, refused = f"data/{META_PROPERTIES}", 0
    for _, changed in _digits(disk.files.content(path)):
        files = disk.files.copy()
        files.put(path, changed)
        world = _world(files)
        try:
            world.start()
        except DataDirectoryError as problem:
            assert META_PROPERTIES in str(problem) or "belongs to node" in str(problem)
            refused += 1
            continue
        assert {log.topic: _answers(log) for log in world.logs} == disk.answers
        world.logs.close()
    assert refused
