"""The simulated disk: the effects of a power failure, and those that no file system has."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from odradek.simulation.disk import MemoryFiles


def _written(files: MemoryFiles, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.append([content])
    file.sync()
    file.close()


def _replaced_directory() -> MemoryFiles:
    """`data/t` was durable and is renamed, and another `data/t` takes its place; `data` is not
    synced."""
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


def _outcomes(make: Callable[[], MemoryFiles], seeds: int = 300) -> set[tuple[str, ...]]:
    """The files that power cuts leave, with their content."""
    found = set()
    for seed in range(seeds):
        files = make()
        files.crash(Random(seed))
        found.add(tuple(f"{path}={files.content(path).decode()}" for path in files.paths()))
    return found


def test_a_removed_directory_comes_back_until_its_parent_is_synced() -> None:
    def removed() -> MemoryFiles:
        files = _replaced_directory()
        files.sync_dir("data")
        files.remove_tree("data/t-delete")
        files.remove_tree("data/t")
        return files

    outcomes = _outcomes(removed)
    assert () in outcomes
    everything = ("data/t-delete/log=old", "data/t/log=new", "data/t/topic-id=id of the new one")
    assert everything in outcomes
    files = removed()
    files.sync_dir("data")
    for again in (1, 2):
        files.crash(Random(again))
        assert not files.exists("data/t")


def test_a_new_file_has_content_and_name_or_neither() -> None:
    """Both are synced separately: an unsynced cache may exist without its bytes."""

    def written() -> MemoryFiles:
        files = MemoryFiles()
        files.make_dirs("d")
        files.sync_dir("")
        files.open("d/index", create=True).append([b"ab"])
        return files

    assert _outcomes(written) >= {(), ("d/index=",), ("d/index=a",), ("d/index=ab",)}
    assert ("d/index=\0\0",) in _outcomes(written)


def test_an_unsynced_truncation_is_lost_kept_or_half_written_over() -> None:
    def cut() -> MemoryFiles:
        files = MemoryFiles()
        files.make_dirs("d")
        _written(files, "d/log", b"old")
        for path in ("", "d"):
            files.sync_dir(path)
        file = files.open("d/log")
        file.truncate(0)
        file.truncate(1)
        file.truncate(0)
        file.append([b"xy"])
        return files

    outcomes = _outcomes(cut)
    assert outcomes >= {("d/log=old",), ("d/log=xy",), ("d/log=x",), ("d/log=",)}
    files = cut()
    files.open("d/log").sync()
    files.crash(Random(1))
    assert files.content("d/log") == b"xy"


def test_a_power_cut_may_take_every_unsynced_name_at_once() -> None:
    def many() -> MemoryFiles:
        files = MemoryFiles()
        files.make_dirs("d")
        files.sync_dir("")
        for number in range(20):
            _written(files, f"d/{number}", b"")
        return files

    sizes = {len(outcome) for outcome in _outcomes(many)}
    assert {0, 20} <= sizes
    assert len(sizes) > 2


def test_a_kernel_may_write_one_file_back_before_a_power_cut_and_nothing_of_another() -> None:
    files = MemoryFiles()
    files.make_dirs("t")
    files.sync_dir("")
    _written(files, "t/0.log", b"synced")
    files.sync_dir("t")
    files.open("t/0.log").append([b" and not"])
    files.open("t/1.log", create=True).append([b"new"])
    assert files.unsynced() == ["t/0.log", "t/1.log"]
    assert files.unsynced_content("t/0.log") == b" and not"
    files.take_back("t/0.log")
    files.write_back("t/1.log")
    assert files.unsynced() == []
    files.crash()
    assert files.content("t/0.log") == b"synced"
    assert files.content("t/1.log") == b"new"
