"""The test modules that are compiled before a run are those that pytest then loads."""

from __future__ import annotations

from pathlib import Path

from _pytest.assertion import rewrite

import compiled_sources


def test_pytest_loads_the_compiled_test_module(tmp_path: Path) -> None:
    source = tmp_path / "test_one.py"
    source.write_text("def test_one():\n    assert 1 == 2\n")
    compiled_sources._rewrite_assertions(source)
    (compiled,) = (tmp_path / "__pycache__").iterdir()
    assert compiled == rewrite.get_cache_dir(source) / f"test_one{rewrite.PYC_TAIL}"
    assert rewrite._read_pyc(source, compiled) is not None
    source.write_text("def test_one():\n    assert 1 == 1\n")
    assert rewrite._read_pyc(source, compiled) is None
    compiled_sources._rewrite_assertions(source)
    assert rewrite._read_pyc(source, compiled) is not None
