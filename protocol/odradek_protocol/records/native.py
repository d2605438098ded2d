"""The choice of the record codec: compiled (`_native.c`), or its twin in pure Python.

Both codecs behave equally; the compiled codec is faster. It exists if there was a C compiler at the
installation, and is not used if

- its library does not load, for example because it was built for another machine;
- its `ABI` is not `EXPECTED_ABI`, because it was built from another version;
- in a checkout, `_native.c` has changed since the library was built (`pip install -e .` rebuilds
  the library);
- the environment variable ODRADEK_PURE is set (and not 0). The library checks the variable when it
  is loaded.
"""

from __future__ import annotations

import warnings
import zlib
from types import ModuleType
from typing import Any

EXPECTED_ABI = 8
"""Raised, here and in `_native.c`, with every change of a signature or of what a function
returns."""


SWITCHED_OFF = "ODRADEK_PURE is set"
"""The reason the compiled module gives when it declines to be loaded."""


def _load() -> tuple[ModuleType | None, str]:
    try:
        import odradek_protocol.records._native as found
    except ModuleNotFoundError:
        return None, "it was installed without the compiled one"
    except ImportError as error:
        if str(error) == SWITCHED_OFF:
            return None, SWITCHED_OFF
        trouble = f"it does not load: {error}"
    else:
        unsuitable = unfit(found, __file__.removesuffix("native.py") + "_native.c")
        if unsuitable is None:
            return found, ""
        trouble = unsuitable
    notice = f"the compiled record codec is left alone: {trouble}; install it again"
    warnings.warn(notice, RuntimeWarning, stacklevel=2)
    return None, trouble


def unfit(found: ModuleType, source: str) -> str | None:
    """The reason why a compiled module must not be used; None if it may be used. `source`: the path
    of its C file. Only a checkout has this file."""
    abi = getattr(found, "ABI", None)
    if abi != EXPECTED_ABI:
        return f"it has ABI {abi}, and this version needs {EXPECTED_ABI}"
    try:
        with open(source, "rb") as file:
            crc = zlib.crc32(file.read())
    except OSError:
        return None
    if crc != found.SOURCE_CRC:
        return "_native.c has changed since it was built"
    return None


CODEC: Any
"""The compiled module, as `_native.pyi` declares it; None where the pure twin is in use."""

REASON: str
"""The reason why the pure twin is in use; empty otherwise."""

CODEC, REASON = _load()

IN_USE = CODEC is not None
"""True if the compiled codec is in use."""


def describe() -> str:
    """The codec in use, as text for people: "compiled", or "pure Python (reason)"."""
    return "compiled" if IN_USE else f"pure Python ({REASON})"
