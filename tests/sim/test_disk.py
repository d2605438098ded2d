"""The simulated disk after a power failure: the outcomes that can occur, and those that no file
system has."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from odradek_testkit.simulation.disk import MemoryFiles
from odradek_testkit.simulation.shortage import CHANGES, LastBytes, ScarceRoom


def _written(files: MemoryFiles, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.append([content])
    file.sync()
    file.close()


def _replaced_directory() -> MemoryFiles:
    """A disk on which the durable directory `data/t` was renamed and another `data/t` was created;
    the parent directory `data` was not synced afterwards."""
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


def test_a_synced_rename_survives_a_power_cut() -> None:
    files = _replaced_directory()
    files.sync_dir("data")
    files.crash()
    assert files.content("data/t-delete/log") == b"old"
    assert files.content("data/t/log") == b"new"


def _outcomes(make: Callable[[], MemoryFiles], seeds: int = 300) -> set[tuple[str, ...]]:
    """The different contents of the disk that power cuts leave, as (path=content, ...)."""
    found = set()
    for seed in range(seeds):
        files = make()
        files.crash(Random(seed))
        found.add(tuple(f"{path}={files.content(path).decode()}" for path in files.paths()))
    return found


def test_a_removed_directory_may_return_until_its_parent_is_synced() -> None:
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


def test_an_unsynced_new_file_may_keep_its_name_and_part_of_its_content() -> None:
    """The name and each part of the content become durable independently of each other."""

    def written() -> MemoryFiles:
        files = MemoryFiles()
        files.make_dirs("d")
        files.sync_dir("")
        files.open("d/index", create=True).append([b"ab"])
        return files

    assert _outcomes(written) >= {(), ("d/index=",), ("d/index=a",), ("d/index=ab",)}
    assert ("d/index=\0\0",) in _outcomes(written)


def test_an_unsynced_truncation_may_be_lost_kept_or_partly_overwritten() -> None:
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


def test_one_file_may_be_written_back_before_a_power_cut_without_another() -> None:
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


def _prepared() -> MemoryFiles:
    """A disk with a directory, a log, and a file of blocks."""
    files = MemoryFiles()
    files.make_dirs("d")
    _written(files, "d/log", b"old")
    _written(files, "d/blocks", bytes(8_192))
    for path in ("", "d"):
        files.sync_dir(path)
    return files


def _refused(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except OSError as problem:
        assert problem.errno == errno.ENOSPC
        return True
    return False


def test_a_nearly_full_disk_writes_the_part_that_fits() -> None:
    files = _prepared()
    files.shortage = LastBytes(files.used_bytes, 5)
    log = files.open("d/log")
    assert not _refused(lambda: log.append([b"abc"]))
    assert _refused(lambda: log.append([b"defg"]))
    assert files.content("d/log") == b"oldabcde"
    assert _refused(lambda: files.open("d/new", create=True))
    assert _refused(lambda: files.make_dirs("e/f"))
    assert not files.exists("d/new") and not files.exists("e")
    log.truncate(3)
    files.open_blocks("d/blocks").write_at(0, [b"in place"])
    files.rename("d/log", "d/renamed")
    assert not _refused(lambda: log.append([b"five."]))
    assert files.content("d/renamed") == b"oldfive."
    files.remove("d/blocks")
    assert not _refused(lambda: files.open("d/new", create=True))


def test_every_change_may_fail_on_a_full_copy_on_write_disk() -> None:
    files = _prepared()
    files.shortage = ScarceRoom(Random(1), 1.0)
    log = files.open("d/log")
    changes = {
        "append": lambda: log.append([b"abc"]),
        "make_dirs": lambda: files.make_dirs("e"),
        "open": lambda: files.open("d/new", create=True),
        "remove": lambda: files.remove("d/log"),
        "rename": lambda: files.rename("d/log", "d/renamed"),
        "truncate": lambda: log.truncate(0),
        "write_at": lambda: files.open_blocks("d/blocks").write_at(0, [bytes(4_096)]),
    }
    assert set(changes) == CHANGES
    assert [kind for kind, change in changes.items() if not _refused(change)] == []
    assert files.content("d/log").startswith(b"old")
    assert files.paths() == ["d/blocks", "d/log"]
    log.sync()
    files.sync_dir("d")
    assert log.read_at(0, 3) == b"old"


def test_scarce_room_refuses_a_share_of_writes_and_tears_some() -> None:
    files = _prepared()
    files.shortage = ScarceRoom(Random(1), 0.3)
    log = files.open("d/log")
    refused, sizes = 0, set()
    for _ in range(400):
        before_bytes = log.size()
        if _refused(lambda: log.append([b"abcd"])):
            refused += 1
            sizes.add(log.size() - before_bytes)
    assert 80 < refused < 160
    assert sizes == {0, 1, 2, 3}


def test_a_refused_block_write_leaves_whole_sectors() -> None:
    left = set()
    for seed in range(40):
        files = _prepared()
        files.shortage = ScarceRoom(Random(seed), 1.0)
        blocks = files.open_blocks("d/blocks")
        assert _refused(partial(blocks.write_at, 0, [b"x" * 4_096]))
        left.add(files.content("d/blocks").count(b"x"))
    assert len(left) > 4
    assert all(each % 512 == 0 and each < 4_096 for each in left)


def test_a_full_disk_stays_full_after_a_crash() -> None:
    files = _prepared()
    files.shortage = LastBytes(files.used_bytes, 0)
    files.crash(Random(1))
    log = files.open("d/log")
    assert _refused(lambda: log.append([b"x"]))
    files.heal()
    assert not _refused(lambda: log.append([b"x"]))
