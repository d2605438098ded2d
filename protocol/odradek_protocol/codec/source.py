"""Functions made of source lines: the common part of generated decoders and encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_protocol.message import Struct

Buffer = bytes | bytearray | memoryview
#: A function (buffer, position, end, [number of array elements still allowed]) -> (message,
#: position after it).
Decoder = Callable[[Any, int, int, list[int]], tuple[Any, int]]
#: A function (message, function that takes the next buffer) -> None.
Encoder = Callable[[Any, Callable[[Buffer], None]], None]


class Source:
    """The source of a generated function, line by line, with the objects that its names refer
    to."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls, self.version, self.flexible = cls, version, flexible
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self.indent = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, value: Any, prefix: str = "k") -> str:
        """A name for an object in the function's scope."""
        name = f"{prefix}{len(self.scope)}"
        self.scope[name] = value
        return name

    def function(self, signature: str) -> Any:
        """Compile a function with this signature; the lines are its body."""
        source = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        where = f"<odradek {self.cls.__name__} v{self.version}>"
        exec(compile(source, where, "exec"), self.scope)  # noqa: S102  generated from declarations
        return self.scope[signature.partition("(")[0]]
