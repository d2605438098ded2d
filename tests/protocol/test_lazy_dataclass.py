"""Lazy dataclasses behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, cast

import pytest

from odradek_protocol import lazy_dataclass

BOTH = pytest.mark.parametrize(
    "declare", [dataclasses.dataclass, lazy_dataclass.dataclass], ids=["standard", "lazy"]
)
OPTIONS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"frozen": True},
        {"slots": True},
        {"frozen": True, "slots": True},
        {"eq": False},
        {"kw_only": True, "frozen": True},
    ],
    ids=str,
)


def point(declare: Any, options: dict[str, Any]) -> Any:
    class Point:
        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False, compare=False)
        made: int = dataclasses.field(default=7, init=False)
        later: dict[str, int] = dataclasses.field(default_factory=dict, init=False, compare=False)
        last: int = dataclasses.field(default=9, kw_only=True)

    return declare(**options)(Point)


@BOTH
@OPTIONS
def test_lazy_dataclasses_have_values_and_defaults(declare: Any, options: dict[str, Any]) -> None:
    kind = point(declare, options)
    one = kind(x=1, last=3)
    assert (one.x, one.y, one.tags, one.secret, one.made, one.later, one.last) == (
        *(1, 2, [], "s", 7, {}, 3),
    )
    assert kind(x=1).tags is not kind(x=1).tags
    assert repr(one).endswith("Point(x=1, y=2, tags=[], made=7, later={}, last=3)")
    if "kw_only" in options:
        with pytest.raises(TypeError):
            kind(1)
    else:
        assert kind(1, 5, ["t"]).tags == ["t"]
        with pytest.raises(TypeError):
            kind(1, 5, ["t"], "s", 9)
    with pytest.raises(TypeError, match="x"):
        kind()
    with pytest.raises(TypeError, match="unknown"):
        kind(x=1, unknown=1)


@BOTH
@OPTIONS
def test_lazy_dataclasses_have_equality_and_hashes(declare: Any, options: dict[str, Any]) -> None:
    kind = point(declare, options)
    equal = options.get("eq", True)
    assert (kind(x=1) == kind(x=1)) is equal
    assert (kind(x=1) == kind(x=1, secret="other")) is equal
    assert kind(x=1) != kind(x=2)
    assert kind(x=1) != 1
    assert kind(x=1).__eq__(1) is NotImplemented
    if not equal:
        assert len({kind(x=1), kind(x=1)}) == 2
    elif options.get("frozen"):
        with pytest.raises(TypeError):
            hash(kind(x=1))  # The list in the object is not hashable.
        assert hash(kind(x=1, tags=())) != hash(kind(x=2, tags=()))
    else:
        with pytest.raises(TypeError, match="unhashable"):
            hash(kind(x=1))


@BOTH
@OPTIONS
def test_lazy_dataclasses_allow_or_refuse_assignment_and_deletion(
    declare: Any, options: dict[str, Any]
) -> None:
    one = point(declare, options)(x=1)
    if not options.get("frozen"):
        one.x = 5
        assert one.x == 5
        del one.x
        assert not hasattr(one, "x")
        return
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 5
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x


@BOTH
@OPTIONS
def test_the_functions_of_dataclasses_accept_lazy_dataclasses(
    declare: Any, options: dict[str, Any]
) -> None:
    kind = point(declare, options)
    one = kind(x=1, tags=["t"])
    assert dataclasses.is_dataclass(kind)
    assert [each.name for each in dataclasses.fields(one)][:3] == ["x", "y", "tags"]
    assert dataclasses.replace(one, y=8).y == 8
    assert dataclasses.asdict(one)["tags"] == ["t"]
    assert copy.deepcopy(one).tags == ["t"]
    assert hasattr(one, "__dict__") is not options.get("slots", False)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    x: int
    y: tuple[int, ...] = ()


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Lazy:
    x: int
    y: tuple[int, ...] = ()


@pytest.mark.parametrize("kind", [Standard, Lazy])
def test_frozen_classes_with_slots_are_pickled(kind: Any) -> None:
    one = kind(1, (2, 3))
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.copy(one) == one
    match one:
        case Standard(x, y) | Lazy(x, y):
            assert (x, y) == (1, (2, 3))


@BOTH
def test_lazy_dataclasses_keep_own_methods_and_inheritance(declare: Any) -> None:
    @declare(frozen=True)
    class Base:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x is negative")

        def __repr__(self) -> str:
            return "own"

    @declare(frozen=True)
    class Derived(Base):
        y: int = 3

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    class Plain(Derived):
        pass

    base, derived, plain = (cast(Any, each) for each in (Base, Derived, Plain))
    with pytest.raises(ValueError, match="negative"):
        derived(-1)
    assert repr(base(1)) == "own"
    assert repr(derived(1)).endswith("Derived(x=1, y=3)")
    assert derived(1) == derived(2)
    assert hash(derived(1)) == 5
    assert plain(4, 6).y == 6


def test_a_lazy_dataclass_is_compiled_by_its_first_call_only() -> None:
    @lazy_dataclass.dataclass
    class Once:
        x: int

    first = Once.__init__
    Once(1)
    compiled = Once.__init__
    Once(2)
    assert first is not compiled
    assert Once.__init__ is compiled
    assert str(inspect.signature(Once)) == "(x)"
