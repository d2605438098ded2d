"""CRC-32C gives known values, in whichever way its extension module was found."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder

import pytest

from odradek_protocol import checksums

#: RFC 3720, appendix B.4, and the usual check value.
KNOWN = {
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    b"": 0,
}


def _agrees() -> None:
    for data, value in KNOWN.items():
        for buffer in (data, bytearray(data), memoryview(data)):
            assert checksums.crc32c(buffer) == value
        assert checksums.crc32c(data[5:], checksums.crc32c(data[:5])) == value


def test_crc32c_has_the_known_values() -> None:
    _agrees()


def test_the_crc32c_extension_is_imported_without_its_package() -> None:
    """A broker needs only the extension module of the package. If the package is imported later,
    both use the same extension."""
    program = (
        "import sys\n"
        "from odradek_protocol import checksums\n"
        "unwanted = {'crc32c', 'importlib.metadata', 'email', 'zipfile', 'argparse'}\n"
        "assert unwanted.isdisjoint(sys.modules), unwanted & set(sys.modules)\n"
        "import crc32c\n"
        "assert crc32c.crc32c(b'123456789') == checksums.crc32c(b'123456789') == 0xE3069283\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("missing", ["crc32c", "crc32c._crc32c"])
def test_the_crc32c_package_is_imported_if_the_extension_is_no_file(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
            return None if name == missing else PathFinder.find_spec(name, path)

    monkeypatch.setattr(checksums, "PathFinder", Finder)
    package = importlib.import_module("crc32c")
    monkeypatch.setattr(checksums, "_crc32c", checksums._implementation())
    assert checksums._crc32c is package.crc32c
    _agrees()
