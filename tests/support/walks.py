"""The walks of requests in `docs/understand/design.md`, and the files that they name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_DESIGN = Path(__file__).resolve().parents[2] / "docs/understand/design.md"
_NAME = re.compile(r"`([\w/]+(?:\.py|/))`")
#: The key of the text before the first walk: the text describes the beginning and the end of every
#: request.
EVERY_REQUEST = "every request"


@cache
def _sections() -> dict[str, str]:
    """The texts of the walks by title; the text before the first walk is `EVERY_REQUEST`."""
    text = _DESIGN.read_text("utf-8").split("\n## One request, step by step\n")[1]
    first, *walks = text.split("\n## ")[0].split("\n### ")
    rule, every_request = first.split("\nEvery request begins")
    titled = dict(walk.split("\n", 1) for walk in walks)
    return {"rule": rule, EVERY_REQUEST: every_request, **titled}


def named(walk: str) -> frozenset[str]:
    """The files that a walk names."""
    return frozenset(_NAME.findall(_sections()[walk]))


def left_out(path: str) -> bool:
    """True if the document leaves out this file or its folder on purpose."""
    return any(
        path == name or (name.endswith("/") and path.startswith(name)) for name in named("rule")
    )
