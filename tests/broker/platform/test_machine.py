"""`odradek_broker.platform.machine` against a real directory."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek_broker.platform import machine
from odradek_broker.platform.machine import RealClock, RealFile, RealFiles, RealRandomness
from odradek_broker.platform.seams import Buffer, Clock, File, Files, Randomness, write_atomically

#: The most buffers that the system takes in one write.
IOV_MAX = os.sysconf("SC_IOV_MAX")


@pytest.fixture
def files(tmp_path: Path) -> RealFiles:
    return RealFiles(str(tmp_path))


def test_real_clock_randomness_and_files_fit_their_protocols(tmp_path: Path) -> None:
    clock: Clock = RealClock()
    randomness: Randomness = RealRandomness()
    files: Files = RealFiles(str(tmp_path))
    file: File = files.open("x", create=True)
    file.close()
    assert clock.wall_ms() > 1_600_000_000_000
    assert abs(clock.wall_ms() - time.time() * 1000) < 60_000
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
    assert uuid.UUID(bytes=randomness.uuid()).version == 4
    assert {randomness.below(2) for _ in range(200)} == {0, 1}
    with pytest.raises(ValueError, match="positive"):
        randomness.below(0)


def test_open_without_create_needs_the_file(files: RealFiles) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("missing")
    assert not files.exists("missing")
    files.open("missing", create=True).close()
    assert files.exists("missing")


def test_append_joins_buffers_and_read_at_stops_at_the_end(
    files: RealFiles, tmp_path: Path
) -> None:
    file = files.open("log", create=True)
    assert file.append([b"abc", bytearray(b"de"), memoryview(b"xfgx")[1:3]]) == 7
    assert file.append([]) == 0
    assert file.append([b""]) == 0
    assert file.append([b"h"]) == 1
    assert file.size() == 8
    assert file.read_at(0, 100) == b"abcdefgh"
    assert file.read_at(2, 3) == b"cde"
    assert file.read_at(8, 3) == b""
    assert file.read_at(800, 3) == b""
    file.sync()
    file.close()
    assert (tmp_path / "log").read_bytes() == b"abcdefgh"


def test_a_reopened_file_appends_after_its_content(files: RealFiles) -> None:
    file = files.open("log", create=True)
    file.append([b"one"])
    file.close()
    file = files.open("log")
    file.append([b"two"])
    assert file.read_at(0, 10) == b"onetwo"
    file.close()


def test_append_splits_more_buffers_than_a_write_takes(files: RealFiles) -> None:
    file = files.open("log", create=True)
    parts = [bytes([number % 251]) * (number % 5) for number in range(3 * IOV_MAX + 7)]
    assert file.append(parts) == sum(map(len, parts))
    assert file.read_at(0, 1 << 20) == b"".join(parts)
    file.close()


def test_append_counts_the_bytes_of_wide_memoryviews(files: RealFiles) -> None:
    file = files.open("log", create=True)
    wide = memoryview(b"12345678").cast("I")
    assert file.append([wide]) == 8
    assert file.append([b"9"]) == 1
    assert file.read_at(0, 20) == b"123456789"
    file.close()


def _short_writes(monkeypatch: pytest.MonkeyPatch, limits: list[int]) -> list[int]:
    """Limit the sizes in bytes of the next gathered writes, one limit for each write. Returns a
    list that gets the positions of the writes."""
    positions: list[int] = []

    def write_at(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        assert len(buffers) <= IOV_MAX
        positions.append(position)
        data = b"".join(bytes(buffer) for buffer in buffers)
        if not limits:
            return os.pwrite(fd, data, position)
        limit = limits.pop(0)
        if limit < 0:
            raise OSError(errno.ENOSPC, "full")
        return os.pwrite(fd, data[:limit], position) if limit else 0

    monkeypatch.setattr(machine, "_write_at", write_at)
    return positions


def test_short_writes_are_continued(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.open("log", create=True)
    file.append([b"head"])
    positions = _short_writes(monkeypatch, [1, 2, 3, 5])
    assert file.append([b"abc", b"", b"defgh", b"ijklm", b"nop"]) == 16
    assert positions == [4, 5, 7, 10, 15]
    assert file.read_at(0, 100) == b"headabcdefghijklmnop"
    file.close()


def test_l08_failed_append_can_be_truncated_and_repeated(
    files: RealFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open("log", create=True)
    file.append([b"good"])
    _short_writes(monkeypatch, [3, -1])
    with pytest.raises(OSError, match="full") as caught:
        file.append([b"torn", b"batch"])
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 7
    file.truncate(4)
    assert file.size() == 4
    file.append([b"next"])
    assert file.read_at(0, 100) == b"goodnext"
    file.close()


def test_l08_an_append_overwrites_the_torn_end_without_truncation(
    files: RealFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open("log", create=True)
    file.append([b"good"])
    _short_writes(monkeypatch, [3, -1])
    with pytest.raises(OSError, match="full"):
        file.append([b"torn"])
    file.append([b"next!"])
    assert file.read_at(0, 100) == b"goodnext!"
    file.close()


def test_a_write_of_no_bytes_is_an_error(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.open("log", create=True)
    _short_writes(monkeypatch, [2, 0])
    with pytest.raises(OSError, match="2 of 4 bytes"):
        file.append([b"abcd"])
    file.close()


def test_an_append_to_a_full_device_raises_os_error() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("only Linux has a device that is always full")
    file = RealFile(os.open("/dev/full", os.O_RDWR))
    with pytest.raises(OSError, match="No space left"):
        file.append([b"x"])
    file.close()


def test_short_reads_are_continued(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.open("log", create=True)
    file.append([b"0123456789"])
    true_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: true_pread(fd, min(size, 3), at))
    assert file.read_at(1, 8) == b"12345678"
    assert file.read_at(1, 80) == b"123456789"
    assert file.read_at(8, 80) == b"89"
    file.close()


def test_an_append_after_truncate_begins_at_the_new_end(files: RealFiles) -> None:
    file = files.open("log", create=True)
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"X"])
    assert file.read_at(0, 10) == b"abX"
    file.close()


def test_closed_file_raises_os_error(files: RealFiles) -> None:
    file = files.open("log", create=True)
    file.close()
    file.close()
    for use in (
        lambda: file.append([b"x"]),
        lambda: file.read_at(0, 1),
        file.size,
        file.sync,
        lambda: file.truncate(0),
    ):
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_close_waits_for_a_running_sync(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.open("log", create=True)
    entered, leave = threading.Event(), threading.Event()
    order: list[str] = []

    def slow_sync(fd: int) -> None:
        entered.set()
        assert leave.wait(10)
        os.fstat(fd)  # raises if the descriptor was closed during the sync
        order.append("synced")

    monkeypatch.setattr(machine, "_sync_data", slow_sync)
    syncing = threading.Thread(target=file.sync)
    syncing.start()
    assert entered.wait(10)

    def close() -> None:
        file.close()
        order.append("closed")

    closing = threading.Thread(target=close)
    closing.start()
    file.append([b"appends go on meanwhile"])
    leave.set()
    syncing.join(10)
    closing.join(10)
    assert order == ["synced", "closed"]


def test_an_error_of_sync_is_raised(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.open("log", create=True)

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(machine, "_sync_data", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        file.sync()
    file.close()


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (None, ["full"]),
        (errno.ENOTSUP, ["full", "fsync"]),
        (errno.EINVAL, ["full", "fsync"]),
        (errno.EIO, ["full", "error"]),
    ],
)
def test_full_fsync_falls_back_to_fsync_only_if_unsupported(
    monkeypatch: pytest.MonkeyPatch, raised: int | None, outcome: list[str]
) -> None:
    seen: list[str] = []

    def fake_fcntl(fd: int, command: int) -> int:
        assert command == 51
        seen.append("full")
        if raised is not None:
            raise OSError(raised, "x")
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fake_fcntl)
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append("fsync"))
    try:
        machine._sync_all(3)
    except OSError:
        seen.append("error")
    assert seen == outcome


def test_append_works_without_pwritev(monkeypatch: pytest.MonkeyPatch, files: RealFiles) -> None:
    file = files.open("log", create=True)
    monkeypatch.delattr(os, "pwritev", raising=False)
    file.append([b"ab", b"cd"])
    assert file.read_at(0, 2) == b"ab"
    file.append([b"ef"])
    assert file.read_at(0, 9) == b"abcdef"
    file.close()


def test_directories_are_made_listed_renamed_and_removed(files: RealFiles, tmp_path: Path) -> None:
    files.make_dirs("a/b")
    files.make_dirs("a/b")
    for name in ("2", "10", "1"):
        files.open(f"a/{name}", create=True).close()
    assert files.list("a") == ["1", "10", "2", "b"]
    with pytest.raises(FileNotFoundError):
        files.list("nowhere")
    files.rename("a/1", "a/2")
    assert files.list("a") == ["10", "2", "b"]
    files.rename("a", "c")
    assert files.list("") == ["c"]
    files.remove("c/2")
    files.remove("c/2")
    files.sync_dir("c")
    files.sync_dir("")
    files.remove_tree("c")
    files.remove_tree("c")
    assert files.list("") == []
    assert files.list(str(tmp_path)) == []


def test_errors_of_directory_operations_are_raised(files: RealFiles) -> None:
    files.make_dirs("d")
    with pytest.raises(IsADirectoryError):
        files.open("d", create=True)
    with pytest.raises(FileNotFoundError):
        files.rename("nothing", "d/x")
    with pytest.raises(FileNotFoundError):
        files.sync_dir("nothing")
    with pytest.raises(FileNotFoundError):
        files.modified_ms("nothing")
    with pytest.raises(OSError):
        files.remove("d")


def test_l21_the_modification_time_is_in_whole_milliseconds(
    files: RealFiles, tmp_path: Path
) -> None:
    files.open("x", create=True).close()
    os.utime(tmp_path / "x", ns=(0, 1_234_567_890_123_999_999))
    assert files.modified_ms("x") == 1_234_567_890_123


def test_a_volume_has_an_absolute_path_and_its_free_space(files: RealFiles, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    volume = files.volume("data")
    assert volume.directory == str(tmp_path / "data")
    assert 0 <= volume.usable_bytes <= volume.total_bytes
    with pytest.raises(FileNotFoundError):
        files.volume("absent")


def test_l35_write_atomically_replaces(files: RealFiles, tmp_path: Path) -> None:
    write_atomically(files, "checkpoint", b"first, longer")
    (tmp_path / "checkpoint.tmp").write_bytes(b"left by a crash")
    write_atomically(files, "checkpoint", b"second")
    assert (tmp_path / "checkpoint").read_bytes() == b"second"
    assert files.list("") == ["checkpoint"]


def test_a_lock_excludes_others_until_it_is_released(files: RealFiles) -> None:
    release = files.lock(".lock")
    with pytest.raises(BlockingIOError):
        files.lock(".lock")
    release()
    release()
    files.lock(".lock")()


def test_the_lock_of_a_dead_process_is_free(files: RealFiles, tmp_path: Path) -> None:
    program = (
        "import sys; from odradek_broker.platform.machine import RealFiles\n"
        "RealFiles(sys.argv[1]).lock('.lock'); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(_source_roots())},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            files.lock(".lock")
    finally:
        process.kill()
        process.communicate(timeout=10)
    files.lock(".lock")()


def _source_roots() -> list[str]:
    package: Any = machine.__spec__
    return [str(Path(package.origin).parents[2]), *sys.path]
