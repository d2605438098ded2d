"""The reference of all settings, docs/operate/configuration.md, made from their rows.

python -m docs.references
"""

from __future__ import annotations

from odradek_broker.config.broker_settings import SETTINGS
from odradek_broker.config.client_metrics_settings import METRICS_SETTINGS
from odradek_broker.config.group_settings import GROUP_SETTINGS
from odradek_broker.config.topic_settings import TOPIC_SETTINGS, TopicSetting
from odradek_broker.config.types import ConfigType, Setting, Value, write_value
from odradek_broker.config.unsupported import NO_EFFECT_SETTINGS
from odradek_protocol.settings import INT32_MAX, INT64_MAX, table_row

_HEAD = """\
# Configuration

<!-- Made by `python -m docs.references`; a test holds it equal. -->

The broker takes Kafka's `server.properties`, by Kafka's names:

<!-- not run: it serves until it is stopped, from a directory that may not be written to -->
```sh
odradek serve --config server.properties --set num.partitions=3 --data-dir /var/lib/odradek
```

Most installations need a few of these fifteen settings, and none of the others but those of TLS, logins and rights
([security](security.md)). `odradek doctor` checks them before a start.

| Key | Set it to |
|---|---|
"""

_FIRST = {
    "listeners": "the addresses to listen on, if other machines are to connect: `PLAINTEXT://:9092`"
    " in a network that you trust, `SASL_SSL://:9093` elsewhere",
    "advertised.listeners": "names and ports by which clients reach each listener from where they are",
    "log.dirs": "the data directory, or several on different disks (`--data-dir`)",
    "num.partitions": "the number of partitions of topics that are created without one",
    "auto.create.topics.enable": "false, if a misspelt topic is to be an error",
    "log.durability": "page-cache, if acknowledged records may be lost with the machine: Kafka's default"
    " behaviour, and faster",
    "log.retention.ms": "how long records are kept; a topic's `retention.ms` overrides it",
    "log.retention.bytes": "how many bytes of each partition are kept; together with the number of"
    " partitions it bounds the disk",
    "log.cleanup.policy": "compact, if the newest record of each key is kept instead",
    "message.max.bytes": "the largest batch that is taken",
    "offsets.retention.minutes": "how long a group without members keeps its positions",
    "transaction.max.timeout.ms": "the longest timeout that a transactional producer may ask for",
    "authorizer.class.name": "`org.apache.kafka.metadata.authorizer.StandardAuthorizer`, if ACLs decide"
    " [who may do what](security.md#who-may-do-what)",
    "http.listen": "the address of metrics, health and readiness ([monitoring](monitoring.md))",
    "log.format": "json, where programs read the broker's log",
}

_MORE = """
`--set` overrides the file; `--listen`, which moves the listener PLAINTEXT, and `--data-dir` override both. Listeners,
and who may reach them, are in [security](security.md). For an unknown key
the broker logs a warning that names the nearest known one. A bad value ends the program with exit
code 2 and a line that says which value it was and what is allowed. Kafka's settings that mean nothing on one
node (`num.io.threads`, `replica.*` and the like) are accepted and ignored; those of its quorum (`process.roles`,
`controller.quorum.*`) are named in one log line at the start.

Settings marked **dynamic** can be changed while the broker runs, for it or for all brokers
(`kafka-configs.sh --entity-type brokers`, IncrementalAlterConfigs). Those marked **ours** do not exist
in Kafka. Those that say so may be set for one listener alone: `listener.name.NAME.KEY`, with the name in lower
case; or for one mechanism of one listener: `listener.name.NAME.plain.KEY`. Those marked **no effect** are checked and
stored, but change nothing, because one node has no use for them.
If a key has synonyms, the first one that is set counts; synonyms are read-only.

## Broker settings

| Key | Default | What it is | Values |
|---|---|---|---|
"""

_TOPICS = """
## Topic settings

These settings are given when a topic is created, and can be changed at any time (`odradek topic alter`, `kafka-configs.sh
--entity-type topics`). Where a topic has no setting of its own, the broker's setting applies.

| Key | Broker's setting | What it is | Values |
|---|---|---|---|
"""

_NO_EFFECT_KEYS = """
These settings of Kafka can be changed while the broker runs and have no effect here. They are checked, stored and described, so
that tools which set them work: """

_GROUPS = """
## Group settings

These settings apply to one group (`kafka-configs.sh --entity-type groups`, resource type 32 of
IncrementalAlterConfigs). The group need not exist yet.

| Key | Broker's setting | What it is |
|---|---|---|
"""

_SUBSCRIPTIONS = """
## Subscriptions to client metrics

The metrics that clients are asked to push ([metrics that clients push](monitoring.md#metrics-that-clients-push); `odradek client-metrics alter`, `kafka-client-metrics.sh`,
`kafka-configs.sh --entity-type client-metrics`, resource type 16 of IncrementalAlterConfigs).

| Key | Default | What it is | Values |
|---|---|---|---|
"""

_NO_EFFECT = "no effect"
_LARGEST = {str(INT64_MAX): "no limit", str(INT32_MAX): "no limit"}


def page() -> str:
    """The whole page, in Markdown."""
    brokers = "".join(map(_broker_row, SETTINGS.values()))
    topics = "".join(map(_topic_row, TOPIC_SETTINGS.values()))
    without_effect = ", ".join(f"`{name}`" for name in NO_EFFECT_SETTINGS) + ".\n"
    groups = "".join(
        table_row(f"`{row.name}`", f"`{row.synonym}`", row.doc)
        for row in GROUP_SETTINGS.values()
        if row.effective
    )
    subscriptions = "".join(
        table_row(f"`{row.name}`", _default(row.default), row.doc, row.allowed)
        for row in METRICS_SETTINGS.values()
    )
    first = "".join(table_row(f"`{SETTINGS[name].name}`", text) for name, text in _FIRST.items())
    parts = (
        _HEAD,
        first,
        _MORE,
        brokers,
        _NO_EFFECT_KEYS,
        without_effect,
        _TOPICS,
        topics,
        _GROUPS,
        groups,
    )
    return "".join(parts) + _SUBSCRIPTIONS + subscriptions


def _default(value: Value) -> str:
    text = write_value(value)
    if not text:
        return "empty"
    return _LARGEST.get(text) or f"`{text}`"


def _broker_row(row: Setting) -> str:
    marks = (("dynamic", row.dynamic), ("ours", row.ours), (_NO_EFFECT, not row.effective))
    doc = row.doc + "".join(f" **{name}**" for name, applies in marks if applies)
    if row.synonyms:
        names = ", ".join(f"`{synonym.name}`" for synonym in row.synonyms)
        doc += f" Synonyms: {names}."
    allowed = row.allowed if row.kind is not ConfigType.STRING else row.check.text
    return table_row(f"`{row.name}`", _default(row.default), doc, allowed)


def _topic_row(row: TopicSetting) -> str:
    broker = f"`{row.broker_key}`" if row.broker_key else ""
    doc = row.doc if row.effective else f"{row.doc} **{_NO_EFFECT}**"
    return table_row(f"`{row.name}`", broker, doc, row.allowed)
