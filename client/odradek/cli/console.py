"""`odradek console`: the web console, for any Kafka."""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.commands import fail
from odradek.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ClientSettings,
    client_settings,
    run,
    tell,
)

if TYPE_CHECKING:
    import socket

_LISTEN = "127.0.0.1:8080"
#: A page waits for a broker that is gone for no longer than this.
_TIMEOUT_MS = 10_000


def console(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help=f"Where browsers find it; {_LISTEN}, or a free port if that is taken.",
        ),
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="A name of this machine in addresses; repeatable."
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
    setting: ClientSettings = None,
) -> None:
    """Serve the web console until Ctrl+C, and open it in the browser.

    Needs `pip install 'odradek[console]'`. Works with any Kafka; other brokers than Odradek have
    no history to show.
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        fail(f"the console needs {', '.join(missing)}: pip install 'odradek[console]'")
    from odradek.console.server import ConsoleOptions, serve

    clients = {
        kind: _patient(bootstrap, setting, kind) for kind in ("admin", "consumer", "producer")
    }
    host, port = _address(listen or _LISTEN)
    listening = _bind(host, port, instead=not listen)
    address = f"http://{_shown(host)}:{listening.getsockname()[1]}/"
    _log_to_stderr()

    def started() -> None:
        tell(f"odradek console for {clients['admin']['bootstrap_servers']}: {address}")
        if not no_open:
            _open_browser(address)

    hosts = frozenset([host, *(allow_host or [])])
    run(serve(ConsoleOptions(clients, hosts), listening, started), fast=True)


def _patient(bootstrap: str, given: list[str] | None, kind: str) -> dict[str, Any]:
    settings = client_settings(bootstrap, given, kind)
    if kind == "admin":
        settings.setdefault("default_api_timeout_ms", _TIMEOUT_MS)
        settings.setdefault("request_timeout_ms", _TIMEOUT_MS)
    return {"client_id": "odradek-console", **settings}


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        fail(f"--listen {text!r} must be HOST:PORT, such as {_LISTEN}", 2)
    return host.strip("[]") or "127.0.0.1", int(port)


def _bind(host: str, port: int, *, instead: bool) -> socket.socket:
    """The listening socket. `instead`: on another port if the given one is taken."""
    from odradek.console.server import listen

    try:
        return listen(host, port)
    except OSError as error:
        if not instead:
            cause = error.strerror or str(error)
            fail(f"the console cannot listen on {host}:{port}: {cause}; see --listen")
    return listen(host, 0)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _log_to_stderr() -> None:
    import structlog

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def _open_browser(address: str) -> None:
    """Open the browser of the desktop; where there is none, nothing."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return
    import webbrowser

    webbrowser.open(address)
