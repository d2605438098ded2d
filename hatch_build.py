"""The build hook that compiles the record codec, or reports why the compilation failed.

Hatchling runs the hook for wheels and editable installations; `python hatch_build.py` compiles for
a checkout. If the compilation fails (no compiler, no Python.h, a library that does not load), the
codec in pure Python is used, which does the same, only slower. ODRADEK_PURE=1 skips the
compilation; CC and CFLAGS are used as usual.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
FOLDER = "odradek_protocol/records"
SOURCE = ROOT / "protocol" / FOLDER / "_native.c"
LIBRARY = "_native.abi3.so"

_COMPILE_TIMEOUT_S = 300
_LOAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert module.parse(b"", 0) == ([], None, [], [], {})
assert module.scan(b"", 1) is None
"""


class NotBuilt(Exception):
    """The reason why there is no compiled codec, as text."""


def compile_codec(target: Path) -> None:
    """Compile `_native.c` to `target`, and check that the library loads. Raises NotBuilt.

    The file appears complete or not at all, and a process that has loaded the old file keeps it.
    """
    if os.environ.get("ODRADEK_PURE", "0") not in ("", "0"):
        raise NotBuilt("ODRADEK_PURE is set")
    if sys.platform == "win32" or sys.implementation.name != "cpython":
        raise NotBuilt(f"not for {sys.implementation.name} on {sys.platform}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("free-threaded Python has no stable ABI")
    scratch = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        _run([*_compiler(), *_flags(), str(SOURCE), "-o", str(scratch)], "does not compile")
        environment = {key: text for key, text in os.environ.items() if key != "ODRADEK_PURE"}
        _run([sys.executable, "-I", "-c", _LOAD, str(scratch)], "does not load", environment)
        os.replace(scratch, target)
    except OSError as error:
        raise NotBuilt(str(error)) from error
    finally:
        scratch.unlink(missing_ok=True)


def _compiler() -> list[str]:
    """The compiler command: CC, or the compiler that built Python if it is installed, or a usual
    name."""
    from shutil import which

    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    built_with = shlex.split(sysconfig.get_config_var("CC") or "")
    for candidate in (built_with, ["cc"], ["gcc"], ["clang"]):
        if candidate and which(candidate[0]):
            return candidate
    raise NotBuilt("no C compiler was found (cc, gcc, clang, or what CC names)")


def _flags() -> list[str]:
    paths = sysconfig.get_paths()
    includes = dict.fromkeys((paths["include"], paths["platinclude"]))
    if not any((Path(folder) / "Python.h").exists() for folder in includes):
        raise NotBuilt("Python.h is not here; it comes with python3-dev or python3-devel")
    # Extensions of macOS find Python's symbols in the process that loads them.
    kind = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    return [
        "-O2",
        "-fPIC",
        "-Wall",
        *kind,
        *(f"-I{folder}" for folder in includes),
        f"-DNATIVE_SOURCE_CRC={zlib.crc32(SOURCE.read_bytes())}UL",
        *shlex.split(os.environ.get("CFLAGS", "")),
    ]


def _run(command: list[str], trouble: str, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMPILE_TIMEOUT_S,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuilt(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word of why"]
        raise NotBuilt(f"it {trouble} ({shlex.join(command[:1])}): {said[-1]}")


def _platform_tag() -> str:
    """The platform tag of a wheel for this machine. Portable tags ("manylinux") are left to other
    tools."""
    from packaging.tags import sys_tags

    tags = (tag.platform for tag in sys_tags())
    return next(tag for tag in tags if not tag.startswith(("manylinux", "musllinux")))


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # The file was started by a user or by a test.
    pass
else:

    class CompiledCodecHook(BuildHookInterface[Any]):
        """A build hook that puts the library into the wheel. In an editable installation, the
        library is placed next to its source, where git ignores it."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile before the build. `version` is "standard" or "editable"."""
            if self.target_name != "wheel":
                return
            if version == "editable":
                target = SOURCE.with_name(LIBRARY)
            else:
                self._folder = tempfile.TemporaryDirectory(prefix="odradek-build-")
                target = Path(self._folder.name) / LIBRARY
            try:
                compile_codec(target)
            except NotBuilt as reason:
                if version == "editable":
                    target.unlink(missing_ok=True)
                self.app.display_warning(
                    f"odradek: the record codec will be pure Python, which does the same, slower: {reason}"
                )
                return
            self.app.display_info("odradek: the record codec was compiled")
            if version != "editable":
                build_data["force_include"][str(target)] = f"{FOLDER}/{LIBRARY}"
                build_data["pure_python"] = False
                build_data["tag"] = f"cp311-abi3-{_platform_tag()}"

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Remove the temporary directory after the build."""
            if (folder := getattr(self, "_folder", None)) is not None:
                folder.cleanup()


def main() -> int:
    """Compile the codec into this checkout."""
    try:
        compile_codec(SOURCE.with_name(LIBRARY))
    except NotBuilt as reason:
        print(f"not compiled: {reason}", file=sys.stderr)
        return 1
    print(SOURCE.with_name(LIBRARY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
