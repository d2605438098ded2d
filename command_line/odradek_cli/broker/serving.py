"""The command `odradek serve`: a broker in the foreground.

The module imports little, because containers, tests and `odradek start` wait for the broker. So it
has a small parser for options in the usual form, in addition to typer's (`broker.py`); a test
checks that both parsers agree. Other command lines (help, mistakes) are parsed by typer.
"""

from __future__ import annotations

import errno
import gc
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_cli.broker.pid_file import PidFile, PidFileBusyError, RunningBroker
from odradek_cli.broker.starter import PortFile, ended_by_stdin, ended_with_parent
from odradek_cli.commands import fail, with_value
from odradek_cli.standard_streams import drop_output

if TYPE_CHECKING:
    from odradek_broker.config.broker import BrokerConfig, Notice
    from odradek_broker.server.server import Server
    from odradek_cli.broker.console_child import ConsoleChild

EXIT_BAD_CONFIG = 2

#: The address at which a broker under test accepts orders for faults, unless http.listen gives
#: another.
TESTING_HTTP = "127.0.0.1:0"

#: The words before the address of the HTTP endpoint, in the ready line of a broker under test.
TESTING_WORDS = ", faults on "
_USERS = "sasl.scram.initial.users"
DATA_DIR_VARIABLE = "ODRADEK_DATA_DIR"
_SWITCHES = ("--testing", "--insecure", "--console-write", "--exit-with-parent")


@dataclass
class ServeOptions:
    """The options of `odradek serve`."""

    listen: str | None = None
    data_dir: Path | None = None
    config: Path | None = None
    settings: list[str] = field(default_factory=list)
    log_file: Path | None = None
    testing: bool = False
    insecure: bool = False
    users: list[str] = field(default_factory=list)
    #: The address of the console that the broker serves, None for no console; and `console_write`,
    #: true if that console may make changes.
    console: str | None = None
    console_write: bool = False
    #: The temporary directory of the program that started the broker; see `ended_by_stdin`.
    scratch: Path | None = None
    #: The file to which the broker writes its addresses when it is ready.
    port_file: Path | None = None
    #: True if the broker ends with the process that started it.
    exit_with_parent: bool = False


def emulated(name: str) -> str:
    """The setting of the option --emulate."""
    return f"odradek.emulate={name}"


def parse_plain(arguments: Sequence[str], environment: Mapping[str, str]) -> ServeOptions | None:
    """The options given as `--name value` or `--name=value`; None if there are any other
    arguments."""
    options = ServeOptions()
    if environment.get(DATA_DIR_VARIABLE):
        options.data_dir = Path(environment[DATA_DIR_VARIABLE])
    left = with_value(arguments)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name in _SWITCHES and not equals:
            setattr(options, name.removeprefix("--").replace("-", "_"), True)
            continue
        if not equals:
            if not left:
                return None
            value = left.pop(0)
            if value.startswith("-"):
                return None
        if name == "--listen":
            options.listen = value
        elif name == "--data-dir":
            options.data_dir = Path(value)
        elif name == "--config":
            options.config = Path(value)
        elif name == "--set":
            options.settings.append(value)
        elif name == "--emulate":
            options.settings.append(emulated(value))
        elif name == "--user":
            options.users.append(value)
        elif name == "--console":
            options.console = value
        elif name == "--log-file":
            options.log_file = Path(value)
        elif name == "--until-stdin-ends":
            options.scratch = Path(value)
        elif name == "--port-file":
            options.port_file = Path(value)
        else:
            return None
    return options


def serve(options: ServeOptions) -> None:
    """Serve until a signal. Ends the program with 2 for a bad setting, 1 if serving is
    impossible."""
    with ended_by_stdin(options.scratch), ended_with_parent(options.exit_with_parent):
        _serve(options)


def _serve(options: ServeOptions) -> None:
    # The garbage collector is off during imports, and later does not scan the imported modules.
    gc.disable()
    from odradek_broker.platform.quick_start import import_libraries

    import_libraries()
    parsed, notices = configure(options)
    if options.testing and parsed.http_address is None:
        parsed = replace(parsed, http_listen=TESTING_HTTP)
    from odradek_broker.platform.log_lines import configure_logging, reopen_log_file

    log_file = options.log_file
    try:
        configure_logging(
            parsed.log_format, parsed.log_level, None if log_file is None else str(log_file)
        )
    except OSError as error:
        fail(f"cannot write to {log_file}: {reason(error)}")
    _say(notices)
    _warn_of_open_directories(parsed.log_dirs)
    directory = Path(parsed.data_dir).absolute()
    pid_file = PidFile(directory)
    fail_if_running(directory)
    console, begin_console = _console(options, parsed)
    port_file = _port_file(options.port_file)

    orders = ""

    def started(server: Server) -> None:
        nonlocal orders
        if options.testing and server.http_address is not None:
            orders = f"{TESTING_WORDS}{_shown(*server.http_address)}"
        if begin_console is not None:
            begin_console(server)

    def ready(host: str, port: int) -> None:
        address = _shown(host, port)
        pid_file.claim(os.getpid(), address)
        durability = parsed.log_durability
        shown = f", console on {console.address}" if console is not None else ""
        line = f"odradek ready on {address} (data {directory}, durability {durability})"
        if port_file is not None:
            port_file.write(address, orders.removeprefix(TESTING_WORDS))
        _print_if_anybody_reads(f"{line}{shown}{orders}")

    try:
        _run(
            parsed,
            ready,
            started,
            reopen_log=None if log_file is None else reopen_log_file,
            testing=options.testing,
        )
    finally:
        if console is not None:
            console.end()
        if port_file is not None:
            port_file.remove()
        pid_file.release()


def running(directory: Path) -> RunningBroker | None:
    """The broker that serves a data directory. Ends the program if that cannot be read."""
    try:
        return PidFile(directory).read()
    except OSError as error:
        fail(f"cannot read the data directory {directory}: {reason(error)}")


def fail_if_running(directory: Path) -> None:
    """End the program if a broker serves the data directory."""
    other = running(directory)
    if other is not None:
        fail(f"a broker is running already: pid {other.pid}, {other.address}, data {directory}")


def _port_file(path: Path | None) -> PortFile | None:
    """The file for the addresses, after removal of one that a killed broker has left. Ends the
    program if it cannot be written."""
    if path is None:
        return None
    port_file = PortFile(path)
    try:
        port_file.prepare()
    except OSError as error:
        fail(f"cannot write the port file {path}: {reason(error)}", EXIT_BAD_CONFIG)
    return port_file


def _console(
    options: ServeOptions, parsed: BrokerConfig
) -> tuple[ConsoleChild | None, Callable[[Server], None] | None]:
    """The console that the broker serves, with its port bound, and the function that starts it.
    Ends the program if the port cannot be bound."""
    if options.console is None:
        if options.console_write:
            fail("--console-write says what a console may do: give --console too", EXIT_BAD_CONFIG)
        return None, None
    # Imported here, because few brokers serve a console, and all must start fast.
    from odradek_cli.broker.console_child import ConsoleChild, bootstrap_of, listener_for_console

    listener = listener_for_console(parsed.broker_listeners)
    child = ConsoleChild(
        options.console,
        protocol=listener.protocol.value,
        write=options.console_write,
        insecure=options.insecure or parsed.insecure_listeners,
    )

    def begin(server: Server) -> None:
        server.node.console_url = child.address
        child.begin(bootstrap_of(server, listener))

    return child, begin


def configure(options: ServeOptions) -> tuple[BrokerConfig, list[Notice]]:
    """The configuration from the command line's options. Ends the program with exit code 2 if the
    configuration is invalid."""
    from odradek_broker.config.broker import BrokerConfigError

    try:
        return read_settings(options)
    except BrokerConfigError as error:
        fail(str(error), EXIT_BAD_CONFIG)


def read_settings(options: ServeOptions) -> tuple[BrokerConfig, list[Notice]]:
    """The configuration from the command line's options. Raises ConfigError for a bad setting. Ends
    the program if the file cannot be read."""
    from odradek_broker.config.broker import parse_assignments, parse_config, parse_properties
    from odradek_broker.config.listeners import with_plaintext_address

    given: dict[str, str] = {}
    if options.config is not None:
        given.update(parse_properties(_read(options.config)))
    given.update(parse_assignments(options.settings))
    if options.listen is not None:
        given["listeners"] = with_plaintext_address(given.get("listeners"), options.listen)
    if options.insecure:
        given["insecure.listeners"] = "true"
    if options.users:
        named = given.get(_USERS)
        given[_USERS] = ",".join([*([named] if named else []), *options.users])
    if options.data_dir is not None:
        given["log.dirs"] = str(options.data_dir)
    return parse_config(given)


def _read(config_file: Path) -> str:
    try:
        return config_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read the configuration {config_file}: {reason(error)}", EXIT_BAD_CONFIG)


def reason(error: Exception) -> str:
    """The operating system's text for an OSError, the exception's own text otherwise."""
    return getattr(error, "strerror", None) or str(error)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _say(notices: list[Notice]) -> None:
    import structlog

    log = structlog.get_logger("odradek.config")
    for notice in notices:
        log.log({"warning": 30, "info": 20}.get(notice.level, 10), notice.text)


def _warn_of_open_directories(paths: Sequence[str]) -> None:
    """Warn about data directories that other users of this machine may read."""
    import structlog

    for path in paths:
        with suppress(OSError):  # a missing directory is created for this user alone
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if mode & stat.S_IRWXO:
                structlog.get_logger("odradek.config").warning(
                    "other users of this machine can read the data directory, which has records"
                    " and keys of passwords",
                    directory=path,
                    mode=f"{mode:04o}",
                    remedy=f"chmod o-rwx {path}",
                )


def _print_if_anybody_reads(line: str) -> None:
    """Print a line. A failure to print it, because the terminal is closed or the reader of the
    output has ended, does not stop the broker. But a terminal that is being closed also sends
    SIGHUP, which stops the broker cleanly."""
    import structlog

    try:
        print(line, flush=True)
    except OSError as error:
        drop_output()
        structlog.get_logger("odradek.server").warning(
            "standard output cannot be written", problem=reason(error), lost=line
        )


def _run(
    config: BrokerConfig,
    ready: Callable[[str, int], None],
    started: Callable[[Server], None] | None = None,
    *,
    reopen_log: Callable[[], None] | None = None,
    testing: bool = False,
) -> None:
    """Serve until a signal. A failure is one line and exit code 1."""
    from odradek_broker.config.broker import BrokerConfigError
    from odradek_broker.metadata.errors import MetadataError
    from odradek_broker.platform.garbage import with_short_collections
    from odradek_broker.server.host import StartError, run
    from odradek_broker.server.server import serve as serve_broker
    from odradek_broker.storage.errors import DataDirectoryError
    from odradek_protocol.primitives import DecodeError

    under_test = None
    if testing:
        try:
            from odradek_testkit.fault_control.control import FaultControl
        except ModuleNotFoundError:
            fail("--testing needs the test kit, which is not installed here", EXIT_BAD_CONFIG)
        under_test = FaultControl()
    served = partial(
        serve_broker,
        config,
        ready,
        under_test=under_test,
        reopen_log=reopen_log,
        on_started=started,
    )
    try:
        run(with_short_collections(served))
    except (StartError, DataDirectoryError, PidFileBusyError) as error:
        fail(str(error))
    except BrokerConfigError as error:
        # A dynamic setting in the metadata is incompatible with the file's settings.
        fail(str(error), EXIT_BAD_CONFIG)
    except (MetadataError, DecodeError) as error:
        fail(f"the metadata in {config.data_dir} cannot be used: {error}")
    except OSError as error:
        where = f" {error.filename}:" if error.filename else ""
        room = "; make room on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        fail(f"cannot serve:{where} {reason(error)}{room}")
    except KeyboardInterrupt:
        # The signal came before its handler was set, when nothing had begun.
        raise SystemExit(130) from None
