"""The golden bytes in tests/golden, and our messages in the form of those files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from odradek_protocol.keys import APIS, Api
from odradek_protocol.message import ArrayOf, Struct
from odradek_protocol.primitives import WireType

FOLDER = Path(__file__).resolve().parents[1] / "golden"
_HEXADECIMAL = ("bytes", "records", "uuid")


def module_name(api: Api) -> str:
    """The base name of an API's files: `list_offsets`."""
    return api.request.__module__.rpartition(".")[2]


@cache
def lines(name: str) -> list[dict[str, Any]]:
    """The lines of `<name>.jsonl`; none if there is no such file."""
    path = FOLDER / f"{name}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def bodies() -> Iterator[tuple[Api, dict[str, Any]]]:
    """All lines of all APIs' files."""
    for api in APIS.values():
        for line in lines(module_name(api)):
            yield api, line


def plain(value: Any, type_: Any, version: int) -> Any:
    """A decoded value in the form of the files. Tagged fields with their default value are left
    out."""
    if value is None:
        return None
    if isinstance(type_, ArrayOf):
        return [plain(item, type_.element, version) for item in value]
    if isinstance(type_, WireType):
        return bytes(value).hex() if type_.name in _HEXADECIMAL else value
    return plain_struct(value, version)


def plain_struct(value: Struct, version: int) -> dict[str, Any]:
    """A decoded message in the form of the files."""
    held: dict[str, Any] = {}
    for spec in value.fields:
        if version not in spec.versions:
            continue
        found = getattr(value, spec.name)
        if version in spec.tagged and found == spec.fresh_default():
            continue
        held[spec.name] = plain(found, spec.type, version)
    return held
