"""A broker that kills itself at a fault point, and is then restarted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from broker_process import BrokerProcess
from odradek_broker.platform.fault_points import FAULT_POINT_VARIABLE, FaultPoint
from waiting import DEADLINE_S


class CrashingBroker(BrokerProcess):
    """A broker that dies when it reaches a fault point for the `nth` time, and is restarted on the
    same port.

    Its clients notice only a delay.
    """

    def __init__(
        self, folder: Path, point: FaultPoint, settings: Sequence[str] = (), *, nth: int = 1
    ) -> None:
        super().__init__(folder, settings)
        self._armed = {FAULT_POINT_VARIABLE: f"{point.value}:{nth}"}
        self._reviver = threading.Thread(target=self._revive, daemon=True)
        self._failure: BaseException | None = None
        self.deaths = 0
        self.last_words = ""

    def start_armed(self) -> None:
        """Start with the fault point armed, and return when the broker is ready."""
        self.start(self._armed)
        self._reviver.start()

    def _revive(self) -> None:
        try:
            code = self._process.wait()
            if code != -signal.SIGKILL:
                return
            self.deaths += 1
            self.last_words = self.log
            self.start()
        except BaseException as error:  # noqa: BLE001  `has_come_back` raises it
            self._failure = error

    def has_come_back(self) -> bool:
        """Wait until the broker has died and is ready again. Returns False if it did not die."""
        self._reviver.join(DEADLINE_S)
        if self._failure is not None:
            raise self._failure
        return self.deaths == 1 and not self._reviver.is_alive()

    def stop(self) -> None:
        """Stop the broker, even while it restarts, so that a failed test leaves no process
        running."""
        if self._process.poll() == -signal.SIGKILL:
            self._reviver.join(DEADLINE_S)
        super().stop()
