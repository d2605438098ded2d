"""The two twins of the record codec, for tests that both must pass.

The compiled one is always made from the `_native.c` of this checkout, whatever is installed. CFLAGS
go to the compiler: `-fsanitize=address,undefined` (with LD_PRELOAD of its library) runs them
checked.
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
    """`hatch_build.py`, as a module."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def compiled() -> ModuleType | str:
    """The compiled twin, or why there can be none on this machine."""
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
        # It stays in use when the file is gone.
        spec.loader.exec_module(module)
    return module


def twin(name: str) -> ModuleType | None:
    """What `native.CODEC` is to be; skips where nothing can be compiled."""
    if name == "pure":
        return None
    module = compiled()
    if isinstance(module, str):
        pytest.skip(f"no compiled codec on this machine: {module}")
    return module
