"""A broker for programs and tests: inside this process, or as a subprocess.

    async with Broker() as broker:                  # on this event loop
        Producer(bootstrap_servers=broker.bootstrap)

    with Broker.subprocess(data_dir="data") as broker:   # a process of its own, no event loop
        ...

Without `data_dir` all data is in a temporary directory, which is deleted at the end.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self, Unpack

from odradek_client.errors import IllegalState, OdradekError
from odradek_testkit.faults import FaultRefused, Faults
from odradek_testkit.security import Secured, Security, SecurityOptions

if TYPE_CHECKING:
    from odradek_testkit.assertions import Assertions, AsyncAssertions
    from odradek_testkit.fault_control.control import FaultControl

Mode = Literal["in-process", "subprocess"]

_READY = "odradek ready on "
_FAULTS_ON = ", faults on "
_ERROR_TAIL_BYTES = 4096


class BrokerFailed(OdradekError):
    """The error of a broker that did not start or that ended unexpectedly, with its last log
    lines."""


class Broker(Secured):
    """A broker that runs for as long as an `async with` block lasts.

    `mode`: "in-process" runs the broker on the caller's event loop; "subprocess" runs it in a
    process of its own, which tests of recovery can kill (`kill`). `settings`: the settings of the
    broker, with Kafka's names. `listen`: "HOST:PORT"; port 0 chooses a free port, which `restart`
    keeps. `testing`: allow `faults`. `emulate`: the name of another broker to emulate
    (docs/use/emulation.md). `users`, `tls`, `superusers` and `acls`: see
    `odradek.security.Security`. BrokerFailed if the broker does not start within `timeout_s`.
    """

    def __init__(
        self,
        *,
        mode: Mode = "in-process",
        data_dir: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        testing: bool = False,
        emulate: str | None = None,
        timeout_s: float = 30.0,
        **security: Unpack[SecurityOptions],
    ) -> None:
        if mode not in ("in-process", "subprocess"):
            raise ValueError(f"mode={mode!r} must be 'in-process' or 'subprocess'")
        self._process = SubprocessBroker(
            data_dir=data_dir,
            listen=listen,
            settings=settings,
            testing=testing,
            emulate=emulate,
            timeout_s=timeout_s,
            **security,
        )
        #: The users and the certificate authority of the broker.
        self.security = self._process.security
        self._task: asyncio.Task[None] | None = None
        self._faults: Faults | None = None
        self.mode: Mode = mode

    @staticmethod
    def subprocess(
        *,
        data_dir: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        testing: bool = False,
        emulate: str | None = None,
        timeout_s: float = 30.0,
        **security: Unpack[SecurityOptions],
    ) -> SubprocessBroker:
        """A broker for a `with` block without an event loop."""
        return SubprocessBroker(
            data_dir=data_dir,
            listen=listen,
            settings=settings,
            testing=testing,
            emulate=emulate,
            timeout_s=timeout_s,
            **security,
        )

    @property
    def bootstrap(self) -> str:
        """The "HOST:PORT" for `bootstrap_servers`. IllegalState before the first start."""
        return self._process.bootstrap

    @property
    def data_dir(self) -> Path:
        """The directory of all data."""
        return self._process.data_dir

    @property
    def faults(self) -> Faults:
        """The object that injects faults into this broker. IllegalState unless the broker runs, and
        was created with `testing=True`."""
        if self.mode == "subprocess":
            return self._process.faults
        if self._faults is None:
            raise _not_testing(self._process.testing)
        return self._faults

    @property
    def assertions(self) -> AsyncAssertions:
        """Assertions about topics and groups. IllegalState before the first start."""
        return self._process.assertions.aio

    async def start(self) -> None:
        """Start the broker, and wait until it answers."""
        if self.mode == "subprocess":
            await asyncio.to_thread(self._process.start)
            return
        if self._task is not None:
            raise IllegalState("the broker is running already")
        self._process.prepare()
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._serve(ready), name="odradek-broker")
        either: set[asyncio.Future[Any]] = {ready, task}
        try:
            await asyncio.wait(
                either, timeout=self._process.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        except BaseException:
            task.cancel()
            raise
        if ready.done():
            self._process.address = ready.result()
            self._task = task
            return
        ready.cancel()
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        cause = outcome if isinstance(outcome, Exception) else None
        raise BrokerFailed(f"the broker did not start: {outcome}") from cause

    async def _serve(self, ready: asyncio.Future[str]) -> None:
        import structlog

        from odradek_broker.config.broker import parse_config
        from odradek_broker.server.server import serve
        from odradek_testkit.fault_control.control import FaultControl

        config, notices = parse_config(self._process.settings())
        if not structlog.is_configured():
            _log_as_guest()
        for notice in notices:
            if notice.level == "warning":
                structlog.get_logger("odradek.config").warning(notice.text)

        def on_ready(host: str, port: int) -> None:
            ready.set_result(_address(host, port))

        control = FaultControl() if self._process.testing else None
        if control is not None:
            self._faults = Faults(partial(_order, control))
        try:
            await serve(
                config,
                on_ready,
                handle_signals=False,
                under_test=control,
            )
        finally:
            self._faults = None

    async def stop(self) -> None:
        """Stop the broker cleanly, if it runs. The data stays until `close`."""
        if self.mode == "subprocess":
            await asyncio.to_thread(self._process.stop)
        elif self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise BrokerFailed(f"the broker ended badly: {outcome}") from outcome

    async def kill(self) -> None:
        """Kill the process without a clean stop (SIGKILL). IllegalState for a broker in this
        process."""
        if self.mode != "subprocess":
            raise IllegalState('only Broker(mode="subprocess") can be killed; stop() this one')
        await asyncio.to_thread(self._process.kill)

    async def restart(self) -> None:
        """Stop the broker if it runs, and start it again with the same port and data."""
        await self.stop()
        await self.start()

    async def close(self) -> None:
        """Stop, and delete the data if their directory is temporary."""
        try:
            await self.stop()
        finally:
            await asyncio.to_thread(self._process.close)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self._process.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class SubprocessBroker(Secured):
    """`odradek serve` in a process of its own, for as long as a `with` block lasts.

    When the program that started the broker ends, even by a kill, the broker ends and deletes its
    temporary directory.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        testing: bool = False,
        emulate: str | None = None,
        timeout_s: float = 30.0,
        **security: Unpack[SecurityOptions],
    ) -> None:
        self._given_dir = None if data_dir is None else Path(data_dir)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._listen = listen
        self._settings = {key: _text(value) for key, value in (settings or {}).items()}
        if self._settings:
            from odradek_broker.config.broker import require_known

            require_known(self._settings)
        if emulate is not None:
            self._settings["odradek.emulate"] = emulate
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: Path | None = None
        self._faults: Faults | None = None
        self._http: str | None = None
        #: The users and the certificate authority of the broker.
        try:
            self.security = Security(self._make_scratch() if security else "", **security)
        except BaseException:
            if self._scratch is not None:
                self._scratch.cleanup()
            raise
        self.testing = testing
        self.timeout_s = timeout_s
        #: The address of the running broker. A restart uses the same address.
        self.address: str | None = None

    @property
    def bootstrap(self) -> str:
        """The "HOST:PORT" for `bootstrap_servers`. IllegalState before the first start."""
        if self.address is None:
            raise IllegalState("the broker was not started; use `with` or call start()")
        return self.address

    @property
    def data_dir(self) -> Path:
        """The directory of all data."""
        return self._given_dir or Path(self._make_scratch()) / "data"

    @property
    def pid(self) -> int | None:
        """The process id of the running broker; None if no broker runs."""
        return None if self._child is None else self._child.pid

    @property
    def faults(self) -> Faults:
        """The object that injects faults into this broker. IllegalState unless the broker runs, and
        was created with `testing=True`."""
        if self._faults is None or self._child is None:
            raise _not_testing(self.testing)
        return self._faults

    @property
    def http(self) -> str:
        """The HOST:PORT at which the broker accepts orders for faults and clusters over HTTP.
        IllegalState unless the broker runs, and was created with `testing=True`."""
        if self._http is None or self._child is None:
            raise _not_testing(self.testing)
        return self._http

    @property
    def assertions(self) -> Assertions:
        """Assertions about topics and groups. IllegalState before the first start."""
        from odradek_testkit.assertions import Assertions

        settings = self.client_settings()
        return Assertions(settings.pop("bootstrap_servers"), **settings)

    def log_tail(self) -> str:
        """The end of the running broker's log; empty if no broker runs."""
        if self._errors is None or not self._errors.exists():
            return ""
        return self._errors.read_bytes()[-_ERROR_TAIL_BYTES:].decode("utf-8", "replace").strip()

    def prepare(self) -> None:
        """Create the temporary directory, if the data or the files of `security` need one."""
        if self._given_dir is None or self.security.has_files:
            self.security.folder = Path(self._make_scratch())

    def settings(self) -> dict[str, str]:
        """All settings, as Kafka's keys and texts."""
        own = self.security.broker_settings(self.address or self._listen)
        return own | {"log.dirs": str(self.data_dir)} | self._settings

    def start(self) -> None:
        """Start the broker, and wait until it answers. BrokerFailed if it does not."""
        if self._child is not None and self._child.poll() is None:
            raise IllegalState("the broker is running already")
        self.prepare()
        command = [sys.executable, "-m", "odradek", "serve"]
        if self.testing:
            command.append("--testing")
        for key, value in self.settings().items():
            command += ["--set", f"{key}={value}"]
        # The broker deletes this directory if the program ends without deleting it.
        scratch = self._make_scratch()
        command += ["--until-stdin-ends", scratch]
        self._errors = Path(scratch) / "broker.log"
        with self._errors.open("wb") as stderr:
            self._child = subprocess.Popen(
                command,
                # When this program ends, the pipe closes, and the broker then stops.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                # Ctrl+C goes to the application, which then stops the broker.
                start_new_session=True,
                env=_environment(),
            )
        try:
            self.address = self._wait_until_ready(self._child)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, child: subprocess.Popen[bytes]) -> str:
        assert child.stdout is not None
        deadline = time.monotonic() + self.timeout_s
        line = b""
        while not line.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise BrokerFailed(
                    f"the broker was not ready within {self.timeout_s:g} s: {self._last_words()}"
                )
            if not can_be_read(child.stdout, left_s):
                continue
            found = os.read(child.stdout.fileno(), 4096)
            if not found:
                child.wait()
                raise BrokerFailed(
                    f"the broker ended with code {child.returncode}: {self._last_words()}"
                )
            line += found
        text = line.decode("utf-8", "replace")
        if not text.startswith(_READY):
            raise BrokerFailed(f"the broker said {text!r} where its ready line was due")
        _, words, http = text.strip().rpartition(_FAULTS_ON)
        if words:
            self._faults = Faults.at(http)
            self._http = http
        return text.removeprefix(_READY).split()[0]

    def _last_words(self) -> str:
        return self.log_tail() or "it said nothing"

    def stop(self) -> None:
        """Send SIGTERM to the broker, if it runs, and wait for a clean stop. Send SIGKILL after
        `timeout_s`."""
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                child.kill()
        self._reap(child)

    def kill(self) -> None:
        """Send SIGKILL, so that nothing is flushed and clients get no answer. Does nothing if no
        broker runs.
        """
        child = self._child
        if child is not None:
            child.kill()
            self._reap(child)

    def _reap(self, child: subprocess.Popen[bytes]) -> None:
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        self._child = None
        self._errors = None
        if self._given_dir is not None and not self.security.has_files:
            self._remove_scratch()

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again with the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and delete the data if their directory is temporary."""
        self.stop()
        self._remove_scratch()

    def _make_scratch(self) -> str:
        """Create a directory for the broker's log and, without `data_dir`, for its data."""
        if self._scratch is None:
            # If this program ends without `close`, the broker may still write to the directory.
            self._scratch = tempfile.TemporaryDirectory(
                prefix="odradek-", ignore_cleanup_errors=True
            )
        return self._scratch.name

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def can_be_read(pipe: IO[bytes], timeout_s: float) -> bool:
    """True as soon as the pipe has bytes or has ended, False after `timeout_s`."""
    # select() takes no descriptor above 1023.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _not_testing(testing: bool) -> IllegalState:
    if testing:
        return IllegalState("the broker does not run; start it before faults are ordered")
    return IllegalState(
        "faults are ordered of a broker that was made with testing=True; in pytest the fixture "
        "odradek_faulty_broker gives one"
    )


def _order(control: FaultControl, method: str, path: str, order: dict[str, Any] | None) -> Any:
    """Carry out a request of `Faults` for a broker in this process."""
    if method == "GET":
        return {"faults": control.list()}
    if method == "POST":
        try:
            return control.order(order)
        except ValueError as problem:
            raise FaultRefused(str(problem)) from problem
    if not path:
        control.clear()
    elif not control.remove(int(path[1:])):
        raise FaultRefused(f"there is no fault {path[1:]}")
    return {}


def _log_as_guest() -> None:
    """Write the broker's log lines to this program's logging, in its configuration."""
    import structlog

    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _environment() -> dict[str, str]:
    """The environment for the broker's process, with the import path of this process, because
    Odradek may be a checkout that is not installed."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path}
