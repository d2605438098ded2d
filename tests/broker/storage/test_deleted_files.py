"""The removal of deleted files in the background, one directory at a time (L-01, L-38)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from logs import NOW_MS
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.handles import HandleCache
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles


class _CountingFiles(MemoryFiles):
    """Files that record in `synced` the directories that were synced."""

    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self.synced: list[str] = []

    def sync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().sync_dir(path)


class _Background:
    """Background work that waits until a test runs it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.jobs.append((work, done))

    def run(self) -> None:
        work, done = self.jobs.pop(0)
        work()
        done(None)


@pytest.fixture
def files() -> _CountingFiles:
    files = _CountingFiles()
    for partition in "ab":
        for number in range(3):
            files.put(f"data/{partition}/{number}.log.deleted", b"x")
    return files


def _add(deleted: DeletedFiles, due_ms: int, directory: str, *numbers: int) -> None:
    paths = [f"data/{directory}/{number}.log.deleted" for number in numbers]
    deleted.add_files(due_ms, f"data/{directory}", paths, lambda: True)


def test_l01_only_due_files_are_removed_in_any_order_of_the_queue(files: _CountingFiles) -> None:
    deleted = DeletedFiles(HandleCache(files))
    _add(deleted, 300, "a", 0)
    _add(deleted, 100, "a", 1)
    _add(deleted, 200, "b", 0)
    assert deleted.remove_due(99) == 0
    assert deleted.remove_due(200) == 2
    assert files.list("data/a") == ["0.log.deleted", "2.log.deleted"]
    assert files.list("data/b") == ["1.log.deleted", "2.log.deleted"]
    assert deleted.remove_due(299) == 0
    assert deleted.remove_due(300) == 1
    assert deleted.remove_due(NOW_MS) == 0


def test_l20_a_directory_is_synced_once_before_its_files_are_removed(files: _CountingFiles) -> None:
    deleted = DeletedFiles(HandleCache(files))
    for number in range(3):
        _add(deleted, 100, "a", number)
        _add(deleted, 100, "b", number)
    deleted.remove_due(100)
    assert files.synced == ["data/a", "data/b"]
    assert files.paths() == []


def test_deleted_files_are_removed_in_the_background(files: _CountingFiles) -> None:
    background = _Background()
    deleted = DeletedFiles(HandleCache(files, background=background))
    _add(deleted, 100, "a", 0)
    before = files.operations
    assert deleted.remove_due(100) == 1
    assert files.operations == before
    _add(deleted, 100, "a", 1)
    assert deleted.remove_due(100) == 0, "one removal at a time"
    background.run()
    assert files.list("data/a") == ["1.log.deleted", "2.log.deleted"]
    assert deleted.remove_due(100) == 1


def test_a_failed_removal_is_reported_and_repeated(files: _CountingFiles) -> None:
    deleted = DeletedFiles(HandleCache(files))
    _add(deleted, 100, "a", 0, 1)
    deleted.add_directory(100, "data/b")
    files.fail(DiskFailure("remove", path_part="data/a/1"))
    deleted.remove_due(100)
    assert ["data/a/1" in problem for problem in deleted.take_problems()] == [True]
    assert deleted.take_problems() == []
    assert not files.exists("data/b"), "others do not wait for it"
    assert deleted.remove_due(60_099) == 0
    assert deleted.remove_due(60_100) == 1
    assert files.list("data/a") == ["2.log.deleted"]


def test_l20_no_file_is_removed_if_the_sync_of_its_directory_fails(files: _CountingFiles) -> None:
    deleted = DeletedFiles(HandleCache(files))
    _add(deleted, 100, "a", 0)
    files.fail(DiskFailure("sync_dir"))
    deleted.remove_due(100)
    assert len(files.list("data/a")) == 3
    assert len(deleted.take_problems()) == 1
    deleted.remove_due(60_100)
    assert len(files.list("data/a")) == 2


def test_l38_files_of_a_closed_log_are_not_removed(files: _CountingFiles) -> None:
    """The name of a directory may be used again: its files then belong to another log."""
    background = _Background()
    deleted = DeletedFiles(HandleCache(files, background=background))
    wanted = [True, True]
    for number in range(2):
        path = f"data/a/{number}.log.deleted"
        deleted.add_files(100, "data/a", [path], partial(wanted.__getitem__, number))
    wanted[0] = False
    assert deleted.remove_due(100) == 1
    wanted[1] = False  # the removal is queued for the thread
    background.run()
    assert len(files.list("data/a")) == 3


def test_an_empty_list_of_files_removes_nothing(files: _CountingFiles) -> None:
    """The list is empty if the first rename has failed."""
    deleted = DeletedFiles(HandleCache(files))
    deleted.add_files(100, "data/a", [], lambda: True)
    deleted.remove_due(100)
    assert len(files.list("data/a")) == 3


def test_a_missing_directory_is_no_problem_for_the_removal(files: _CountingFiles) -> None:
    deleted = DeletedFiles(HandleCache(files))
    deleted.add_files(100, "data/gone", ["data/gone/0.log.deleted"], lambda: True)
    deleted.remove_due(100)
    assert deleted.take_problems() == []
    assert deleted.remove_due(NOW_MS) == 0


def test_a_stop_ends_the_removal_between_two_entries(files: _CountingFiles) -> None:
    handles = HandleCache(files)
    deleted = DeletedFiles(handles)
    _add(deleted, 100, "a", 0)
    handles.halted = True
    deleted.remove_due(100)
    assert len(files.list("data/a")) == 3
