"""Checkpoints of Spark queries, translated for another cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek_mirror.checkpoint import CheckpointError, NotTranslatable, translate_checkpoint

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'


def checkpoint(folder: Path, batches: list[list[str]], *, ended: int | None = None) -> Path:
    """Make a checkpoint. `batches`: for each batch, its lines about the sources. The first `ended`
    batches are committed (None: all batches)."""
    for name in ("offsets", "commits", "state/0/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"cc61e73d"}')
    (folder / "state/0/0/1.delta").write_bytes(b"\x00state")
    for number, lines in enumerate(batches):
        (folder / f"offsets/{number}").write_text("\n".join(["v1", SETTINGS, *lines]))
        (folder / f"offsets/.{number}.crc").write_bytes(b"crc\0old")
    for number in range(len(batches) if ended is None else ended):
        (folder / f"commits/{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def plus_1000(topic: str, partition: int, offset: int) -> int:
    if offset > 500:
        raise NotTranslatable("the mirror has copied it up to 500 only")
    return offset + 1000 * (partition + 1)


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")


def test_offsets_are_translated_and_everything_else_is_kept(tmp_path: Path) -> None:
    lines = [['{"flights": {"0": 7, "1": 3}}', '{"logOffset":4}', "17"]] * 2
    lines.append(['{"flights": {"0": 20, "1": 5}}', '{"logOffset":5}', "-"])
    source = checkpoint(tmp_path / "old", lines)

    found = translate_checkpoint(source, tmp_path / "new", {"flights"}, plus_1000)

    assert found.batch == 2
    assert found.ends == {("flights", 0): (20, 1020), ("flights", 1): (5, 2005)}
    first, last = tmp_path / "new/offsets/0", tmp_path / "new/offsets/2"
    assert lines_of(first)[:2] == ["v1", SETTINGS]
    assert json.loads(lines_of(first)[2]) == {"flights": {"0": 1007, "1": 2003}}
    assert lines_of(first)[3:] == ['{"logOffset":4}', "17"]
    assert json.loads(lines_of(last)[2]) == {"flights": {"0": 1020, "1": 2005}}
    assert not (tmp_path / "new/offsets/.0.crc").exists()
    assert (tmp_path / "new/state/0/0/1.delta").read_bytes() == b"\x00state"
    assert (tmp_path / "new/metadata").read_text() == '{"id":"cc61e73d"}'
    assert lines_of(source / "offsets/2")[2] == '{"flights": {"0": 20, "1": 5}}'


def test_the_first_offsets_of_sparks_own_format_are_translated(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":7}}']])
    (source / "sources/0").mkdir(parents=True)
    (source / "sources/0/0").write_bytes(b'\0v1\n{"flights":{"0":4}}')

    translate_checkpoint(source, tmp_path / "new", {"flights"}, plus_1000)

    content = (tmp_path / "new/sources/0/0").read_bytes()
    assert content == b'\0v1\n{"flights": {"0": 1004}}'


def test_special_offsets_are_not_translated(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":-2,"1":-1}}']])
    translate_checkpoint(source, tmp_path / "new", {"flights"}, plus_1000)
    assert json.loads(lines_of(tmp_path / "new/offsets/0")[2]) == {"flights": {"0": -2, "1": -1}}


def refusal(source: Path, target: Path, **options: bool) -> str:
    with pytest.raises(CheckpointError) as refused:
        translate_checkpoint(source, target, {"flights"}, plus_1000, **options)
    assert not target.exists()
    return str(refused.value)


def test_a_batch_that_has_not_ended_is_refused_unless_it_may_be_repeated(tmp_path: Path) -> None:
    lines = [['{"flights":{"0":7}}'], ['{"flights":{"0":9}}']]
    source = checkpoint(tmp_path / "old", lines, ended=1)
    assert "batch 1" in refusal(source, tmp_path / "new")

    found = translate_checkpoint(source, tmp_path / "new", {"flights"}, plus_1000, unfinished=True)
    assert found.batch == 1 and found.ends == {("flights", 0): (9, 1009)}


def test_a_first_batch_that_has_not_ended_is_always_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":7}}']], ended=0)
    assert "the first offset of the batch" in refusal(source, tmp_path / "new", unfinished=True)


def test_offsets_beyond_the_copied_ones_are_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":501}}']])
    assert "offset 501 of flights-0: the mirror has copied" in refusal(source, tmp_path / "new")


def test_topics_that_are_not_mirrored_are_refused_or_kept(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":7}}', '{"other":{"0":8}}']])
    assert "reads the topic other" in refusal(source, tmp_path / "new")

    found = translate_checkpoint(source, tmp_path / "new", {"flights"}, plus_1000, keep_others=True)
    assert found.kept == {"other"}
    assert json.loads(lines_of(tmp_path / "new/offsets/0")[3]) == {"other": {"0": 8}}


def test_folders_that_are_no_checkpoint_or_exist_already_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is no checkpoint" in refusal(tmp_path / "empty", tmp_path / "new")
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":7}}']])
    (tmp_path / "there").mkdir()
    with pytest.raises(CheckpointError, match="exists already"):
        translate_checkpoint(source, tmp_path / "there", {"flights"}, plus_1000)
    none = checkpoint(tmp_path / "none", [])
    assert "has no batch yet" in refusal(none, tmp_path / "new")
    rate = checkpoint(tmp_path / "rate", [["17"]])
    assert "no source of the query" in refusal(rate, tmp_path / "new")


def test_an_unknown_checkpoint_format_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":7}}']])
    (source / "offsets/0").write_text("v2\n{}\n{}")
    assert "begins with 'v2'" in refusal(source, tmp_path / "new")


def test_leftovers_of_a_killed_translation_are_replaced(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old", [['{"flights":{"0":7}}']])
    (tmp_path / "new.unfinished/offsets").mkdir(parents=True)
    (tmp_path / "new.unfinished/offsets/9").write_text("half")
    translate_checkpoint(source, tmp_path / "new", {"flights"}, plus_1000)
    assert not (tmp_path / "new/offsets/9").exists()
