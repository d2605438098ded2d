"""The walks of requests in `docs/understand/design.md`: the files that they name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_DESIGN = Path(__file__).resolve().parents[2] / "docs/understand/design.md"
_NAME = re.compile(r"`([\w/]+(?:\.py|/))`")
#: The begin and the end of every request, in front of the first walk.
EVERY_REQUEST = "every request"


@cache
def _sections() -> dict[str, str]:
    """The texts of the walks by their titles, and what is in front of the first."""
    text = _DESIGN.read_text("utf-8").split("\n## One request, step by step\n")[1]
    first, *walks = text.split("\n## ")[0].split("\n### ")
    rule, every_request = first.split("\nEvery request begins")
    titled = dict(walk.split("\n", 1) for walk in walks)
    return {"rule": rule, EVERY_REQUEST: every_request, **titled}


def named(walk: str) -> frozenset[str]:
    """The files that a walk names."""
    return frozenset(_NAME.findall(_sections()[walk]))


def left_out(path: str) -> bool:
    """True if the rule of the walks leaves out this file, or its folder."""
    return any(
        path == name or (name.endswith("/") and path.startswith(name)) for name in named("rule")
    )
