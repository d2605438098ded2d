"""Findings of the fuzzer: identified by the place of the failure, minimised, and kept."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Iterator

from tests.adversity.fuzz.limits import check_cheaply
from tests.adversity.fuzz.target import FOLDER, Target, TooMuchMemory, TooSlow

_SECONDS_TO_SHRINK = 120.0


def signature(problem: BaseException) -> str:
    """A name for the defect: the kind of the problem, and the innermost lines of its traceback."""
    if isinstance(problem, TooSlow | TooMuchMemory):
        return type(problem).__name__  # The place where the problem is noticed is random.
    frames = traceback.extract_tb(problem.__traceback__)[-3:]
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames]
    return " ".join((type(problem).__name__, *places))


def problem_of(target: Target, data: bytes) -> BaseException | None:
    try:
        check_cheaply(target, data)
    except Exception as problem:  # noqa: BLE001 - every exception is a finding
        return problem
    return None


def shrunk(target: Target, data: bytes, wanted: str) -> bytes:
    """The shortest input with the signature `wanted` that is found within a few minutes."""
    until = time.monotonic() + _SECONDS_TO_SHRINK
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(data):
            if time.monotonic() > until:
                return data
            problem = problem_of(target, candidate)
            if problem is not None and signature(problem) == wanted:
                data, smaller = candidate, True
                break
    return data


def _smaller(data: bytes) -> Iterator[bytes]:
    """First inputs without one piece of `data`, then inputs with one piece zeroed; large pieces
    first in both cases."""
    size = len(data) // 2
    while size:
        for start in range(0, len(data), size):
            yield data[:start] + data[start + size :]
        size //= 2
    size = len(data)
    while size:
        for start in range(0, len(data), size):
            zeros = bytes(len(data[start : start + size]))
            if data[start : start + size] != zeros:
                yield data[:start] + zeros + data[start + size :]
        size //= 2


class Findings:
    """The problems of one run, each kept once as `found/NAME/<hash>.bin`."""

    def __init__(self, name: str, target: Target) -> None:
        self._folder = FOLDER / "found" / name
        self._target = target
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, data: bytes, problem: BaseException) -> None:
        """Keep the input and print the traceback, unless an earlier input had the same problem."""
        name = signature(problem)
        if name in self._seen:
            return
        self._seen.add(name)
        data = getattr(problem, "data", data)
        again = problem_of(self._target, data)
        if again is not None:
            data = shrunk(self._target, data, signature(again))
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{hashlib.sha256(data).hexdigest()[:12]}.bin"
        path.write_bytes(data)
        print(f"\nFOUND {path}", "" if again else "(not seen again)", flush=True)
        print("".join(traceback.format_exception(problem)), flush=True)
