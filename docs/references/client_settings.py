"""docs/use/client-settings.md, made from the tables of `config`:

python -m docs.references
"""

from __future__ import annotations

from odradek_client.config.admin import AdminConfig
from odradek_client.config.common import ClientConfig
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.config.definition import ClientSetting, Settings
from odradek_client.config.producer import ProducerConfig
from odradek_client.config.share_consumer import ShareConsumerConfig
from odradek_protocol.settings import table_row

_TOP = """\
# Client settings

<!-- Made by `python -m docs.references`; a test holds it equal. -->

`Producer`, `Consumer`, `ShareConsumer` and `Admin` take Kafka's settings by Kafka's names, with underscores or (in a
dictionary, `Consumer(**{"group.id": "billing"})`) with dots. An unknown name or a value
that is not allowed raises `ConfigError`, which says what is allowed. Editors and type checkers know the settings with
underscores, their types and what they are for; a dictionary of them is a `ProducerSettings`, `ConsumerSettings`,
`ShareConsumerSettings` or `AdminSettings` (`from odradek import ConsumerSettings`).
"""

_SECTIONS: tuple[tuple[str, type[Settings]], ...] = (
    ("All clients", ClientConfig),
    ("Producer", ProducerConfig),
    ("Consumer", ConsumerConfig),
    ("Share consumer", ShareConsumerConfig),
    ("Admin", AdminConfig),
)


def page() -> str:
    """The text of docs/use/client-settings.md."""
    shared = ClientConfig.rows()
    parts = [_TOP]
    for title, settings in _SECTIONS:
        rows = [
            row
            for name, row in settings.rows().items()
            if settings is ClientConfig or shared.get(name) != row
        ]
        lines = [_line(row) for row in rows]
        parts.append(f"\n## {title}\n\n| Setting | Default | What it is |\n|---|---|---|\n")
        parts.append("".join(lines))
    return "".join(parts)


def _line(row: ClientSetting) -> str:
    return table_row(f"`{row.name}`", _default(row.default), row.about)


def _default(value: object) -> str:
    if value is None:
        return "none"
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text}`"
