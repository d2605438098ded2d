"""The common base of subcommands that talk to a broker: options, errors, progress."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from odradek_cli.client_config import DEFAULT_BOOTSTRAP, assignments, client_settings
from odradek_cli.commands import fail
from odradek_cli.layout import table_lines
from odradek_cli.options import option
from odradek_cli.say import say
from odradek_cli.standard_streams import drop_output

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.results import Results
    from odradek_client.errors import OdradekError
    from odradek_client.network.client import NetworkClient
    from odradek_client.structs import OffsetAndTimestamp
    from odradek_protocol.errors import ErrorCode

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "AsJson",
    "Bootstrap",
    "BrokerOptions",
    "ClientSettings",
    "Compression",
    "Execute",
    "KafkaClient",
    "RecordCounter",
    "ValidateOnly",
    "assignments",
    "cell",
    "client_settings",
    "connected",
    "end_each",
    "end_plan",
    "end_with",
    "errors_but",
    "offset_of",
    "open_admin",
    "print_json",
    "print_rows",
    "print_table",
    "progress",
    "run",
    "tell",
]

T = TypeVar("T")

_PROGRESS_EVERY_S = 0.1
#: The time to wait for a broker that may not exist, unless `-X default.api.timeout.ms` is given.
_START_TIMEOUT_MS = 3_500
#: The part of `_START_TIMEOUT_MS` that the connection attempts to all addresses share, so that a
#: dead address leaves time for the other addresses.
_CONNECT_ALL_MS = 3_000
_CONNECT_MS_MIN = 500
_THREADS_MAX = 128
#: The time to wait if all addresses are of this machine, and refuse connections.
_REFUSED_TIMEOUT_MS = 400

Bootstrap = Annotated[
    str,
    option(
        "--bootstrap -b HOST:PORT,...",
        "The first brokers to connect to, of any Kafka.",
        envvar="ODRADEK_BOOTSTRAP",
    ),
]
ClientSettings = Annotated[
    list[str] | None,
    option(
        "-X --command-config KEY=VALUE|FILE",
        "A setting of the client, by Kafka's name, or a file of them; repeatable.",
    ),
]
AsJson = Annotated[bool, option("--json", "JSON Lines instead of text.")]
Compression = Annotated[str, option("--compression -z CODEC", "none, gzip, snappy, lz4 or zstd.")]
Execute = Annotated[
    bool, option("--execute", "Carry out the plan; without this option it is only shown.")
]
ValidateOnly = Annotated[bool, option("--validate-only", "Check, and change nothing.")]


@dataclass(frozen=True)
class BrokerOptions:
    """The options -b and -X: the brokers that a command asks, and the settings of its client."""

    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    setting: ClientSettings = None

    def ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """The answer to a question; see `run` for failures."""

        async def main() -> T:
            async with self.admin() as admin:
                return await question(admin)

        return run(main())

    def admin(self) -> AbstractAsyncContextManager[Admin]:
        """An `Admin`; see `open_admin`."""
        return open_admin(self.bootstrap, self.setting)

    def settings(self, kind: str = "admin") -> dict[str, Any]:
        """The settings of a client; see `client_settings`."""
        return client_settings(self.bootstrap, self.setting, kind)


class KafkaClient(Protocol):
    """A client: `Admin`, `Consumer` or `Producer`."""

    network: NetworkClient

    async def start(self, timeout_ms: float | None = None) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=KafkaClient)


@asynccontextmanager
async def connected(make: Callable[..., C], settings: dict[str, Any]) -> AsyncIterator[C]:
    """Start a client and close it at the end. A broker that does not answer soon is an error.

    A timeout in the user's `settings` replaces the short default for the start.
    """
    addresses = str(settings["bootstrap_servers"]).count(",") + 1
    connect_ms = max(_CONNECT_ALL_MS // addresses, _CONNECT_MS_MIN)
    patient = not settings.keys().isdisjoint({"default_api_timeout_ms", "max_block_ms"})
    client = make(**{"socket_connection_setup_timeout_ms": connect_ms, **settings})
    log = logging.getLogger("odradek.client")
    level = log.level
    if not patient:
        # The log would repeat the error with which the program ends.
        log.setLevel(logging.ERROR)
    try:
        refused = not patient and _all_refuse(client.network.config.bootstrap_servers)
        start_ms = _REFUSED_TIMEOUT_MS if refused else _START_TIMEOUT_MS
        await client.start(None if patient else start_ms)
        limit_ms = client.network.config.request_timeout_ms if patient else _CONNECT_ALL_MS
        await _check_addresses(client, settings["bootstrap_servers"], limit_ms)
    except BaseException:
        await client.close()
        raise
    finally:
        log.setLevel(level)
    try:
        yield client
    finally:
        await client.close()


def _all_refuse(servers: Sequence[str]) -> bool:
    """True if all addresses are of this machine, and nobody listens at any."""
    from odradek_client.config.definition import split_address

    for host, port in map(split_address, servers):
        if host not in ("localhost", "127.0.0.1", "::1"):
            return False
        try:
            socket.create_connection((host, port), _CONNECT_MS_MIN / 1000).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return False
        return False
    return True


async def _check_addresses(client: KafkaClient, bootstrap: str, limit_ms: int) -> None:
    """Raise ConnectionLost if the brokers advertise unreachable addresses. Every later request
    would otherwise hang."""
    from odradek_client.errors import ConnectionLost

    try:
        await client.network.reach_a_broker(limit_ms)
    except ConnectionLost as error:
        raise ConnectionLost(
            f"{bootstrap} answers, but names addresses that cannot be reached: {error}; check "
            "advertised.listeners of the brokers, and that their names are known here"
        ) from error


@asynccontextmanager
async def open_admin(bootstrap: str, given: list[str] | None) -> AsyncIterator[Admin]:
    """An `Admin`. Ends the program for an assignment without `=`."""
    from odradek_client.admin import Admin

    async with connected(Admin, client_settings(bootstrap, given)) as admin:
        yield admin


class _Threads(ThreadPoolExecutor):
    """An executor for name resolution, with threads for several names that are never resolved: a
    console's other clusters need some too. The end of the program does not wait for its threads,
    because a resolver may never answer.
    """

    def __init__(self) -> None:
        super().__init__(_THREADS_MAX)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Called by the loop when it is closed."""
        super().shutdown(wait=False, cancel_futures=True)


def run(
    main: Coroutine[Any, Any, T],
    *,
    fast: bool = False,
    close_on_sigterm: bool = False,
    bootstrap: str = "-b (--bootstrap)",
) -> T:
    """Run a client to its end; report a failure in one line on stderr.

    `fast`: use uvloop if it is installed; uvloop takes longer to start, but is faster afterwards.
    `close_on_sigterm`: SIGTERM closes the client like Ctrl+C, instead of ending the process
    immediately. `bootstrap`: the options for bootstrap_servers, as errors name them. Ends the
    program with 130 on Ctrl+C, 143 on SIGTERM, 2 for a wrong setting, 1 for any other failure.
    """
    from odradek_client.errors import ConfigError, OdradekError

    stopped = False

    def typed(error: OdradekError) -> str:
        return str(error).replace("bootstrap_servers", bootstrap)

    async def stoppable() -> T:
        task = asyncio.current_task()

        def stop() -> None:
            nonlocal stopped
            stopped = True
            if task is not None:
                task.cancel()

        if close_on_sigterm:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        return await main

    try:
        with asyncio.Runner(loop_factory=_uvloop_factory() if fast else None) as runner:
            runner.get_loop().set_default_executor(_Threads())
            return runner.run(stoppable())
    except ConfigError as error:
        fail(typed(error), 2)
    except OdradekError as error:
        fail(typed(error) or type(error).__name__)
    except BrokenPipeError:
        drop_output()
        raise typer.Exit from None
    except asyncio.CancelledError:
        if not stopped:
            raise
        raise typer.Exit(143) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def print_table(columns: list[str], rows: list[list[str]], **fitted: str) -> None:
    """Aligned columns with Kafka's headings; `fitted`: see `table_lines`."""
    say(*table_lines([columns, *rows], **fitted))


def print_rows(
    headings: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    nothing: str | None = "",
    **fitted: str,
) -> None:
    """A table of rows: the column LOG-END-OFFSET has the value `log_end_offset`. With `as_json` a
    line of JSON for each row. `nothing`: printed on stderr instead of a table without rows; None
    for the headings alone. `fitted`: `drop` and `folds` of `table_lines`."""
    if as_json:
        print_json(rows)
    elif rows or nothing is None:
        names = headings.split()
        keys = [name.lower().replace("-", "_") for name in names]
        print_table(names, [[cell(row.get(key)) for key in keys] for row in rows], **fitted)
    elif nothing:
        tell(nothing)


def print_json(rows: Iterable[object]) -> None:
    """A line of JSON for each row."""
    for row in rows:
        say(json.dumps(row))


def cell(value: Any) -> str:
    """A value in a table; an unknown or missing value is a dash, as in Kafka's tools."""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return "-" if value is None or value == "" else str(value)


def offset_of(found: OffsetAndTimestamp | None) -> int:
    """The offset that the broker found, or -1 if it found none."""
    return -1 if found is None else found.offset


def tell(text: str) -> None:
    """Print a text for people on stderr."""
    say(*text.split("\n"), err=True)


def errors_but(code: ErrorCode, results: Results[Any, Any]) -> list[OdradekError]:
    """The errors, except those of items that were deleted after they were listed. The code of an
    excepted error is `code`."""
    return [error for error in results.errors.values() if error.code is not code]


def end_with(errors: Iterable[object]) -> None:
    """Print the errors, and end the program with 1 if there are any."""
    failed = False
    for error in errors:
        tell(f"odradek: {error}")
        failed = True
    if failed:
        raise typer.Exit(1)


def end_each(
    done: str,
    names: Iterable[str],
    errors: Mapping[str, OdradekError],
    harmless: ErrorCode | None = None,
) -> None:
    """Print for each name that it is done, or its error; end the program with 1 if there are errors
    of other codes than `harmless`."""
    failed = False
    for name in names:
        error = errors.get(name)
        if error is None:
            say(f"{done} {name}", err=True)
        elif harmless is not None and error.code is harmless:
            say(f"left {name} as it is: nothing to do", err=True)
        else:
            say(f"odradek: {error}", err=True)
            failed = True
    if failed:
        raise typer.Exit(1)


def end_plan(
    rows: Sequence[object], errors: Iterable[object], nothing: str, *, execute: bool
) -> None:
    """Print that the rows are only a plan, unless the plan was executed. In both cases call
    `end_with` with the errors."""
    if rows and not execute:
        tell(f"{nothing}: this is the plan; --execute carries it out")
    end_with(errors)


class RecordCounter:
    """The count of records, which `progress` shows on a terminal."""

    def __init__(self, task: str, total: int | None) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._description = task
        self._total = total

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self._description, total=self._total, rate="")

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, completed: int, total: int | None = None) -> None:
        """Show the count of records done, and their total if it is known."""
        if self._bar is not None:
            task = self._bar.tasks[0]
            elapsed_s = task.elapsed or 0
            rate = f"{completed / elapsed_s:,.0f}/s" if elapsed_s > _PROGRESS_EVERY_S else ""
            self._bar.update(self._task, completed=completed, total=total, rate=rate)


@contextmanager
def progress(task: str, total: int | None = None, *, wanted: bool) -> Iterator[RecordCounter]:
    """A progress bar on stderr, if `wanted` and stderr is a terminal."""
    shown = RecordCounter(task, total)
    if wanted and sys.stderr.isatty():
        shown.start()
    try:
        yield shown
    finally:
        shown.stop()
