"""The two implementations of the record codec, compiled and pure, for tests that both must pass.

The compiled codec is always built from the `_native.c` of this checkout, whatever is installed.
CFLAGS are passed to the compiler: with `-fsanitize=address,undefined` (and LD_PRELOAD of its
library), the codec is checked while it runs.
"""

from __future__ import annotations

import importlib.util
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TWINS = ("compiled", "pure")


def build_hook() -> ModuleType:
    """`hatch_build.py`, imported as a module."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def compiled() -> ModuleType | str:
    """The compiled codec, or the reason why this machine cannot build it."""
    hook = build_hook()
    with tempfile.TemporaryDirectory(prefix="odradek-codec-") as folder:
        target = Path(folder) / hook.LIBRARY
        try:
            hook.compile_codec(target)
        except hook.NotBuilt as reason:
            return str(reason)
        spec = importlib.util.spec_from_file_location("_native", target)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # The loaded module is usable even after its file was removed.
        spec.loader.exec_module(module)
    return module


def twin(name: str) -> ModuleType | None:
    """The value of `native.CODEC` for "compiled" or "pure"; skips the test if the compiled codec
    cannot be built."""
    if name == "pure":
        return None
    module = compiled()
    if isinstance(module, str):
        pytest.skip(f"no compiled codec on this machine: {module}")
    return module
