"""A forked broker, from the fork to its end.

The broker writes one line of JSON into a pipe to the host, when it listens or when it cannot start.
The pipe stays open until the process ends; so the host notices the end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import structlog

from odradek_broker.config.broker import BrokerConfig, BrokerConfigError
from odradek_broker.platform.garbage import with_short_collections
from odradek_broker.platform.log_lines import configure_logging
from odradek_broker.server.host import StartError, run
from odradek_broker.server.server import Server, serve
from odradek_broker.storage.errors import DataDirectoryError
from odradek_testkit.fault_control.control import FaultControl

log = structlog.get_logger("odradek.server")

#: A number that is higher than any file descriptor of a forked broker.
_DESCRIPTORS_MAX = 65_536
_DELETIONS_MAX = 100


def live(config: BrokerConfig, root: Path, log_file: Path, *, lifeline: int, told: int) -> NoReturn:
    """Serve until SIGTERM in a process that has just been forked, and then end the process.

    If the host ends first, the other end of `lifeline` is closed, and this process deletes `root`,
    the data of all clusters. `told`: the pipe to the host.
    """
    status = 1
    try:
        _forget_the_host(log_file, (lifeline, told))
        configure_logging(config.log_format, config.log_level)
        run(with_short_collections(partial(_serve, config, root, lifeline, told)))
        status = 0
    except Exception as error:
        log.exception("the broker failed")
        # Only errors that are for users have texts that are.
        known = isinstance(error, (StartError, DataDirectoryError, BrokerConfigError))
        _tell(told, {"error": str(error) if known else f"it failed ({type(error).__name__})"})
    finally:
        # The process ends without Python's cleanup, because the cleanup would flush and close
        # objects that were copied from the host.
        os._exit(status)


def _forget_the_host(log_file: Path, kept: tuple[int, ...]) -> None:
    """Drop the host's signal handlers, files and objects."""
    # Objects from before the fork are never collected, because they would close descriptors whose
    # numbers other files have in this process.
    gc.freeze()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Ctrl+C is meant for the program that started the host.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _DESCRIPTORS_MAX)
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, limit)
    nothing = os.open(os.devnull, os.O_RDONLY)
    lines = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, there in ((nothing, 0), (lines, 1), (lines, 2)):
        os.dup2(descriptor, there)
    os.close(nothing)
    os.close(lines)


async def _serve(config: BrokerConfig, root: Path, lifeline: int, told: int) -> None:
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        # Deleted repeatedly, because threads of this and of other brokers may still create files.
        for _ in range(_DELETIONS_MAX):
            shutil.rmtree(root, ignore_errors=True)
            if not root.exists():
                break
        os._exit(1)

    loop.add_reader(lifeline, orphaned)
    addresses: dict[str, tuple[str, int]] = {}
    http: tuple[str, int] | None = None

    def started(server: Server) -> None:
        nonlocal http
        addresses.update(server.addresses)
        http = server.http_address

    def ready(_host: str, _port: int) -> None:
        _tell(told, {"addresses": addresses, "http": http})

    await serve(config, ready, under_test=FaultControl(), on_started=started)
    loop.remove_reader(lifeline)


def _tell(told: int, news: dict[str, Any]) -> None:
    try:
        os.write(told, json.dumps(news).encode() + b"\n")
    except OSError:
        # The host has ended. The process notices that by the lifeline.
        return
