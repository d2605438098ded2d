"""Checks of `odradek doctor`: this machine, the data directories, the settings, the listeners.

Each check yields findings. Checks only read, except for the one that times flushes: it writes a
scratch file into the data directory and removes it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import stat
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_cli.broker.pid_file import PidFile, RunningBroker
from odradek_client.words import counted
from odradek_protocol.lazy_tuple import NamedTuple

if TYPE_CHECKING:
    from odradek_broker.config.broker import BrokerConfig, Notice
    from odradek_broker.config.listeners import Listener

_MIB = 1024 * 1024
_OPEN_FILES_WANTED = 8_192
_OPEN_FILES_NEEDED = 256
#: The newest segment of a partition keeps a log and two indexes open. Files of older segments are
#: opened for each read.
_FILES_OF_PARTITION = 3
_MEMORY_WANTED_BYTES = 256 * _MIB
_ROOM_NEEDED_BYTES = 100 * _MIB
_ROOM_WANTED_BYTES = 1024 * _MIB
_ROOM_WANTED_SHARE = 0.05
_FLUSHES = 20
_FLUSH_BYTES = 4096
_FLUSH_SLOW_MS = 10.0
_PARTITIONS_MAX = 100_000
_CLOCK_BEHIND_S = 60
_OLDEST_DATE = datetime(2025, 1, 1, tzinfo=UTC)
_EXPIRY_WARNING_DAYS = 30
_DAY_S = 86_400
_NETWORK_S = 3.0
#: File systems in memory, which a power cut erases.
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
#: File systems whose flushes and locks depend on another machine or program.
_ELSEWHERE = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "glusterfs", "virtiofs", "vboxsf")
#: TIME_ERROR of adjtimex(2): the clock is not synchronised.
_CLOCK_UNSYNCHRONISED = 5
#: struct timex is smaller than this on every Linux.
_TIMEX_BYTES = 512


class Level(StrEnum):
    """The weight of a finding: an error keeps a broker or its clients from working."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, with what to do about it; `remedy` is empty for OK. `looked`: false
    if the check could not be made."""

    level: Level
    check: str
    text: str
    remedy: str = ""
    looked: bool = True


Findings = Iterator[CheckResult]


# --- The machine ----------------------------------------------------------------------------------


def check_python() -> Findings:
    """The interpreter, the event loop and the record codec."""
    from odradek_protocol.records import native

    version = ".".join(map(str, sys.version_info[:3]))
    try:
        uvloop = metadata.version("uvloop")
    except metadata.PackageNotFoundError:
        yield CheckResult(
            Level.WARNING,
            "python",
            f"Python {version} without uvloop: the broker serves about half as many requests",
            "pip install uvloop",
        )
    else:
        text = f"Python {version}, uvloop {uvloop}, record codec: {native.describe()}"
        yield CheckResult(Level.OK, "python", text)


def check_open_files(partitions: int) -> Findings:
    """Check that the limit of open files is high enough for the partitions on the disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        yield CheckResult(Level.OK, "open files", "no limit")
        return
    wanted = max(_OPEN_FILES_WANTED, partitions * _FILES_OF_PARTITION)
    of = f"{partitions:,} partition{'s' * (partitions != 1)}"
    text = f"at most {hard:,}, for {of} and all connections"
    if hard >= wanted:
        yield CheckResult(Level.OK, "open files", text)
        return
    yield CheckResult(
        Level.WARNING if hard >= _OPEN_FILES_NEEDED else Level.ERROR,
        "open files",
        text,
        f"raise the hard limit to {wanted:,} or more: ulimit -Hn, or LimitNOFILE= of the service",
    )


def check_memory() -> Findings:
    """The memory that is available on this machine, or in this container."""
    found = [each for each in (_machine_memory_bytes(), _container_memory_bytes()) if each]
    if not found:
        return
    left_bytes = min(found)
    text = f"{left_bytes // _MIB:,} MiB available"
    if left_bytes >= _MEMORY_WANTED_BYTES:
        yield CheckResult(Level.OK, "memory", text)
    else:
        yield CheckResult(
            Level.WARNING,
            "memory",
            text,
            "a broker needs about 50 MiB, and what its requests and groups hold; the rest of the"
            " memory is the page cache that consumers read from. End other programs or add memory",
        )


def _machine_memory_bytes() -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def _container_memory_bytes() -> int:
    """The memory that is left below the limit of the control group; 0 if there is no limit."""
    folder = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        limit = (folder / "memory.max").read_text().strip()
        if limit != "max":
            return max(int(limit) - int((folder / "memory.current").read_text()), 1)
    return 0


def check_clock(newest_file_s: float | None) -> Findings:
    """Check that the clock's year is plausible, that the clock is synchronised, and that its time
    is not before that of the newest file of the data.

    `newest_file_s`: seconds since the epoch; None if there are no data.
    """
    now = datetime.now(UTC)
    shown = now.isoformat(timespec="seconds")
    remedy = "set the clock, and let chrony, ntpd or systemd-timesyncd keep it right"
    if now < _OLDEST_DATE:
        yield CheckResult(Level.ERROR, "clock", f"it is {shown} here, which is long past", remedy)
    elif newest_file_s is not None and newest_file_s > now.timestamp() + _CLOCK_BEHIND_S:
        newest = datetime.fromtimestamp(newest_file_s, UTC).isoformat(timespec="seconds")
        text = f"it is {shown} here, but a file of the data was written at {newest}"
        note = ": retention and timestamps go by this clock"
        yield CheckResult(Level.ERROR, "clock", text + note, remedy)
    elif _clock_is_adrift():
        text = f"{shown}; the kernel says that nothing keeps the clock right"
        yield CheckResult(Level.WARNING, "clock", text, remedy)
    else:
        yield CheckResult(Level.OK, "clock", shown)


def _clock_is_adrift() -> bool:
    """True if Linux reports an unsynchronised clock; False on other systems."""
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
        # With 0 in the first field, `modes`, the call only reads.
        state: int = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        return state == _CLOCK_UNSYNCHRONISED
    return False


# --- The data directories -------------------------------------------------------------------------


class Stored(NamedTuple):
    """The partitions that a data directory has, and the time of its newest file."""

    partitions: int
    newest_s: float | None


def look_into(directory: Path) -> Stored:
    """Count the partitions of a data directory, and find the time of its newest file. A missing
    directory has no partitions."""
    partitions, newest_s = 0, None
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if partitions >= _PARTITIONS_MAX:
                break
            with suppress(OSError):
                written_s = entry.stat(follow_symlinks=False).st_mtime
                newest_s = written_s if newest_s is None else max(newest_s, written_s)
            partitions += entry.name.rpartition("-")[2].isdigit()
    return Stored(partitions, newest_s)


def check_directory(directory: Path) -> Findings:
    """The findings on a data directory: its permissions, the type and free space of its disk, and
    the time of a flush."""
    name = f"disk of {directory}"
    where = _existing(directory)
    if not where.is_dir():
        yield CheckResult(
            Level.ERROR, name, f"{where} is no directory", "choose another --data-dir"
        )
        return
    if not os.access(where, os.W_OK | os.X_OK):
        yield CheckResult(
            Level.ERROR,
            name,
            f"{where} cannot be written by this user",
            f"chown it, or choose another --data-dir; you are user {os.getuid()}",
        )
        return
    if where == directory:
        mode = stat.S_IMODE(where.stat().st_mode)
        if mode & stat.S_IRWXO:
            yield CheckResult(
                Level.WARNING,
                name,
                f"other users may look into it ({mode:04o}), where records and keys of passwords are",
                f"chmod o-rwx {directory}",
            )
    yield from _check_kind(name, where)
    yield from _check_room(name, where)
    yield from _check_flush(name, where)


def _existing(directory: Path) -> Path:
    """The directory itself, or the nearest one above it that exists."""
    directory = directory.absolute()
    return next((each for each in (directory, *directory.parents) if each.exists()), directory)


def _check_kind(name: str, where: Path) -> Findings:
    kind = _file_system(where)
    if kind in _IN_MEMORY:
        yield CheckResult(
            Level.WARNING,
            name,
            f"{kind} is memory: everything in it is lost when the machine stops",
            "choose a --data-dir on a disk, unless the data are for a test",
        )
    elif kind.startswith(_ELSEWHERE):
        yield CheckResult(
            Level.WARNING,
            name,
            f"{kind} is served by another program or machine, which decides when a flush is done",
            "choose a --data-dir on a disk of this machine",
        )


def _file_system(where: Path) -> str:
    """The type of the file system of a directory: that of the longest mount point that contains the
    directory. "" if unknown."""
    found, longest = "", -1
    with suppress(OSError, IndexError, ValueError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            point = fields[4].replace("\\040", " ")
            if where.is_relative_to(point) and len(point) >= longest:
                longest, found = len(point), fields[fields.index("-") + 1]
    return found


def _check_room(name: str, where: Path) -> Findings:
    usage = shutil.disk_usage(where)
    text = f"{usage.free // _MIB:,} MiB of {usage.total // _MIB:,} MiB free"
    remedy = "make room, or set retention.ms and retention.bytes of topics lower"
    if usage.free < _ROOM_NEEDED_BYTES:
        yield CheckResult(Level.ERROR, name, text, remedy)
    elif usage.free < min(_ROOM_WANTED_BYTES, usage.total * _ROOM_WANTED_SHARE):
        yield CheckResult(Level.WARNING, name, text, remedy)
    else:
        yield CheckResult(Level.OK, name, text)
    nodes = os.statvfs(where)
    if nodes.f_files and nodes.f_favail < nodes.f_files // 100:
        text = f"{nodes.f_favail:,} of {nodes.f_files:,} inodes left: no more files can be created"
        yield CheckResult(
            Level.WARNING, name, text, "remove files, or make a file system with more"
        )


def _check_flush(name: str, where: Path) -> Findings:
    try:
        times_ms = _flush_times_ms(where)
    except OSError as error:
        text = f"a file could not be written and flushed: {error.strerror or error}"
        yield CheckResult(Level.ERROR, name, text, "mend the disk, or choose another --data-dir")
        return
    middle_ms, worst_ms = statistics.median(times_ms), max(times_ms)
    text = f"a flush of 4 KiB takes {middle_ms:.2f} ms, {worst_ms:.2f} ms at worst"
    if middle_ms < _FLUSH_SLOW_MS:
        yield CheckResult(Level.OK, name, text)
    else:
        yield CheckResult(
            Level.WARNING,
            name,
            f"{text}; each acknowledgement waits for one",
            "choose a faster disk, or log.durability=page-cache if a power cut may cost records",
        )


def _flush_times_ms(where: Path) -> list[float]:
    times_ms = []
    with tempfile.TemporaryFile(dir=where, prefix=".odradek-doctor-") as scratch:
        for _ in range(_FLUSHES):
            os.write(scratch.fileno(), bytes(_FLUSH_BYTES))
            began_s = time.perf_counter()
            os.fsync(scratch.fileno())
            times_ms.append((time.perf_counter() - began_s) * 1000)
    return times_ms


# --- Settings -------------------------------------------------------------------------------------


def check_settings(config: BrokerConfig, notices: list[Notice]) -> Findings:
    """The warnings that a start would log, and the durability."""
    warnings = [notice.text for notice in notices if notice.level == "warning"]
    for text in warnings:
        yield CheckResult(Level.WARNING, "settings", text, "change or remove it")
    if config.log_durability == "page-cache":
        yield CheckResult(
            Level.WARNING,
            "settings",
            "log.durability=page-cache: a power cut may lose acknowledged records",
            "log.durability=fsync, unless another copy exists",
        )
    elif not warnings:
        yield CheckResult(Level.OK, "settings", f"accepted; log.durability={config.log_durability}")


# --- Listeners ------------------------------------------------------------------------------------


def check_broker(directory: Path) -> tuple[RunningBroker | None, list[CheckResult]]:
    """The broker that serves a data directory, and the finding about it."""
    try:
        running = PidFile(directory).read()
    except OSError as error:
        text = f"the pid file of {directory} cannot be read: {error.strerror or error}"
        remedy = "run this as the user of the broker"
        return None, [CheckResult(Level.WARNING, "broker", text, remedy)]
    if running is None:
        return None, [CheckResult(Level.OK, "broker", f"none runs on {directory}")]
    text = f"pid {running.pid} serves {directory} on {running.address}"
    return running, [CheckResult(Level.OK, "broker", text)]


def check_listener(config: BrokerConfig, listener: Listener, running: bool) -> Findings:
    """Check that the port of a listener is free, and that a client can use its advertised address.

    `running`: a broker with these settings is running, so the ports are taken, and the broker
    should answer.
    """
    name = f"listener {listener.name}"
    host, port = config.advertised_addresses.get(listener.name, (listener.host, listener.port))
    host, port = host or socket.gethostname(), port or listener.port
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    if not running:
        yield from _check_port_is_free(name, listener)
    told = f"clients are told {host}:{port}"
    try:
        addresses = _resolved(host, port)
    except OSError as error:
        yield CheckResult(
            Level.ERROR,
            name,
            f"{told}, but {host} has no address here: {error.strerror or error}",
            "set advertised.listeners to a name or address that clients know",
        )
        return
    local = all(address.startswith("127.") or address == "::1" for address in addresses)
    if local and listener.every_address:
        yield CheckResult(
            Level.WARNING,
            name,
            f"it accepts other machines, but {told}, which is {', '.join(addresses)}: each client"
            " then connects to its own machine",
            "set advertised.listeners to an address of this machine that clients reach",
        )
        return
    if running and port:
        problem = connect(host, port)
        if problem:
            yield CheckResult(
                Level.ERROR,
                name,
                f"{told}, where nobody answers: {problem}",
                "set advertised.listeners to an address that leads to the broker; look at firewalls",
            )
            return
        told += ", where it answers"
    yield CheckResult(Level.OK, name, told)


def connect(host: str, port: int) -> str:
    """Connect and close; returns the problem, empty if there was none."""
    try:
        socket.create_connection((host, port), _NETWORK_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _check_port_is_free(name: str, listener: Listener) -> Findings:
    try:
        found = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        text = f"{listener.host} is no address of this machine: {error.strerror or error}"
        yield CheckResult(Level.ERROR, name, text, "change it in listeners")
        return
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            text = f"{listener.address} cannot be opened: {error.strerror or error}"
            remedy = "end the program that has the port, or change it in listeners (--listen)"
            yield CheckResult(Level.ERROR, name, text, remedy)


def _resolved(host: str, port: int) -> list[str]:
    """The addresses of a name. Raises OSError if there are none within `_NETWORK_S`."""
    threads = ThreadPoolExecutor(1)
    asked = threads.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    threads.shutdown(wait=False)
    try:
        return sorted({str(address[0]) for *_, address in asked.result(_NETWORK_S)})
    except FutureTimeoutError:
        raise OSError(f"no answer within {_NETWORK_S:.0f} s") from None


def check_certificate(config: BrokerConfig, listener: Listener) -> Findings:
    """The certificate of a listener with TLS: readable, valid today, and for the advertised
    name."""
    from odradek_protocol.tls import names
    from odradek_protocol.tls.contexts import server_context
    from odradek_protocol.tls.settings import TlsError

    name = f"certificate of {listener.name}"
    settings = config.tls_settings(listener.name)
    remedy = "put a new certificate into the keystore; a running broker takes it without a restart"
    try:
        server_context(settings)
        ends_s = names.expiry_s(settings)
        host = config.advertised_addresses.get(listener.name, (listener.host, 0))[0]
        host = host if host not in ("", "0.0.0.0", "::") else socket.gethostname()
        fits = names.is_for(settings, host)
        own_names = names.certificate_names(settings)
    except (TlsError, OSError) as error:
        yield CheckResult(Level.ERROR, name, str(error), "change the settings ssl.keystore.*")
        return
    if ends_s is not None:
        days = int((ends_s - time.time()) // _DAY_S)
        date = datetime.fromtimestamp(ends_s, UTC).date()
        if ends_s <= time.time():
            yield CheckResult(Level.ERROR, name, f"it expired on {date}", remedy)
        elif days < _EXPIRY_WARNING_DAYS:
            text = f"it expires on {date}, in {counted(days, 'day')}"
            yield CheckResult(Level.WARNING, name, text, remedy)
        else:
            yield CheckResult(Level.OK, name, f"valid until {date}")
    if not fits:
        yield CheckResult(
            Level.WARNING,
            name,
            f"clients connect to {host}, but it is for {', '.join(own_names or ('nobody',))}",
            f"a certificate with the name {names.wanted_name(host)}, or advertised.listeners with a"
            " name of this certificate",
        )
