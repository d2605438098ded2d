"""Every schema module describes its API key and the changes in each version."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import odradek_protocol.schemas
from many_cases import looped
from odradek_protocol.keys import APIS, api_of
from odradek_protocol.message import ArrayOf, FieldSpec, Message, Struct
from odradek_protocol.primitives import RECORDS, WireType

MODULES = [
    importlib.import_module(f"odradek_protocol.schemas.{info.name}")
    for info in pkgutil.iter_modules(odradek_protocol.schemas.__path__)
]
EVERY_MODULE = looped("module", MODULES, ids=lambda m: m.__name__.split(".")[-1])


def _declared(module: ModuleType) -> list[Any]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Struct)
        and value.__module__ == module.__name__
    ]


def _messages(module: ModuleType) -> list[Any]:
    return [value for value in _declared(module) if issubclass(value, Message)]


@EVERY_MODULE
def test_each_schema_module_has_one_request_and_one_response(module: ModuleType) -> None:
    request, response = _messages(module)
    api = api_of(request)
    assert api.response is response
    assert module.__doc__ is not None
    assert module.__doc__.startswith(f"{api.name} (key {int(api.key)}): ")


def test_every_key_has_a_module() -> None:
    assert {api.request.__module__ for api in APIS.values()} == {m.__name__ for m in MODULES}


def _reached(cls: Any) -> set[Any]:
    found = {cls}
    for spec in cls.fields:
        element = spec.type.element if isinstance(spec.type, ArrayOf) else spec.type
        if not isinstance(element, WireType):
            found |= _reached(element)
    return found


@EVERY_MODULE
def test_every_struct_is_part_of_a_message(module: ModuleType) -> None:
    reached = set().union(*(_reached(cls) for cls in _messages(module)))
    # A struct that is the same in two messages is declared with one of them.
    assert {cls for cls in reached if cls.__module__ == module.__name__} == set(_declared(module))


def _fields(module: ModuleType) -> list[FieldSpec]:
    return [spec for cls in _declared(module) for spec in cls.fields]


@EVERY_MODULE
def test_tagged_fields_have_tags_and_no_tag_is_used_twice(module: ModuleType) -> None:
    for cls in _declared(module):
        tags = [spec.tag for spec in cls.fields if spec.tag >= 0]
        assert len(tags) == len(set(tags))
    for spec in _fields(module):
        assert (spec.tag >= 0) == any(version in spec.tagged for version in range(50)), spec


@EVERY_MODULE
def test_null_is_the_default_of_nullable_fields_only(module: ModuleType) -> None:
    for spec in _fields(module):
        # In Kafka a field of the type "records" has no default, even if it may be null.
        if spec.default is None and spec.type is not RECORDS:
            assert any(version in spec.nullable for version in spec.versions), spec.name
