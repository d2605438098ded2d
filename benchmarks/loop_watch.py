"""A broker of ours that measures how long each callback blocks its event loop.

The broker runs on asyncio's own loop instead of uvloop, because only the callbacks of asyncio's
loop can be watched. Both loops run the same callbacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import tempfile
import time
from asyncio import events
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: The time for which a callback may block the loop.
LIMIT_MS = 2.0
_START_S = 30
_NAMES_MAX = 1_000


@dataclass
class Held:
    """The measured callbacks of one name. `longest_cpu_ms`: the longest processor time of a
    callback, which excludes waits for other processes.
    """

    calls: int = 0
    beyond_limit: int = 0
    longest_ms: float = 0.0
    longest_cpu_ms: float = 0.0


class LoopWatch:
    """Times every callback of asyncio's loops in this process, by the callback's name. The time of
    a garbage collection is recorded under a separate name, and not as time of the callback."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self._plain: Any = None
        self._collected_s = self._collected_cpu_s = 0.0
        self._collecting_since = (0.0, 0.0)

    def begin(self) -> None:
        """Start measuring."""
        plain = self._plain = events.Handle._run

        def watched(handle: Any) -> None:
            # The callback is read now, because a handle may drop it after the run.
            callback = handle._callback
            self._collected_s = self._collected_cpu_s = 0.0
            began_s, cpu_s = time.perf_counter(), time.thread_time()
            plain(handle)
            took_s = time.perf_counter() - began_s - self._collected_s
            took_cpu_s = time.thread_time() - cpu_s - self._collected_cpu_s
            self._note(_name(callback), took_s * 1000, took_cpu_s * 1000)

        events.Handle._run = watched  # type: ignore[assignment]
        gc.callbacks.append(self._on_collection)

    def end(self) -> None:
        """Stop measuring."""
        events.Handle._run = self._plain  # type: ignore[method-assign]
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, _: Mapping[str, int]) -> None:
        now_s, cpu_s = time.perf_counter(), time.thread_time()
        if phase == "start":
            self._collecting_since = now_s, cpu_s
            return
        took_s, took_cpu_s = now_s - self._collecting_since[0], cpu_s - self._collecting_since[1]
        self._collected_s += took_s
        self._collected_cpu_s += took_cpu_s
        self._note("(garbage collection)", took_s * 1000, took_cpu_s * 1000)

    def _note(self, name: str, took_ms: float, took_cpu_ms: float) -> None:
        if name not in self.held and len(self.held) >= _NAMES_MAX:
            return
        entry = self.held.setdefault(name, Held())
        entry.calls += 1
        entry.beyond_limit += took_cpu_ms > LIMIT_MS
        entry.longest_ms = max(entry.longest_ms, took_ms)
        entry.longest_cpu_ms = max(entry.longest_cpu_ms, took_cpu_ms)


def _name(callback: Any) -> str:
    inner = getattr(callback, "func", callback)
    return getattr(inner, "__qualname__", type(inner).__name__)


def _serve(pipe: Connection, settings: Mapping[str, str]) -> None:
    from odradek_broker.config.broker import parse_config
    from odradek_broker.platform.log_lines import configure_logging
    from odradek_broker.server.server import serve

    configure_logging(level="warning")
    config, _ = parse_config(dict(settings))
    watch = LoopWatch()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def told() -> None:
            """Start measuring at the first message, and stop the broker at the second."""
            if pipe.recv() == "begin":
                watch.begin()
                return
            watch.end()
            pipe.send(watch.held)
            loop.remove_reader(pipe.fileno())
            task.cancel()

        loop.add_reader(pipe.fileno(), told)
        with contextlib.suppress(asyncio.CancelledError):
            await serve(
                config, lambda host, port: pipe.send(f"{host}:{port}"), handle_signals=False
            )

    asyncio.run(main())


class WatchedBroker:
    """A broker that can be watched: its address and data directory."""

    def __init__(self, bootstrap: str, data_dir: Path, pipe: Connection) -> None:
        self.bootstrap = bootstrap
        self.data_dir = data_dir
        self._pipe = pipe

    def begin(self) -> None:
        """Start measuring."""
        self._pipe.send("begin")

    def end(self) -> dict[str, Held]:
        """Stop the broker. Returns the measured callbacks by name."""
        self._pipe.send("end")
        held: dict[str, Held] = self._pipe.recv()
        return held


@contextlib.contextmanager
def watched_broker(settings: Mapping[str, object]) -> Iterator[WatchedBroker]:
    """A watched broker with a temporary data directory."""
    # The process must not be daemonic, because the broker starts the cleaner as a child process.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        given = {key: str(value) for key, value in settings.items()}
        given |= {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
        process = context.Process(target=_serve, args=(theirs, given))
        process.start()
        theirs.close()
        try:
            if not ours.poll(_START_S):
                raise SystemExit("the broker did not start")
            yield WatchedBroker(ours.recv(), Path(directory), ours)
        finally:
            process.join(_START_S)
            if process.is_alive():
                process.terminate()
