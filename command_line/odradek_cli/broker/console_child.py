"""The console that a broker serves, in a separate process that ends with the broker.

The broker's process opens the listening socket and passes it on, so that a port in use is detected
before the broker starts, and a restarted console has the same address.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from odradek_cli.broker.console_address import bound_to, is_of_this_machine, parse_address, url_of
from odradek_cli.commands import fail

if TYPE_CHECKING:
    from odradek_broker.config.listeners import Listener
    from odradek_broker.server.server import Server

#: The pauses before restarts of a console that has ended. A console that ends after the last
#: restart stays down until the broker is restarted.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: After a run longer than this time, the next pause is again the first and shortest one.
_LONG_RUN_S = 600.0
_END_S = 5.0
#: The protocols in the order in which a console, on the broker's machine, prefers their listeners:
#: without TLS no certificate is needed, and without SASL nobody has to sign in.
_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def listener_for_console(listeners: Sequence[Listener]) -> Listener:
    """The listener that a console on the broker's machine uses."""
    return min(listeners, key=lambda each: _PROTOCOLS.index(each.protocol.value))


def bootstrap_of(server: Server, listener: Listener) -> str:
    """The address of a listener, for clients on the broker's machine."""
    host, port = server.addresses[listener.name]
    if listener.protocol.value.endswith("SSL"):
        # The broker's certificate has the advertised name.
        host, port = server.node.advertised(listener.name)
    host = _ANY_HOST.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ConsoleChild:
    """The console's process, and the thread that restarts it. `protocol`: the security protocol of
    the broker's listener.

    Ends the program with an error if the port is taken, the packages are missing, or other machines
    could open the console without signing in.
    """

    def __init__(
        self,
        address: str,
        *,
        protocol: str = "PLAINTEXT",
        write: bool = False,
        insecure: bool = False,
        program: Sequence[str] = (sys.executable, "-m", "odradek"),
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        needed = ("odradek_console", "starlette", "uvicorn")
        missing = [name for name in needed if find_spec(name) is None]
        if missing:
            fail(f"--console needs {', '.join(missing)}: pip install 'odradek[console]'")
        host, port = parse_address(address, "--console")
        if not (protocol.startswith("SASL") or insecure or is_of_this_machine(host)):
            fail(
                f"--console {address} would show other machines everything without asking who they"
                " are: say so with --insecure, or let the broker have listeners with SASL only",
                2,
            )
        self._socket = bound_to(host, port, "--console HOST:PORT")
        self.address = url_of(host, self._socket.getsockname()[1])
        self._command = [
            *(*program, "console", "--no-open", "--listen", f"{host}:0"),
            *("--listen-on", str(self._socket.fileno())),
            *("-X", f"security.protocol={protocol}"),
            *(["--write"] if write else []),
        ]
        self._pauses_s = pauses_s
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, bootstrap: str) -> None:
        """Start the console's process. The broker must already listen at `bootstrap`."""
        self._thread = threading.Thread(
            target=self._keep,
            args=([*self._command, "--bootstrap", bootstrap],),
            name="odradek-console",
            daemon=True,
        )
        self._thread.start()

    def _keep(self, command: list[str]) -> None:
        """Start the process, and restart it a limited number of times when it ends."""
        log = structlog.get_logger("odradek.console")
        pauses = list(self._pauses_s)
        while not self._ending.is_set():
            began_s = time.monotonic()
            process = self._start(command)
            if process is None:
                return
            code = process.wait()
            if process.stdin is not None:
                process.stdin.close()
            if self._ending.is_set():
                return
            if time.monotonic() - began_s > _LONG_RUN_S:
                pauses = list(self._pauses_s)
            if not pauses:
                log.error(
                    "the console has ended too often and is not started again", exit_code=code
                )
                return
            log.warning("the console has ended; starting it again", exit_code=code)
            self._ending.wait(pauses.pop(0))

    def _start(self, command: list[str]) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._ending.is_set():
                return None
            # The console's standard input ends with the broker, even if the broker is killed. The
            # console's log lines go to the broker's log.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[self._socket.fileno()],
                start_new_session=True,
            )
            return self._process

    def end(self) -> None:
        """End the process, and wait for its end."""
        with self._lock:
            self._ending.set()
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._thread is not None:
            self._thread.join()
        self._socket.close()
