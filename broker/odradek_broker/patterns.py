"""Regular expressions in RE2's syntax (rule G-117), matched by the library RE2.

Clients send expressions (KIP-848, KIP-1152), and some expressions make Python's matcher run for an
exponential time. RE2 (the package google-re2) needs a time that is at most proportional to the
length of the text times the size of the compiled expression. `Pattern.steps` is this product, so
that callers can limit their work. A name must match as a whole.

Kafka's library is RE2/J. `_translated` changes or refuses what the two libraries read differently:

- an escaped character outside of ASCII is a literal for RE2/J, and an error for RE2;
- `\\C`, a repetition of a literal `{`, two groups of one name, names of groups that are not ASCII,
  and repetitions of more than nine digits are errors for RE2/J, but not for RE2.

The package is in the extra `regex`, because it has no wheels for musl. Without the package every
expression is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

#: The greatest length of an expression.
PATTERN_CHARACTERS_MAX = 4_096
#: The limit of the instructions of a compiled expression. Repetitions multiply instructions.
PROGRAM_STEPS_MAX = 10_000
#: The limit of classes such as `\pL`. RE2 makes a list of hundreds of ranges for each, before it
#: notices that the expression is too large: without this limit 4,096 characters take 0.3 s.
CLASSES_MAX = 32
#: The limit of the steps of one match, which cannot pause; about ten milliseconds. Every topic has
#: fewer with every expression, but a transactional id may have 32,767 characters.
MATCH_STEPS_MAX = 3_000_000
#: The limit of the memory of one compiled expression, with the states that matches make. With more
#: memory, RE2 compiles longer before it refuses, and accepts nothing more.
_MEMORY_BYTES_MAX = 1 << 18
_REPEAT_MAX = 1_000
_PATTERNS_KEPT = 64

#: The parts of an expression that matter here: a quoted text, an escape, the beginning of a named
#: group, a class, a repetition with bounds, or any other character.
_PARTS = re.compile(
    # Plain characters are skipped together.
    r"(?:[^\\(\[{]|\((?!\?))+"
    r"|\\Q.*?(?:\\E|\Z)|\\[pPx]\{[^}]{0,64}\}|\\."
    r"|\(\?P?<(?P<name>\w+)>"
    r"|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]?"
    r"|\{(?P<least>0|[1-9]\d*)(?:,(?P<most>0|[1-9]\d*)?)?\}"
    r"|.",
    re.DOTALL,
)
_CLASSES = re.compile(r"\\[pP]")
_ESCAPED_LITERAL = re.compile(r"\\([^\x00-\x7f])")


class PatternError(ValueError):
    """A text that is no regular expression in this syntax, or that this broker cannot match; the
    message has the reason."""


class Pattern:
    """A compiled expression."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._size: int = compiled.programsize

    def matches(self, name: str) -> bool:
        """True if the whole name matches; False for a name with which a match would take more than
        MATCH_STEPS_MAX."""
        if self.steps(name) > MATCH_STEPS_MAX:
            return False
        text = name.encode("utf-8", "surrogatepass")
        return self._compiled.fullmatch(text) is not None

    def steps(self, name: str) -> int:
        """The greatest number of steps that a match with this name takes, each of some
        nanoseconds."""
        return self._size * (len(name) + 1)


@lru_cache(maxsize=_PATTERNS_KEPT)
def compile_pattern(text: str) -> Pattern:
    """Compile an expression. Raises PatternError for an invalid expression, and for every
    expression if the package google-re2 is missing."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"it has {len(text)} characters; at most {PATTERN_CHARACTERS_MAX}")
    if len(_CLASSES.findall(text)) > CLASSES_MAX:
        raise PatternError(f"it has more than {CLASSES_MAX} classes of Unicode (\\p, \\P)")
    try:
        import re2
    except ImportError:
        raise PatternError(
            "this broker cannot match regular expressions, because the package google-re2 is not"
            " installed there: pip install 'odradek[regex]'"
        ) from None
    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _MEMORY_BYTES_MAX
    try:
        compiled = re2.compile(_translated(text).encode(), options)
    except UnicodeEncodeError:
        raise PatternError(f"it has half of a surrogate pair: {text[:200]!r}") from None
    except re2.error as error:
        said = error.args[0] if error.args else b""
        reason = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise PatternError(f"{reason[:200]}, in {text[:200]!r}") from None
    finally:
        # The package keeps compiled expressions too; `lru_cache` keeps fewer.
        re2.purge()
    if compiled.programsize > PROGRAM_STEPS_MAX:
        raise PatternError(
            f"it has more than {PROGRAM_STEPS_MAX} steps; repeat less, or use ASCII classes"
        )
    return Pattern(compiled)


def _translated(text: str) -> str:
    """The expression for RE2 that means what RE2/J reads in `text`. Raises PatternError if RE2/J
    refuses what RE2 would accept."""
    parts: list[str] = []
    names: set[str] = set()
    for found in _PARTS.finditer(text):
        part, name = found[0], found["name"]
        if part == "\\C":
            raise PatternError(f"\\C is not known, in {text[:200]!r}")
        bounds = [int(each) for each in (found["least"], found["most"]) if each]
        if max(bounds, default=0) > _REPEAT_MAX:
            raise PatternError(f"a repetition out of bounds: {part[:40]}")
        if parts[-1:] == ["{"] and (bounds or part[0] in "*+?"):
            raise PatternError(f"a repetition of {{, in {text[:200]!r}")
        if name is not None:
            if not name.isascii() or name in names:
                raise PatternError(f"{name[:40]!r} is no name, or names another group")
            names.add(name)
        if not part.isascii() and part[0] in "\\[" and not part.startswith("\\Q"):
            part = _ESCAPED_LITERAL.sub(r"\1", part)
        parts.append(part)
    return "".join(parts)
