"""The lines of `sasl.jaas.config`: login modules with options, in Java's syntax (KIP-85).

org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="...";
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from odradek_protocol.lazy_dataclass import dataclass

#: The mechanisms, with the class name of Java's login module, without its package.
LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ |
    (?P<word>[^\s"'=;]+) | (?P<sign>[=;]) |
    "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-3]?[0-7]{1,2})|(?P<other>.))", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """Text that is not a list of login modules. The message contains no value of an option."""


@dataclass(frozen=True)
class LoginModule:
    """A login module of a JAAS configuration. `name`: the full name of its class; the values of
    options may be secret."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2]


def parse_jaas(text: str) -> list[LoginModule]:
    """The modules, in the order of the text. JaasError has the position of the error."""
    tokens = list(_tokens(text))
    modules = []
    at = 0
    while at < len(tokens):
        module, at = _module(tokens, at)
        modules.append(module)
    return modules


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """The tokens, as (kind, text). The kind is "word", "text" or "sign"."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JaasError(f"a quotation mark at character {at + 1} is not closed")
        at = found.end()
        quoted = found["double"] if found["double"] is not None else found["single"]
        if quoted is not None:
            yield "text", _ESCAPE.sub(_unescaped, quoted)
        elif found["word"] is not None:
            yield "word", found["word"]
        elif found["sign"] is not None:
            yield "sign", found["sign"]


def _unescaped(found: re.Match[str]) -> str:
    octal, other = found["octal"], found["other"]
    return chr(int(octal, 8)) if octal is not None else _ESCAPED.get(other, other)


def _module(tokens: list[tuple[str, str]], at: int) -> tuple[LoginModule, int]:
    kind, name = tokens[at]
    if kind != "word":
        raise JaasError("the name of a login module must come first, as in PlainLoginModule")
    flag = tokens[at + 1][1] if at + 1 < len(tokens) else ""
    if flag.lower() not in _FLAGS:
        raise JaasError(f"behind {name} must come one of {', '.join(_FLAGS)}")
    at += 2
    options: dict[str, str] = {}
    while at < len(tokens) and tokens[at] != ("sign", ";"):
        _, key = tokens[at]
        if tokens[at + 1 : at + 2] != [("sign", "=")] or tokens[at + 2 : at + 3] in (
            [],
            [("sign", ";")],
        ):
            raise JaasError(f'the options of {name} must be key="value", with ";" behind the last')
        options[key] = tokens[at + 2][1]
        at += 3
    if at == len(tokens):
        raise JaasError(f'the options of {name} must end with ";"')
    return LoginModule(name, options), at + 1
