"""Tools that run as processes while a broker runs, and respond over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.matrix.row import Check

DEADLINE_S = 150
_ANSWER_DEADLINE_S = 30
_LOG_CHARACTERS = 1500


class Service:
    """A process that writes its log to a folder, and that may be killed and started again."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command, self._folder = command, folder
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)

    @property
    def log(self) -> str:
        """The last part of the process's output."""
        return (self._folder / "log").read_text(errors="replace")[-_LOG_CHARACTERS:]


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """Run a service, and kill it at the end."""
    try:
        service.start()
        yield service
    finally:
        service.kill()


def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> bool:
    """Wait until the condition is true. Returns False after the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def check(name: str, well: bool, found: object) -> Check:
    """A check. If it failed, its problem shows `found`."""
    return Check(name, "" if well else f"found {found}"[:2000])


class Answer(NamedTuple):
    """A response over HTTP. The status is 0 if there was no response."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        """The body decoded as JSON; None if the request failed or the body is not JSON."""
        if not 200 <= self.status < 300:
            return None
        try:
            return json.loads(self.text or "{}")
        except json.JSONDecodeError:
            return None


class Http:
    """The HTTP port of a service on this machine."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and follow redirects."""
        request = urllib.request.Request(
            self._base + path, data=body, headers=dict(headers or {}), method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_DEADLINE_S) as answer:
                return Answer(answer.status, answer.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(errors="replace"))
        except OSError:
            return Answer(0, "")

    def json(self, method: str, path: str, body: object = None) -> Any:
        """Send a request, by default without a body. Returns the JSON of the response; None if it
        has none."""
        sent = None if body is None else json.dumps(body).encode()
        kind = "application/json"
        return self(method, path, sent, {"Content-Type": kind, "Accept": kind}).json

    def form(self, path: str, fields: Mapping[str, object]) -> Answer:
        """Send the fields of a form."""
        return self("POST", path, urllib.parse.urlencode(fields).encode())
