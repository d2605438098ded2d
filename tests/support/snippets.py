"""The fenced blocks of README.md and docs/, with the directives in the comments above the
blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MARKER = re.compile(r"<!-- (not run|continues)\b(?:: )?(.*?) -->")


@dataclass(frozen=True)
class Snippet:
    """A fenced block. `reason`: the reason why the block is not run, if there is one."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None
    continues: bool

    @property
    def is_run(self) -> bool:
        return self.language in {"python", "sh"} and self.reason is None

    @property
    def needs_spark(self) -> bool:
        return "spark" in self.code or "writeStream" in self.code

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(text: str, page: str) -> Iterator[Snippet]:
    """The fenced blocks of a page."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        if not lines[number].startswith("```"):
            number += 1
            continue
        begin = number
        number = lines.index("```", begin + 1)
        markers = {}
        above = begin - 1
        while above >= 0 and lines[above].startswith("<!--"):
            if found := _MARKER.fullmatch(lines[above]):
                markers[found[1]] = found[2]
            above -= 1
        yield Snippet(
            page,
            begin + 1,
            lines[begin].removeprefix("```"),
            "\n".join(lines[begin + 1 : number]) + "\n",
            markers.get("not run"),
            "continues" in markers,
        )
        number += 1
