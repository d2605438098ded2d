"""Dataclasses whose methods are compiled at the first use of each class.

The standard library compiles `__init__`, `__repr__`, `__eq__` and four others when it declares a
class. For all classes of a broker the compilation takes more than a third of the start, although
most of the classes are needed later or never. The decorator of this module makes the same fields,
slots and errors as the standard library's, so `fields`, `replace` and `asdict` work; a type checker
sees the standard library's decorator. Left out: `order`, `unsafe_hash`, `weakref_slot` and
`InitVar`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

#: The default of a parameter whose field has a factory; the factory is called if no value is given.
_FACTORY = object()


def _compile_init_later(cls: Any, *, frozen: bool = False) -> None:
    """Give a dataclass an `__init__` that is compiled at the first call."""

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        cls.__init__ = _init_of(cls, frozen)
        cls.__init__(self, *args, **values)

    cls.__init__ = __init__


def _init_of(cls: Any, frozen: bool) -> Callable[..., None]:
    """The `__init__` that the standard library would have made."""
    scope: dict[str, Any] = {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    positional: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for each in dataclasses.fields(cls):
        name, parameter = each.name, each.name
        value = name
        if each.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = each.default_factory
            parameter = f"{name}=_FACTORY"
            value = f"_make_{name}() if {name} is _FACTORY else {name}"
            if not each.init:
                value = f"_make_{name}()"
        elif each.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
            if not each.init:
                value = f"_default_{name}"
        elif not each.init:
            continue
        if each.init:
            (by_name if each.kw_only else positional).append(parameter)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    lines = [f"def __init__({parameters}):", *(f"    {each}" for each in body or ["pass"])]
    exec("\n".join(lines), scope)  # noqa: S102 - names of our own declarations
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _compile_comparisons_later(cls: Any, *, hashable: bool) -> None:
    def __eq__(self: Any, other: object) -> bool:
        cls.__eq__, _ = _comparisons_of(cls)
        return cls.__eq__(self, other)  # type: ignore[no-any-return]

    def __hash__(self: Any) -> int:
        _, cls.__hash__ = _comparisons_of(cls)
        return cls.__hash__(self)  # type: ignore[no-any-return]

    own = vars(cls)
    if "__eq__" not in own:
        cls.__eq__ = __eq__
    if own.get("__hash__") is None:
        cls.__hash__ = __hash__ if hashable else None


def _comparisons_of(cls: Any) -> tuple[Callable[..., bool], Callable[..., int]]:
    compared = [each.name for each in dataclasses.fields(cls) if each.compare]
    own, others = (
        "(" + "".join(f"{value}.{name}, " for name in compared) + ")" for value in ("self", "other")
    )
    scope: dict[str, Any] = {}
    lines = [
        "def __eq__(self, other):",
        "    if other.__class__ is not self.__class__:",
        "        return NotImplemented",
        f"    return {own} == {others}",
        "def __hash__(self):",
        f"    return hash({own})",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - names of our own declarations
    return scope["__eq__"], scope["__hash__"]


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [
        f"{each.name}={getattr(self, each.name)!r}"
        for each in dataclasses.fields(self)
        if each.repr
    ]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_assignment(_: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _declare(cls: Any, *, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> Any:
    own = vars(cls)
    has_repr, has_init = "__repr__" in own, "__init__" in own
    # A class without a docstring gets its name as docstring. Otherwise the standard library would
    # make a docstring from the signature of `__init__`, and would need `__init__` for it.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
    )(cls)
    if not has_init:
        _compile_init_later(made, frozen=frozen)
    if not has_repr:
        made.__repr__ = _repr
    if eq:
        _compile_comparisons_later(made, hashable=frozen)
    if frozen:
        made.__setattr__, made.__delattr__ = _refuse_assignment, _refuse_deletion
        if slots:
            made.__getstate__, made.__setstate__ = _state, _set_state
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False):
        """Declare a dataclass, as `dataclasses.dataclass` does."""

        def declare(declared):
            return _declare(declared, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)

        return declare if cls is None else declare(cls)
