"""Transactional ids pass from a worker to the next worker, but only after the first worker has
ended (S-02)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyspark_odradek import blocking
from pyspark_odradek.exactly_once import inheritance
from pyspark_odradek.exactly_once.identity import TransactionNames, Writer
from pyspark_odradek.exactly_once.inheritance import Inheritance, NamesDirectory

WRITER = Writer("query", "run")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such locks there")

WORKER = """
import sys
from pathlib import Path
from pyspark_odradek.exactly_once.identity import TransactionNames, Writer
from pyspark_odradek.exactly_once.inheritance import Inheritance, NamesDirectory
place = NamesDirectory(Path(sys.argv[1]), "boot")
names = TransactionNames("own", inherited=Inheritance(place, Writer("query", "run")))
for line in sys.stdin:
    print(names.take(*map(int, line.split())), flush=True)
"""


class Worker:
    """A process that takes transactional ids."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        )

    def take(self, batch: int, over: int) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(batch, over, file=self._process.stdin, flush=True)
        name = self._process.stdout.readline().strip()
        assert name
        return name

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_s02_a_name_is_inherited_only_after_its_process_has_ended(tmp_path: Path) -> None:
    first, second = Worker(tmp_path), Worker(tmp_path)
    try:
        name = first.take(1, 0)
        other = second.take(1, 0)
        assert name != other, "both live"
        first.kill()
        assert second.take(1, 0) not in (name, other), "its batch is not over"
        third = Worker(tmp_path)
        try:
            assert third.take(2, 1) == name
        finally:
            third.kill()
    finally:
        first.kill()
        second.kill()


def names(
    root: Path, writer: Writer = WRITER, boot: str = "boot"
) -> tuple[TransactionNames, Inheritance]:
    inherited = Inheritance(NamesDirectory(root, boot), writer)
    return TransactionNames("own", inherited=inherited), inherited


def test_s13_an_inherited_name_is_reused_only_after_its_batch_is_over(tmp_path: Path) -> None:
    """A process may end after taking an id and before the decision: then the batch may still need
    the id."""
    taken, inherited = names(tmp_path)
    name = taken.take(5, 4)
    inherited.close()
    for batch, over in ((5, 4), (6, 4), (5, 5)):
        heir, inherited = names(tmp_path)
        assert heir.take(batch, over) != name
        inherited.close()
    heir, inherited = names(tmp_path)
    assert heir.take(6, 5) == name
    inherited.close()


def test_many_short_lived_workers_share_few_names(tmp_path: Path) -> None:
    """If a query is triggered every few minutes, each batch has new workers."""
    used = set()
    for batch in range(50):
        taken, inherited = names(tmp_path)
        used |= {taken.take(batch, batch - 1) for _ in range(4)}
        inherited.close()
    assert len(used) == 4


def test_each_run_has_its_own_names_and_leaves_no_files(tmp_path: Path) -> None:
    taken, first = names(tmp_path)
    old = taken.take(1, 0)
    taken, second = names(tmp_path, Writer("query", "next run"))
    assert taken.take(2, 1) != old
    taken, third = names(tmp_path, Writer("other query", "run"))
    assert taken.take(2, 1) != old
    assert len([each for each in tmp_path.rglob("*") if each.is_file()]) == 2, "of the old run none"
    # The old run was replaced while it was still alive: it continues with other ids.
    again, fourth = names(tmp_path)
    assert again.take(2, 1) != old
    for each in (first, second, third, fourth):
        each.close()


def test_an_unreadable_file_is_replaced_by_a_new_name(tmp_path: Path) -> None:
    taken, inherited = names(tmp_path)
    name = taken.take(1, 0)
    inherited.close()
    (file,) = [each for each in tmp_path.rglob("*") if each.is_file()]
    file.write_text("rubbish")
    taken, inherited = names(tmp_path)
    assert taken.take(2, 1) != name
    inherited.close()


def test_every_process_has_its_own_names_without_an_inheritance_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "no-folder"
    file.write_text("")
    taken, _ = names(file)
    assert [taken.take(1, 0), taken.take(1, 0), taken.take(2, 1)] == ["own-0", "own-1", "own-0"]
    monkeypatch.setattr(inheritance, "_BOOT_ID", tmp_path / "none")
    assert inheritance.default_place() is None
    writer = Writer("q", "r")
    one = blocking.names(writer, lasting=True).take(1, 0)
    assert blocking.names(writer, lasting=True).take(2, 1) == one


def test_a_process_without_a_temporary_folder_inherits_no_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the file system is read-only, as in some containers, Python finds no temporary folder, and
    the worker inherits no names."""

    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", none)
    assert inheritance.default_place() is None


@pytest.mark.parametrize(
    "broken", ["fcntl.flock", "pyspark_odradek.exactly_once.inheritance._write"]
)
def test_files_that_cannot_be_locked_or_written_are_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Some network file systems have no locks, and a worker may live for thousands of batches."""

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(broken, refuse)
    opened = []
    really_open = os.open

    def counting_open(*arguments: Any, **more: Any) -> int:
        opened.append(really_open(*arguments, **more))
        return opened[-1]

    monkeypatch.setattr(os, "open", counting_open)
    taken, _ = names(tmp_path)
    for batch in range(5):
        assert taken.take(batch, batch - 1).startswith("own-")
    assert opened
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_s02_names_are_not_inherited_across_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers of one machine may mount the same network storage separately. If only the kernel
    keeps the locks of that storage, a lock in one mount is not visible in another mount."""
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    used = []
    for batch, device in ((1, 7), (2, 8)):
        monkeypatch.setattr(inheritance, "_device", lambda _, n=device: n, raising=False)
        taken, _ = names(tmp_path)
        used.append(taken.take(batch, batch - 1))
    assert used[0] != used[1]


def test_a_run_of_more_than_a_week_keeps_its_names(tmp_path: Path) -> None:
    taken, inherited = names(tmp_path)
    name = taken.take(1, 0)
    inherited.close()
    os.utime(inherited._runs, (1_000_000_000, 1_000_000_000))
    heir, inherited = names(tmp_path)
    assert heir.take(2, 1) == name
    inherited.close()


def test_a_name_that_cannot_be_recorded_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker could take an unrecorded id while the batch still needs it."""
    taken, inherited = names(tmp_path)
    name = taken.take(1, 0)

    def full(descriptor: int, name: str, batch: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(inheritance, "_write", full)
    assert taken.take(2, 1) != name
    inherited.close()


def test_files_of_earlier_boots_and_idle_queries_are_removed(tmp_path: Path) -> None:
    """The files are of earlier boots of the machine, and of queries without a run for a week."""
    for boot, query in (("other boot", "q"), ("boot", "old"), ("boot", "young")):
        taken, inherited = names(tmp_path, Writer(query, "run"), boot)
        taken.take(1, 0)
        inherited.close()

    def folder(query: str) -> Path:
        return Inheritance(NamesDirectory(tmp_path, "boot"), Writer(query, "run"))._runs

    old = folder("old")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    taken, inherited = names(tmp_path, Writer("new", "run"))
    taken.take(1, 0)
    inherited.close()
    assert set((tmp_path / "boot").iterdir()) == {folder("young"), folder("new")}
    assert list(tmp_path.iterdir()) == [tmp_path / "boot"]


def test_a_symbolic_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    (ours / "precious").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(ours)
    taken, _ = names(link)
    assert taken.take(1, 0) == "own-0"
    assert list(ours.iterdir()) == [ours / "precious"]
