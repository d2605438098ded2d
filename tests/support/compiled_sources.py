"""Compiles the sources of product and tests before the processes of a test run import them.

Otherwise, in a fresh checkout, every process would compile all of them at the same time.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from _pytest.assertion import rewrite

from product_modules import ROOMS

_REPOSITORY = Path(__file__).resolve().parents[2]
_FOLDERS = ("tests", *ROOMS)
_COMPILERS = 2
_PYC_HEADER_BYTES = 16


def compile_all() -> None:
    """Compile the sources that have changed since the last run, in worker processes.

    The tests compile what the workers cannot compile.
    """
    command = [sys.executable, __file__, str(_COMPILERS)]
    compilers = [
        subprocess.Popen(
            [*command, str(part)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for part in range(_COMPILERS)
    ]
    for compiler in compilers:
        compiler.wait()


def _compile_part(parts: int, part: int) -> None:
    sources = sorted(
        path
        for folder in _FOLDERS
        for path in (_REPOSITORY / folder).rglob("*.py")
        if "node_modules" not in path.parts
    )
    for path in sources[part::parts]:
        if path.name == "conftest.py" or path.name.startswith("test_"):
            _rewrite_assertions(path)
        else:
            compileall.compile_file(path, quiet=2)


def _rewrite_assertions(path: Path) -> None:
    """Rewrite a test module's assertions, and write the result into pytest's cache file."""
    pyc = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    source_hash = importlib.util.source_hash(path.read_bytes())
    if pyc.exists():
        with pyc.open("rb") as file:
            if file.read(_PYC_HEADER_BYTES)[8:] == source_hash:
                return
    pyc.parent.mkdir(exist_ok=True)
    source_hash, code = rewrite._rewrite_test(path, None)  # type: ignore[arg-type]
    written = pyc.with_suffix(f".{os.getpid()}")
    with written.open("wb") as file:
        rewrite._write_pyc_fp(file, source_hash, code)
    written.replace(pyc)


if __name__ == "__main__":
    _compile_part(int(sys.argv[1]), int(sys.argv[2]))
