"""`odradek`, but it kills itself (signal 9) at the point that ODRADEK_DIES names.

Run as a program it is the command line; `DyingBroker` is what tests use.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from running_broker import DEADLINE_S, BrokerProcess

#: Points, in the order of a transaction's end (T-50e to T-50g).
NO_MARKER = "no-marker"
ONE_MARKER = "one-marker"
ALL_MARKERS = "all-markers"
POINTS = (NO_MARKER, ONE_MARKER, ALL_MARKERS)
_VARIABLE = "ODRADEK_DIES"


class DyingBroker(BrokerProcess):
    """A broker that dies at a point of the first transaction that ends, and comes back on its port
    by itself: its clients notice no more than that it takes a while."""

    def __init__(self, folder: Path, point: str, settings: Sequence[str] = ()) -> None:
        super().__init__(folder, settings)
        self._point = point
        self._whole = list(self._command)
        self._command = [sys.executable, "-m", "dying_broker", *self._whole[3:]]
        self._reviver = threading.Thread(target=self._revive, daemon=True)
        self._failure: BaseException | None = None
        self.deaths = 0

    def start(self) -> None:
        """Returns when it is ready; what comes then happens by itself."""
        os.environ[_VARIABLE] = self._point
        try:
            super().start()
        finally:
            del os.environ[_VARIABLE]
        self._reviver.start()

    def _revive(self) -> None:
        try:
            code = self._process.wait()
            if code != -signal.SIGKILL:
                return
            self.deaths += 1
            self._command = [
                self.address if word == "127.0.0.1:0" else word for word in self._whole
            ]
            super().start()
        except BaseException as error:  # noqa: BLE001  told to the test, whatever it is
            self._failure = error

    def has_come_back(self) -> bool:
        """Wait until it has died and is ready again; False if it did not die."""
        self._reviver.join(DEADLINE_S)
        if self._failure is not None:
            raise self._failure
        return self.deaths == 1 and not self._reviver.is_alive()

    def stop(self) -> None:
        """Also in the middle of its revival, so that a test that fails leaves nothing running."""
        if self._process.poll() == -signal.SIGKILL:
            self._reviver.join(DEADLINE_S)
        super().stop()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(point: str) -> None:
    from odradek_broker import markers
    from odradek_broker.node import Node

    write, write_markers = markers._write, Node.write_markers
    left = [POINTS.index(point)]

    def counted(env: Any, marker: Any, where: Any) -> Any:
        if point != ALL_MARKERS:
            if left[0] == 0:
                _die()
            left[0] -= 1
        return write(env, marker, where)

    def watched(node: Node, requests: Any) -> Any:
        written = write_markers(node, requests)
        if point == ALL_MARKERS:
            written.then(_die)
        return written

    markers._write = counted
    Node.write_markers = watched  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    from odradek.cli import main

    _arm(os.environ[_VARIABLE])
    main()
