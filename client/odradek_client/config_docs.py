"""docs/client-settings.md, made from the tables of `config`:

python -m odradek_client.config_docs > docs/client-settings.md
"""

from __future__ import annotations

from odradek_client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from odradek_client.settings import Row, Settings

_TOP = """\
# Client settings

<!-- Made by `python -m odradek_client.config_docs > docs/client-settings.md`; a test holds it equal. -->

`Producer`, `Consumer` and `Admin` take Kafka's settings by Kafka's names, with underscores or (in a
dictionary, `Consumer(**{"group.id": "billing"})`) with dots. A name that nobody knows and a value that
cannot be are a `ConfigError` that says what would do.
"""

_SECTIONS: tuple[tuple[str, type[Settings]], ...] = (
    ("All clients", ClientConfig),
    ("Producer", ProducerConfig),
    ("Consumer", ConsumerConfig),
    ("Admin", AdminConfig),
)


def page() -> str:
    """The whole file."""
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


def _line(row: Row) -> str:
    doc = f"{row.doc} One of {', '.join(row.choices)}." if row.choices else row.doc
    return f"| `{row.name}` | {_default(row.default)} | {doc} |\n"


def _default(value: object) -> str:
    if value is None:
        return "none"
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text}`"


if __name__ == "__main__":
    print(page(), end="")
