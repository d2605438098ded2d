"""Named tuples whose constructor is compiled at the first use of each class.

`typing.NamedTuple` compiles the annotation of every field and a constructor when a class is
declared. A broker declares some 150 of these classes at its start and makes objects of only a few
of them. A class declared with the `NamedTuple` of this module has the same fields, methods and
speed; a type checker sees `typing.NamedTuple`. Left out: the functional form, and the check of
annotations.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

_getter: Callable[[int, str], Any] = collections._tuplegetter  # type: ignore[attr-defined]


def _compiling_new(cls: Any, /, *args: Any, **values: Any) -> Any:
    """Compile the `__new__` of the declared class (`cls` or a base of `cls`), and call it."""
    declared = next(base for base in cls.__mro__ if "_field_defaults" in vars(base))
    made = _new_of(declared)
    if declared.__new__ is _compiling_new:
        declared.__new__ = staticmethod(made)
    return made(cls, *args, **values)


def _new_of(declared: Any) -> Callable[..., Any]:
    names = ", ".join(declared._fields)
    tail = "," if len(declared._fields) == 1 else ""
    scope = {"_tuple_new": tuple.__new__, "__name__": f"namedtuple_{declared.__name__}"}
    made: Any = eval(f"lambda _cls, {names}: _tuple_new(_cls, ({names}{tail}))", scope)
    made.__name__, made.__qualname__ = "__new__", f"{declared.__qualname__}.__new__"
    made.__defaults__ = tuple(declared._field_defaults.values())
    return made  # type: ignore[no-any-return]


def _make(cls: Any, values: Iterable[Any]) -> Any:
    made = tuple.__new__(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _as_dict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{type(self).__name__}({shown})"


def _state(self: Any) -> tuple[Any, ...]:
    return tuple(self)


class _Declaration(type):
    """The metaclass of `NamedTuple`. It makes each declared class a plain subclass of tuple, whose
    metaclass is `type`."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        fields = tuple(namespace.get("__annotations__", ()))
        defaults = {field: namespace[field] for field in fields if field in namespace}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default is behind one with a default")
        own = {
            "__slots__": (),
            "__new__": _compiling_new,
            "__repr__": _repr,
            "__getnewargs__": _state,
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": defaults,
            "_make": classmethod(_make),
            "_replace": _replace,
            "_asdict": _as_dict,
            **namespace,
            **{field: _getter(number, "") for number, field in enumerate(fields)},
        }
        kept = tuple(tuple if base is _NamedTuple else base for base in bases)
        return type(name, kept, own)


class _Base:
    """The class of the object `NamedTuple`. The object is not a class, so that it does not appear
    in the method resolution order."""

    def __mro_entries__(self, bases: Any) -> tuple[type]:
        return (_NamedTuple,)


_NamedTuple = type.__new__(_Declaration, "NamedTuple", (), {})

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    NamedTuple = _Base()
