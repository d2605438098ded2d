"""`odradek console` as a process, and a browser that looks at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from odradek_console.server import ConsoleOptions
from odradek_console.sessions import ClientSettings

PATIENCE_S = 60.0
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def clients_for(bootstrap: str) -> ClientSettings:
    settings = {"bootstrap_servers": bootstrap}
    return {"admin": settings, "consumer": settings, "producer": settings}


def options_for(bootstrap: str) -> ConsoleOptions:
    return ConsoleOptions({"one": clients_for(bootstrap)})


@contextmanager
def console_process(bootstrap: str, *arguments: str) -> Iterator[str]:
    """A console for a broker. Yields its address, which ends with a slash."""
    with running_console(bootstrap, *arguments) as (address, _):
        yield address


@contextmanager
def running_console(bootstrap: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """A console for a broker. Yields its address and its process id."""
    command = [sys.executable, "-m", "odradek", "console", "--no-open"]
    command += ["--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *arguments]
    # The process writes a line to standard error when it is ready, or when it ends.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            told = process.stderr.readline()
            found = re.search(r"http://\S+/", told)
            assert found is not None, told + process.stderr.read()
            yield found[0], process.pid
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def browser_program() -> str | None:
    """The Chromium to use: the program that ODRADEK_CHROMIUM names, or the first one on the
    PATH."""
    named = os.environ.get("ODRADEK_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _BROWSERS)), None)
