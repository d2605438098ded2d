"""The files that browsers get: unchanged libraries of other projects, small files, no inline
code."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import httpx

STATIC = Path(__file__).parents[2] / "console/odradek_console/static"
VENDOR = STATIC / "vendor"
_SENT_BYTES_MAX = 108_500


def test_third_party_libraries_match_their_checksums() -> None:
    rows = json.loads((VENDOR / "checksums.json").read_text())
    files = {path.name for path in VENDOR.iterdir() if path.suffix in (".mjs", ".css", ".js")}
    assert files == rows.keys()
    for name, row in rows.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == row["sha256"], name
        assert row["version"] and row["sha256_published"] and row["licence"]
        licence = row["package"].removeprefix("@").replace("/", "-").removesuffix("-core")
        assert (VENDOR / f"LICENSE.{licence}").read_text()


async def test_compressed_scripts_are_small_in_total(
    console_client: httpx.AsyncClient,
) -> None:
    sent = 0
    for path in STATIC.rglob("*"):
        if path.suffix in (".mjs", ".js"):
            name = path.relative_to(STATIC).as_posix()
            async with console_client.stream("GET", f"/static/{name}") as answer:
                sent += sum([len(part) async for part in answer.aiter_raw()])
    assert sent < _SENT_BYTES_MAX


def test_scripts_import_by_path_and_never_parse_text_as_markup() -> None:
    for path in STATIC.rglob("*.mjs"):
        text = path.read_text()
        for name in re.findall(r"""\bfrom\s*["']([^"']+)["']|\bimport\(["']([^"']+)""", text):
            target = next(filter(None, name))
            assert (path.parent / target).is_file(), (path.name, target)
        if path.parent != VENDOR:
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(", text), path


def test_the_page_has_no_inline_script_or_style() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    for name in re.findall(r'(?:src|href)="/static/([^"]+)"', page):
        assert (STATIC / name).is_file(), name
