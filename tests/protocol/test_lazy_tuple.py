"""Lazy named tuples behave like those of the standard library."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any, Generic, TypeVar

import pytest

from odradek_protocol import lazy_tuple

T = TypeVar("T")


class Standard(typing.NamedTuple):
    x: int
    y: int = 2
    z: str = "z"

    @property
    def total(self) -> int:
        return self.x + self.y


class Lazy(lazy_tuple.NamedTuple):
    x: int
    y: int = 2
    z: str = "z"

    @property
    def total(self) -> int:
        return self.x + self.y


class Inherited(Lazy):
    """A subclass. In some of the tried orders, its first object is created before the first one of
    `Lazy`."""


class Single(lazy_tuple.NamedTuple):
    only: int


class Empty(lazy_tuple.NamedTuple):
    pass


class Box(lazy_tuple.NamedTuple, Generic[T]):
    value: T


def outcome(call: Any) -> Any:
    """The result of a call, or "refused" if it raises: `_replace` raises another exception since
    Python 3.13."""
    try:
        return call()
    except (AttributeError, TypeError, ValueError):
        return "refused"


USES: dict[str, Any] = {
    "positional": lambda cls: tuple(cls(1, 3, "a")),
    "by name": lambda cls: tuple(cls(x=1, z="b")),
    "too few": lambda cls: cls(),
    "too many": lambda cls: cls(1, 2, "c", 4),
    "unknown name": lambda cls: cls(1, w=2),
    "attributes": lambda cls: (cls(5).x, cls(5).y, cls(5).z, cls(5).total),
    "equal to a tuple": lambda cls: (cls(1) == (1, 2, "z"), hash(cls(1)) == hash((1, 2, "z"))),
    "fields": lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__),
    "make": lambda cls: tuple(cls._make([1, 2, "d"])),
    "make of too few": lambda cls: cls._make([1]),
    "replace": lambda cls: tuple(cls(1)._replace(y=7)),
    "replace what is not there": lambda cls: cls(1)._replace(w=7),
    "as a dictionary": lambda cls: cls(1)._asdict(),
    "text": lambda cls: repr(cls(1)).replace(cls.__name__, "X"),
    "copies": lambda cls: (copy.copy(cls(1)) == cls(1), copy.deepcopy(cls(1)) == cls(1)),
    "pickled": lambda cls: type(pickle.loads(pickle.dumps(cls(1)))) is cls,
    "assignment": lambda cls: setattr(cls(1), "x", 2),
    "a new attribute": lambda cls: setattr(cls(1), "w", 2),
    "bases": lambda cls: cls.__mro__[1:],
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_lazy_and_standard_named_tuples_behave_alike(use: Any) -> None:
    assert outcome(lambda: use(Lazy)) == outcome(lambda: use(Standard))


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_first_use_of_a_lazy_tuple_has_the_same_result_as_later_ones(use: Any) -> None:
    def declared() -> Any:
        cls: Any = type(Lazy.__name__, Lazy.__bases__, dict(vars(Lazy)))
        cls.__new__ = staticmethod(lazy_tuple._compiling_new)
        return cls

    if use is not USES["pickled"]:
        assert outcome(lambda: use(declared())) == outcome(lambda: use(Lazy))


def test_the_constructor_is_compiled_once() -> None:
    class Declared(lazy_tuple.NamedTuple):
        x: int

    assert Declared.__new__ is lazy_tuple._compiling_new
    Declared(1)
    compiled = Declared.__new__
    assert compiled is not lazy_tuple._compiling_new
    Declared(2)
    assert Declared.__new__ is compiled


def test_a_subclass_makes_objects_of_its_own_class() -> None:
    for first in (Inherited, Lazy, Inherited):
        made = first(1)
        assert (type(made), made.total) == (first, 3)


def test_lazy_tuples_with_one_or_no_field_or_a_type_variable_work() -> None:
    assert Single(1) == (1,)
    assert Empty() == ()
    assert Box[int](1) == Box(1) == (1,)
    assert Box(1).value == 1


def test_a_default_before_a_field_without_one_is_refused() -> None:
    with pytest.raises(TypeError, match="Wrong: a field without a default"):

        class Wrong(lazy_tuple.NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]
