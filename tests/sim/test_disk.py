"""The simulated disk: what a power failure takes, and what no file system does."""

from __future__ import annotations

from random import Random

import pytest

from odradek.simulation.disk import MemoryFiles


def _written(files: MemoryFiles, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.append([content])
    file.sync()
    file.close()


def _replaced_directory() -> MemoryFiles:
    """`data/t` was durable, is renamed, and another `data/t` takes its place; `data` is not synced."""
    files = MemoryFiles()
    files.make_dirs("data/t")
    _written(files, "data/t/log", b"old")
    for path in ("", "data", "data/t"):
        files.sync_dir(path)
    files.rename("data/t", "data/t-delete")
    files.make_dirs("data/t")
    _written(files, "data/t/log", b"new")
    _written(files, "data/t/topic-id", b"id of the new one")
    files.sync_dir("data/t")
    return files


@pytest.mark.parametrize("seed", range(40))
def test_a_renamed_directory_keeps_its_files_together(seed: int) -> None:
    files = _replaced_directory()
    files.crash(Random(seed))
    if "data/t/log" in files.paths() and files.content("data/t/log") == b"old":
        assert files.paths() == ["data/t/log"], "nothing of the new directory lies in the old one"
    else:
        assert files.content("data/t-delete/log") == b"old"


def test_both_outcomes_of_an_unsynced_rename_occur() -> None:
    outcomes = set()
    for seed in range(40):
        files = _replaced_directory()
        files.crash(Random(seed))
        outcomes.add("data/t-delete/log" in files.paths())
    assert outcomes == {True, False}


def test_a_synced_rename_is_there() -> None:
    files = _replaced_directory()
    files.sync_dir("data")
    files.crash()
    assert files.content("data/t-delete/log") == b"old"
    assert files.content("data/t/log") == b"new"
