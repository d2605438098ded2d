"""CRC-32C (Castagnoli), the checksum of record batches.

Any buffer is read in place, without a copy, with hardware instructions if they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from itertools import repeat

Buffer = bytes | bytearray | memoryview


def _implementation() -> Callable[[Buffer, int], int]:
    """The function `crc32c` of the package crc32c, imported from its extension module without the
    package.

    The import of the package would take 20 ms of every start: it looks up its version among all
    installed packages and defines a command line, and so imports email, zipfile and argparse. If
    the extension is not a file of the package, the package is imported.
    """
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    extension = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if extension is None or extension.loader is None:
        from crc32c import crc32c as found
    else:
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
        found = module.crc32c
    implementation: Callable[[Buffer, int], int] = found
    return implementation


_crc32c = _implementation()


def crc32c(buffer: Buffer, crc: int = 0) -> int:
    """The CRC-32C of `buffer` as an unsigned 32-bit integer.

    `crc` is the CRC of the preceding bytes, so that a checksum can be computed in parts: `crc32c(b,
    crc32c(a)) == crc32c(a + b)`.
    """
    return _crc32c(buffer, crc)


def crc32c_of_each(buffers: Iterable[Buffer]) -> list[int]:
    """The CRC-32C of each buffer, without a call of Python for each."""
    return list(map(_crc32c, buffers, repeat(0)))
