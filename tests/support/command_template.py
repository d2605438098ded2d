"""A process that has imported the whole command line, and forks for each command.

A fork starts in milliseconds; a new interpreter would import the modules of a command for half a
second. Like any process, the fork has its own arguments, environment, streams, signals and exit
code. `Shell` of `command_line` requests forks: a request is a line of JSON, with three file
descriptors.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from helper_process import command, environment

_REQUEST_BYTES_MAX = 1 << 20


class CommandTemplate:
    """The template process of this test process. Only this test process uses it, and only for one
    command at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                command("command_template", theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment(),
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours
        atexit.register(self._close)

    def run(
        self,
        arguments: Sequence[str],
        given: Mapping[str, str],
        stdin: bytes,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `odradek` with these arguments, and with `given` as its whole environment.

        Raises TimeoutError after the command was killed.
        """
        pipes = [os.pipe() for _ in range(3)]
        (stdin_there, stdin_here), (stdout_here, stdout_there), (stderr_here, stderr_there) = pipes
        request = json.dumps([list(arguments), dict(given), os.getcwd()]).encode()
        there = [stdin_there, stdout_there, stderr_there]
        socket.send_fds(self._socket, [request], there)
        for descriptor in there:
            os.close(descriptor)
        printed: list[bytes] = [b"", b""]
        threads = [
            threading.Thread(target=_write, args=(stdin_here, stdin)),
            threading.Thread(target=_read, args=(stdout_here, printed, 0)),
            threading.Thread(target=_read, args=(stderr_here, printed, 1)),
        ]
        for thread in threads:
            thread.start()
        self._socket.settimeout(timeout_s)
        pid = int(self._socket.recv(64))
        try:
            code = int(self._socket.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(64)
            raise
        finally:
            for thread in threads:
                thread.join()
        return subprocess.CompletedProcess([*arguments], code, printed[0], printed[1])

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def command_template() -> CommandTemplate:
    """The template process of this test process, started at the first call."""
    return CommandTemplate()


def _write(descriptor: int, data: bytes) -> None:
    try:
        with open(descriptor, "wb") as pipe:
            pipe.write(data)
    except BrokenPipeError:
        return


def _read(descriptor: int, printed: list[bytes], number: int) -> None:
    with open(descriptor, "rb") as pipe:
        printed[number] = pipe.read()


def _serve(requests: socket.socket) -> None:
    """Fork for each request; returns only in a fork, after its arguments and environment are
    set."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            requests.close()
            arguments, given, folder = json.loads(data)
            _set_up_process(arguments, given, folder, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(b"%d" % pid)
        _, status = os.waitpid(pid, 0)
        requests.send(b"%d" % os.waitstatus_to_exitcode(status))


def _set_up_process(
    arguments: list[str], given: dict[str, Any], folder: str, descriptors: Sequence[int]
) -> None:
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(given)
    os.chdir(folder)
    sys.argv = ["odradek", *arguments]


def _import_everything() -> None:
    import odradek

    for name in odradek.__all__:
        getattr(odradek, name)
    for room in ("odradek_cli", "odradek_console", "odradek_log_tools", "odradek_mirror"):
        found = importlib.util.find_spec(room)
        # A room that was carried out has no commands.
        for path in [] if found is None else [found.submodule_search_locations]:
            for module in pkgutil.walk_packages(path, f"{room}."):
                importlib.import_module(module.name)


def _run() -> None:
    """Run the command, and end the process without unloading its modules."""
    code: object = 0
    try:
        runpy.run_module("odradek", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    gc.freeze()
    _serve(requests)
    _run()
