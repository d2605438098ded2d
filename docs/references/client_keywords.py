"""Makes `keywords.py` from the tables of `config`, so that editors and type checkers know every
setting:

python -m docs.references
"""

from __future__ import annotations

import json

from odradek_client.config.admin import AdminConfig
from odradek_client.config.common import ClientConfig
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.config.definition import ClientSetting, Settings
from odradek_client.config.producer import ProducerConfig
from odradek_client.config.share_consumer import ShareConsumerConfig

_TOP = '''\
"""The settings as keyword arguments of the clients, for editors and type checkers.

Made by `python -m docs.references`. A test compares
this file with the tables of settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from odradek_client.consumer.assignors import Assignor
'''

_CLASSES: tuple[type[Settings], ...] = (
    ProducerConfig,
    ConsumerConfig,
    ShareConsumerConfig,
    AdminConfig,
)
#: The accepted types of a setting, by kind; the types of other kinds are declared with the setting.
_TAKEN = {
    "addresses": "str | Iterable[str]",
    "names": "str | Iterable[str]",
    "acks": 'Literal["all", "-1", "0", "1", -1, 0, 1]',
    "assignors": "str | Assignor | Sequence[str | Assignor]",
}


def module() -> str:
    """The text of keywords.py."""
    shared = {
        name: row
        for name, row in ClientConfig.rows().items()
        if all(settings.rows()[name] == row for settings in _CLASSES)
    }
    classes = [_class("ClientSettings", "TypedDict, total=False", ClientConfig, shared)]
    for settings in _CLASSES:
        name = settings.__name__.removesuffix("Config")
        rows = {key: row for key, row in settings.rows().items() if key not in shared}
        classes.append(_class(f"{name}Settings", "ClientSettings, total=False", settings, rows))
    return "\n\n".join([_TOP, *classes])


def _class(name: str, bases: str, settings: type[Settings], rows: dict[str, ClientSetting]) -> str:
    about = (
        "of all clients."
        if settings is ClientConfig
        else f"of `{name.removesuffix('Settings')}`, in addition to those of all clients."
    )
    lines = [f"class {name}({bases}):", f'    """The settings {about}"""', ""]
    for row in rows.values():
        lines += [f"    {row.name}: {_type(settings, row)}", *_about(row)]
    return "\n".join(lines) + "\n"


def _type(settings: type[Settings], row: ClientSetting) -> str:
    declared = {
        name: annotation
        for each in reversed(settings.__mro__)
        for name, annotation in getattr(each, "__annotations__", {}).items()
    }
    if row.check.choices and declared[row.name] == "str":
        return f"Literal[{', '.join(map(json.dumps, row.check.choices))}]"
    return _TAKEN.get(row.kind) or declared[row.name]


def _about(row: ClientSetting) -> list[str]:
    space = " " if row.about.startswith('"') else ""
    return [f'    """{space}{row.about} Default: {_default(row.default)}."""']


def _default(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)
