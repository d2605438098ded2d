"""docs/use/errors.md, made from the client's exceptions and the meanings of Kafka's error codes:

python -m docs.references
"""

from __future__ import annotations

import inspect
import re
from functools import cache

import odradek.errors
from odradek_client.error_meanings import MEANINGS
from odradek_client.errors import (
    Abortable,
    Fatal,
    LocalError,
    OdradekError,
    Refused,
    Retriable,
    error_for,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.settings import table_row

_TOP = """\
# Errors

<!-- Made by `python -m docs.references`; a test holds it equal. -->

Everything that producer, consumer and admin raise is an `OdradekError`, and is imported from `odradek.errors`. Its text says what
happened and what to do. `error.code` is the broker's error code, or None if no broker sent one; `error.retriable` is true if the
same call may succeed later. The class above it says what to do:

| class | what to do |
|---|---|
"""
_BASES: dict[type[OdradekError], str] = {
    Retriable: "call again later: the client has tried until its timeout",
    Abortable: "abort the transaction; then the producer continues",
    Fatal: "close the producer, and begin with a new one when the reason is gone",
    Refused: "change the request, a setting or a right: the broker will refuse the same request again",
    LocalError: "no broker was asked, or its answer is not at fault: see the error's own text",
}
_CODES = """
## Codes of brokers

Each of Kafka's error codes, with the class that the client raises for it. The meaning is in the error's text, with the
broker's own message if there is one.

| code | name | class | retriable | meaning, and what to do |
|--:|---|---|---|---|
"""


@cache
def classes() -> dict[str, type[OdradekError]]:
    """The public errors by name, in the order of their declaration."""
    return {
        name: each
        for name, each in vars(odradek.errors).items()
        if isinstance(each, type) and issubclass(each, OdradekError)
    }


def prose(documented: object) -> str:
    """The docstring for users: a line for each paragraph, without the numbers of rules, and with
    names of errors as code."""
    text = re.sub(r" \([A-Z]+-\d+\)", "", inspect.getdoc(documented) or "")
    text = "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))
    return re.sub(rf"(?<!`)\b({'|'.join(classes())})\b(?!`)", r"`\1`", text)


def page() -> str:
    """The text of docs/use/errors.md."""
    parts = [_TOP]
    parts += [
        table_row(f"[`{each.__name__}`](#{each.__name__.lower()})", to_do)
        for each, to_do in _BASES.items()
    ]
    for base in _BASES:
        parts.append(f"\n## {base.__name__}\n\n{prose(base)}\n")
        parts.append("\n| error | retriable | when it comes | codes |\n|---|---|---|---|\n")
        parts += [_row(each) for each in classes().values() if _base(each) is base is not each]
    parts.append(_CODES)
    for code in ErrorCode:
        if code in MEANINGS:
            error = error_for(code)
            name = type(error).__name__
            parts.append(
                table_row(
                    str(code.value), f"`{code.name}`", f"`{name}`", _yes(error), MEANINGS[code]
                )
            )
    return "".join(parts)


def _base(error: type[OdradekError]) -> type[OdradekError] | None:
    return next((base for base in _BASES if issubclass(error, base)), None)


def _row(error: type[OdradekError]) -> str:
    codes = [f"`{code.name}`" for code in MEANINGS if type(error_for(code)) is error]
    above = [each for each in error.__bases__ if each not in (*_BASES, OdradekError)]
    about = prose(error).replace("\n\n", " ")
    if above:
        about += f" A subclass of {' and '.join(f'`{each.__name__}`' for each in above)}."
    return table_row(f"`{error.__name__}`", _yes(error), about, ", ".join(codes))


def _yes(error: OdradekError | type[OdradekError]) -> str:
    return "yes" if error.retriable else "no"
