"""`odradek console`: the web console, for any Kafka."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.broker.console_address import (
    bound_to,
    is_of_this_machine,
    listening,
    parse_address,
    url_of,
)
from odradek_cli.commands import fail
from odradek_cli.common import DEFAULT_BOOTSTRAP, client_settings, run, tell
from odradek_cli.options import option
from odradek_cli.records.record_view import (
    Decode,
    HiddenFields,
    RegistryUrl,
    SchemaFiles,
    ShownFields,
    decoders_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek_records.decoders import Decoders
    from odradek_records.masking import Masks

_LISTEN = "127.0.0.1:8080"
#: The maximum time for which a page waits for an unreachable broker.
_TIMEOUT_MS = 10_000
#: The time limit for asking a broker for the address of its own console.
_ASK_MS = 3_000
_CLUSTERS_MAX = 32
#: A cluster's name, which has no colon: in -X a colon ends it.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,39}")
#: The time for a clean end after the broker that started the console has ended.
_END_S = 5.0

_KINDS = ("admin", "consumer", "producer")

Clusters = Annotated[
    list[str] | None,
    option(
        "--bootstrap -b [NAME=]HOST:PORT,...",
        "The first brokers to connect to, of any Kafka; repeatable: the console then shows several "
        f"clusters. Without it ODRADEK_BOOTSTRAP, or {DEFAULT_BOOTSTRAP}.",
    ),
]
ClusterSettings = Annotated[
    list[str] | None,
    option(
        "-X --command-config [NAME:]KEY=VALUE|[NAME:]FILE",
        "A setting of the client, by Kafka's name, or a file of them, for all clusters or for the "
        "one with this name; repeatable.",
    ),
]
BehindProxy = Annotated[
    list[str] | None,
    option(
        "--behind-proxy ADDRESS",
        "The address or network of a proxy whose X-Forwarded-For and X-Forwarded-Proto headers "
        "are trusted; repeatable.",
    ),
]


@dataclass(frozen=True)
class RecordOptions:
    """The options that decide what pages show of records."""

    hide_values: Annotated[
        bool,
        option(
            "--hide-values",
            "Hide keys and values; only the structure of JSON is shown, with types and lengths.",
        ),
    ] = False
    show_field: ShownFields = None
    hide_field: HiddenFields = None
    decode: Decode = None
    schema: SchemaFiles = None
    registry: RegistryUrl = None

    def decoders(self) -> Decoders:
        """The decoders of keys and values. Ends the program for files that cannot be used."""
        return decoders_of(self.decode, self.schema, self.registry)

    def masks(self) -> Masks | None:
        """The masks of all records; None if nothing is hidden. Ends the program if there is nothing
        that --show-field could show again."""
        from odradek_records.masking import Masks

        if not (self.hide_values or self.hide_field):
            if self.show_field:
                why = "--show-field shows what --hide-values or --hide-field hides"
                fail(f"{why}: give one of them", 2)
            return None
        # A page shows whole values, so nothing is left out because of its length.
        whole = {"items_max": sys.maxsize, "names_max": sys.maxsize}
        return Masks(not self.hide_values, self.show_field or (), self.hide_field or (), **whole)


def console(
    bootstrap: Clusters = None,
    listen: Annotated[
        str,
        option(
            "--listen HOST:PORT",
            f"Where browsers find it; {_LISTEN}, or a free port if that is taken.",
        ),
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        option(
            "--allow-host NAME",
            "A name of this machine that browsers may use in the address; repeatable.",
        ),
    ] = None,
    behind_proxy: BehindProxy = None,
    insecure: Annotated[
        bool, option("--insecure", "Let other machines use the console without authentication.")
    ] = False,
    write: Annotated[
        bool,
        option("--write", "Let the console make changes; without it the console is read-only."),
    ] = False,
    no_open: Annotated[bool, option("--no-open", "Do not open a browser.")] = False,
    *,
    records: RecordOptions,
    setting: ClusterSettings = None,
    listen_on: Annotated[int | None, option("--listen-on", hidden=True)] = None,
) -> None:
    """Open the web console in the browser: the broker's own, or one that runs until Ctrl+C.

    Needs `pip install 'odradek[console]'`. Works with any Kafka; brokers other than Odradek's
    have no history to show. `odradek serve --console` serves a console together with the broker.
    With --listen, with several clusters, with decoders or with hidden fields a new console is
    always started.
    """
    proxies = tuple(map(_proxy, behind_proxy or ()))
    clusters = _clusters_of(bootstrap, setting)
    admins = [clients["admin"] for clients in clusters.values()]
    decoders, masks = records.decoders(), records.masks()
    own = listen or listen_on is not None or proxies or records != RecordOptions()
    served = None if own or len(clusters) > 1 else asyncio.run(_served(admins[0]))
    addresses = ", ".join(str(admin["bootstrap_servers"]) for admin in admins)
    if served is not None:
        tell(f"odradek console of the broker at {addresses}: {served}")
        if not no_open:
            _open_browser(served)
        return
    host, port = parse_address(listen or _LISTEN, "--listen")
    if not (insecure or all(map(_signs_in, admins))):
        _refuse_if_open(host, listen, proxies)
    if listen_on is not None:
        _end_with_stdin()
        ours = socket.socket(fileno=listen_on)
    else:
        ours = _bind(host, port, instead=not listen)
    address = url_of(host, ours.getsockname()[1])

    def started() -> None:
        if listen_on is None:
            tell(f"odradek console for {addresses}: {address}")
            if not no_open:
                _open_browser(address)

    hosts = frozenset([host, *(allow_host or [])])
    _serve(
        ours, started, decoders, masks, clusters=clusters, hosts=hosts, write=write, proxies=proxies
    )


def _refuse_if_open(host: str, listen: str, proxies: tuple[str, ...]) -> None:
    """End the program if users of other machines could see data without signing in."""
    if is_of_this_machine(host) and not proxies:
        return
    fail(
        f"{'--behind-proxy' if proxies else f'--listen {listen}'} would show other machines"
        " everything without asking who they are: say so with --insecure, or use a listener with"
        " SASL (-X security.protocol=...)",
        2,
    )


def _proxy(text: str) -> str:
    """The address or network of a proxy. Ends the program for any other text."""
    try:
        return str(ipaddress.ip_network(text) if "/" in text else ipaddress.ip_address(text))
    except ValueError:
        fail(f"--behind-proxy {text!r} must be an address such as 10.0.0.7, or 10.0.0.0/24", 2)


def _serve(
    listening_on: socket.socket,
    started: Callable[[], None],
    decoders: Decoders,
    masks: Masks | None,
    **options: Any,
) -> None:
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        fail(f"the console needs {', '.join(missing)}: pip install 'odradek[console]'")
    from odradek_console.record_rules import use_decoders, use_masks
    from odradek_console.server import ConsoleOptions, serve

    use_decoders(decoders)
    use_masks(masks)
    _log_to_stderr()
    run(serve(ConsoleOptions(**options), listening_on, started), fast=True)


def _clusters_of(
    bootstraps: list[str] | None, given: list[str] | None
) -> dict[str, dict[str, dict[str, Any]]]:
    """The settings of the clients of each cluster, by the cluster's name and the kind of client.
    Ends the program for clusters and settings that do not go together."""
    named: dict[str, str] = {}
    for text in bootstraps or [os.environ.get("ODRADEK_BOOTSTRAP") or DEFAULT_BOOTSTRAP]:
        name, equals, address = text.rpartition("=")
        if equals and not (_NAME.fullmatch(name) and address):
            fail(
                f"-b {text!r} must be HOST:PORT or NAME=HOST:PORT; a NAME such as prod-1 has up to 40 characters",
                2,
            )
        if (name or address) in named:
            fail(f"-b names two clusters {name or address}: give them different names", 2)
        named[name or address] = address
    if len(named) > _CLUSTERS_MAX:
        fail(f"-b names {len(named)} clusters, and a console has {_CLUSTERS_MAX} at most", 2)
    several = len(named) > 1
    own: dict[str, list[str]] = {name: [] for name in named}
    for text in given or []:
        name, colon, rest = text.partition(":")
        if re.match(r"bootstrap[._]servers\s*=", rest if name in named else text) and several:
            fail(f"-X {text!r} names the brokers of one cluster: give them with -b", 2)
        if colon and name in named:
            own[name].append(rest)
            continue
        if ":" in text.partition("=")[0] and "=" in text:
            fail(f"-X {text!r} is for no cluster: -b names {', '.join(named)}", 2)
        for each in own.values():
            each.append(text)
    return {
        name: {kind: _patient(address, own[name], kind, several) for kind in _KINDS}
        for name, address in named.items()
    }


def _patient(bootstrap: str, given: list[str], kind: str, several: bool) -> dict[str, Any]:
    settings = client_settings(bootstrap, given, kind, ask=False)
    if several:
        # A file may have brokers too, which are those of one cluster.
        settings["bootstrap_servers"] = bootstrap
    if kind == "admin":
        settings.setdefault("default_api_timeout_ms", _TIMEOUT_MS)
        settings.setdefault("request_timeout_ms", _TIMEOUT_MS)
    return {"client_id": "odradek-console", **settings}


def _signs_in(settings: Mapping[str, Any]) -> bool:
    """True if every user of the console has to sign in."""
    from odradek_console.sign_in import wants_sign_in

    return wants_sign_in(settings)


async def _served(settings: dict[str, Any]) -> str | None:
    """The address of the console that the broker serves; None if it serves none, or does not report
    it."""
    from odradek_client.admin import Admin
    from odradek_client.errors import OdradekError

    log = logging.getLogger("odradek.client")
    level = log.level
    # Pages show the errors of the broker, so the log does not repeat them.
    log.setLevel(logging.CRITICAL)
    admin = Admin(**{**settings, "default_api_timeout_ms": _ASK_MS, "request_timeout_ms": _ASK_MS})
    try:
        await admin.start(_ASK_MS)
        return (await admin.describe_broker_status()).console_url
    except OdradekError:
        return None
    finally:
        await admin.close()
        log.setLevel(level)


def _bind(host: str, port: int, *, instead: bool) -> socket.socket:
    """The listening socket. `instead`: take any free port if the given port is in use."""
    if instead:
        try:
            return listening(host, port)
        except OSError:
            return listening(host, 0)
    return bound_to(host, port, "--listen")


def _end_with_stdin() -> None:
    """End this process when standard input ends, because the broker that started it has ended."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(_END_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="odradek-parent").start()


def _log_to_stderr() -> None:
    from odradek_broker.platform.log_lines import configure_logging

    logging.getLogger("odradek.console").setLevel(logging.INFO)
    # Lines are JSON unless stderr is a terminal, because otherwise a program reads them, or they go
    # to the broker's log.
    configure_logging("auto", "warning")


def _open_browser(address: str) -> None:
    """Open the desktop's browser; do nothing on a machine without a desktop."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return
    import webbrowser

    webbrowser.open(address)
