"""The compiled record codec: if it exists and may be used, what it reports, and builds without a
compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import record_codecs
from odradek_protocol.records import native

SOURCE = record_codecs.ROOT / "protocol" / "odradek_protocol" / "records" / "_native.c"


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    return record_codecs.build_hook()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, hook: ModuleType) -> Path:
    """A copy of the compiled codec in a temporary folder."""
    record_codecs.twin("compiled")
    target = Path(tmp_path_factory.mktemp("codec") / hook.LIBRARY)
    hook.compile_codec(target)
    return target


def module(**attributes: Any) -> Any:
    return SimpleNamespace(**{"ABI": native.EXPECTED_ABI, "SOURCE_CRC": 0, **attributes})


def test_the_report_names_the_codec_in_use() -> None:
    assert (native.CODEC is not None) == native.IN_USE
    assert native.describe() == ("compiled" if native.IN_USE else f"pure Python ({native.REASON})")
    assert bool(native.REASON) != native.IN_USE


def test_the_source_and_python_agree_on_the_abi() -> None:
    assert f"#define NATIVE_ABI {native.EXPECTED_ABI}\n" in SOURCE.read_text(encoding="utf-8")


def test_a_compiled_codec_with_another_abi_is_not_used() -> None:
    trouble = native.unfit(module(ABI=native.EXPECTED_ABI + 1), "/nowhere")
    assert trouble is not None and f"needs {native.EXPECTED_ABI}" in trouble
    assert native.unfit(SimpleNamespace(), "/nowhere") is not None  # type: ignore[arg-type]


def test_a_compiled_codec_older_than_its_source_is_not_used(tmp_path: Path) -> None:
    found: Any = record_codecs.twin("compiled")
    assert native.unfit(found, str(SOURCE)) is None
    changed = tmp_path / "_native.c"
    changed.write_bytes(SOURCE.read_bytes() + b"\n")
    assert native.unfit(found, str(changed)) == "_native.c has changed since it was built"
    # An installation has no source file to compare with.
    assert native.unfit(found, str(tmp_path / "gone.c")) is None


def copy_of_the_package(folder: Path) -> Path:
    """Copy odradek_protocol, as if to another checkout. Returns the path of the copy's compiled
    codec."""
    protocol = record_codecs.ROOT / "protocol"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(protocol, folder / "protocol", ignore=ignored)
    return folder / "protocol" / "odradek_protocol" / "records" / "_native.abi3.so"


def described(protocol: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    code = (
        "from odradek_protocol.records import native\n"
        "from odradek_protocol.records.batch import read_header\n"
        "from odradek_protocol.records.builder import BatchBuilder\n"
        "from odradek_protocol.records.record import read_records\n"
        "builder = BatchBuilder()\nbuilder.append(5, b'k', b'v')\nbatch = builder.build()\n"
        "assert read_records(batch, 0, read_header(batch))[0].value == b'v'\n"
        "print(native.describe(), native.IN_USE)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ODRADEK_PURE": "", "PYTHONPATH": str(protocol), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


@pytest.mark.full
def test_the_pure_codec_replaces_a_missing_disabled_stale_or_broken_one(
    tmp_path: Path, library: Path
) -> None:
    place = copy_of_the_package(tmp_path)
    protocol = tmp_path / "protocol"
    done = described(protocol)
    assert done.stdout.startswith("pure Python (it was installed without") and not done.stderr
    shutil.copy(library, place)
    assert described(protocol).stdout == "compiled True\n"
    assert described(protocol, ODRADEK_PURE="0").stdout == "compiled True\n"
    done = described(protocol, ODRADEK_PURE="1")
    assert (done.stdout, done.stderr) == ("pure Python (ODRADEK_PURE is set) False\n", "")
    source = place.with_name("_native.c")
    source.write_text(source.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    done = described(protocol)
    assert done.stdout == "pure Python (_native.c has changed since it was built) False\n"
    assert "RuntimeWarning: the compiled record codec is left alone" in done.stderr
    place.write_bytes(b"of another machine")
    done = described(protocol)
    assert done.stdout.startswith("pure Python (it does not load: ")
    assert "RuntimeWarning: the compiled record codec is left alone" in done.stderr


def test_a_build_without_a_compiler_says_why(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / hook.LIBRARY
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("ODRADEK_PURE", "1")
    with pytest.raises(hook.NotBuilt, match="ODRADEK_PURE is set"):
        hook.compile_codec(target)
    monkeypatch.setenv("ODRADEK_PURE", "0")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(hook.NotBuilt, match="no C compiler was found"):
        hook.compile_codec(target)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("compiler", "trouble"),
    [
        ("/nowhere/cc", "cannot be run"),
        (shlex.join([sys.executable, "-c", "raise SystemExit(1)"]), "does not compile"),
        # The build reports success, but produces no library.
        (shlex.join([sys.executable, "-c", "pass"]), "does not load"),
    ],
    ids=["missing", "failing", "idle"],
)
def test_a_compiler_that_fails_costs_speed_only(
    hook: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiler: str,
    trouble: str,
) -> None:
    monkeypatch.delenv("ODRADEK_PURE", raising=False)
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(hook.NotBuilt, match=f"{trouble}|Python.h is not here"):
        hook.compile_codec(tmp_path / hook.LIBRARY)
    assert list(tmp_path.iterdir()) == []


def test_a_build_without_python_headers_names_the_package(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ODRADEK_PURE", raising=False)
    monkeypatch.setenv("CC", "cc")
    nowhere = {"include": str(tmp_path), "platinclude": str(tmp_path)}
    monkeypatch.setattr(hook.sysconfig, "get_paths", lambda: nowhere)
    with pytest.raises(hook.NotBuilt, match="python3-dev"):
        hook.compile_codec(tmp_path / hook.LIBRARY)


@pytest.mark.parametrize("setting", [("platform", "win32"), ("implementation", "pypy")])
def test_other_platforms_and_pythons_use_the_pure_codec(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str]
) -> None:
    monkeypatch.delenv("ODRADEK_PURE", raising=False)
    name, value = setting
    pretended: Any = SimpleNamespace(name=value) if name == "implementation" else value
    monkeypatch.setattr(
        hook,
        "sys",
        SimpleNamespace(
            **{"platform": "linux", "implementation": sys.implementation, name: pretended}
        ),
    )
    with pytest.raises(hook.NotBuilt, match=f"not for .*{value}"):
        hook.compile_codec(tmp_path / hook.LIBRARY)
