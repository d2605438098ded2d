"""Functions made of source lines: the common part of generated decoders and encoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from odradek_protocol.message import ArrayOf, Struct
from odradek_protocol.primitives import WireType

Buffer = bytes | bytearray | memoryview
#: A function (buffer, position, end, [number of array elements still allowed]) -> (message,
#: position after it); a generator of this result, if it pauses.
Decoder = Callable[[Any, int, int, list[int]], Any]
#: A function (message, function that takes the next buffer) -> None.
Encoder = Callable[[Any, Callable[[Buffer], None]], Any]
#: The number of elements of an array between two pauses of a function that pauses.
PAUSE_ELEMENTS = 32


@lru_cache(maxsize=4096)
def has_arrays(cls: Any) -> bool:
    """True if a struct has an array, or a struct with an array: only such a struct may be long."""
    return any(
        isinstance(spec.type, ArrayOf)
        or (not isinstance(spec.type, WireType) and has_arrays(spec.type))
        for spec in cls.fields
    )


class FunctionSource:
    """The source of a generated function, line by line, with the objects that its names refer to.

    `pausing`: true for a generator function, which yields between the elements of long arrays. Only
    a struct with arrays can have one.
    """

    def __init__(
        self, cls: type[Struct], version: int, flexible: bool, pausing: bool = False
    ) -> None:
        self.cls, self.version, self.flexible = cls, version, flexible
        self.pausing = pausing
        # The line makes a generator of a function whose arrays this version does not have.
        self.lines = ["    if False: yield"] if pausing else []
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
