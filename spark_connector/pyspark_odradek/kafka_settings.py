"""The translation of options that begin with `kafka.`, which have Java's property names, to
settings of this client.

Most settings have Java's name with underscores instead of dots. Some settings of Java have no
counterpart in this client. If a setting without a counterpart cannot affect a result, it is
ignored; otherwise it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.config.definition import Settings
from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import ConfigError
from odradek_protocol.settings import did_you_mean

PREFIX = "kafka."

_USE_STARTING = "where a read begins is said by startingOffsets"
_BYTES_COME = "keys and values come as bytes; cast or parse the columns instead"
_BYTES_GO = "keys and values must be strings or bytes; cast or format the columns instead"
_NO_CODE = "classes of Java cannot run here; transform the rows instead"
_NO_AUTO_COMMIT = "Spark keeps the offsets, and no group's are committed"

REFUSED_IN_SOURCE: dict[str, str] = {
    "auto.offset.reset": _USE_STARTING,
    "key.deserializer": _BYTES_COME,
    "value.deserializer": _BYTES_COME,
    "enable.auto.commit": _NO_AUTO_COMMIT,
    "interceptor.classes": _NO_CODE,
}
REFUSED_IN_SINK: dict[str, str] = {
    "key.serializer": _BYTES_GO,
    "value.serializer": _BYTES_GO,
    "interceptor.classes": _NO_CODE,
    "transactional.id": "the sink names its transactions itself",
}

#: Settings for tuning and monitoring the Java client. They are ignored, because they have no
#: influence on the records.
WITHOUT_EFFECT: frozenset[str] = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "client.rack",
        "enable.metrics.push",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "send.buffer.bytes",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "socket.connection.setup.timeout.max.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partition.assignment.strategy",
    }
)
#: Settings whose only supported value is Java's default; other values would have no effect, and are
#: refused.
_ONLY_DEFAULT: dict[str, tuple[str, str]] = {
    "partitioner.class": ("", _NO_CODE),
    "partitioner.ignore.keys": ("false", "give the column `partition` instead"),
}
_PROTECTION = ("security_protocol", "sasl_mechanism")
_NOT_YET = {
    "ssl.engine.factory.class": _NO_CODE,
    "sasl.kerberos.": "Kerberos (GSSAPI) is not supported",
    "sasl.login.class": _NO_CODE,
    "sasl.client.callback.handler.class": _NO_CODE,
    "sasl.oauth.token.provider": "a function cannot be an option; have tokens come from"
    " kafka.sasl.oauthbearer.token.endpoint.url, which may be file:///PATH",
}

#: Reads are sequential, so fetches are larger than those of an application's consumer.
_SOURCE_DEFAULTS = {
    "max_partition_fetch_bytes": "4194304",
    "allow_auto_create_topics": "false",
    "client_id": "odradek-spark",
}
_SINK_DEFAULTS = {
    "batch_size": "262144",
    "linger_ms": "20",
    "client_id": "odradek-spark",
}


@dataclass(frozen=True)
class KafkaSettings:
    """Settings by this client's names, with values as text, and the problems that were found, as
    sentences."""

    settings: dict[str, str]
    problems: list[str] = field(default_factory=list)


def for_source(options: Mapping[str, str]) -> KafkaSettings:
    """The settings for the consumer, from all options of a read (keys in lower case)."""
    return _translate(options, ConsumerConfig, ProducerConfig, REFUSED_IN_SOURCE, _SOURCE_DEFAULTS)


def for_sink(options: Mapping[str, str]) -> KafkaSettings:
    """The settings for the producer, from all options of a write (keys in lower case)."""
    return _translate(options, ProducerConfig, ConsumerConfig, REFUSED_IN_SINK, _SINK_DEFAULTS)


def problems_with_transactions(settings: Mapping[str, str]) -> list[str]:
    """The sink's settings that conflict with exactly-once writes."""
    try:
        ProducerConfig.from_settings({**settings, "transactional_id": "any"})
    except ConfigError as error:
        problem = (
            f"semantics=exactly_once needs transactions, and these settings forbid them: {error}; or "
            "set semantics=at_least_once"
        )
        return [problem]
    return []


def _translate(
    options: Mapping[str, str],
    config: type[Settings],
    other: type[Settings],
    refused: Mapping[str, str],
    defaults: Mapping[str, str],
) -> KafkaSettings:
    rows = config.rows()
    other_rows = other.rows()
    settings = dict(defaults)
    problems: list[str] = []
    for option, value in options.items():
        if not option.startswith(PREFIX):
            continue
        name = option.removeprefix(PREFIX)
        ours = name.replace(".", "_")
        why_not = refused.get(name) or _refusal(name, value)
        if why_not:
            problems.append(f"{option} cannot be set: {why_not}")
        elif name in WITHOUT_EFFECT or name in _ONLY_DEFAULT or _is_default(name, value):
            continue
        elif ours in rows and rows[ours].kind not in ("function", "object"):
            settings[ours] = value
        elif ours not in other_rows:
            # A setting that is only for reads is ignored in writes, and a setting that is only for
            # writes in reads, because users often give equal options to readers and writers.
            problems.append(_unknown(option, rows))
    problems += _wrong_values(settings, config)
    if "kafka.bootstrap.servers" not in options:
        problems.insert(0, 'kafka.bootstrap.servers is missing; set it to "host:port"')
    return KafkaSettings(settings, problems)


def _is_default(name: str, value: str) -> bool:
    """True for a setting with the only value that the sink supports. Such a setting is not passed
    on to the producer, because the producer would then require a transactional id.
    """
    return name == "transaction.two.phase.commit.enable" and value.strip().lower() == "true"


def _wrong_values(settings: Mapping[str, str], config: type[Settings]) -> list[str]:
    try:
        config.from_settings(settings)
    except ConfigError as error:
        together = str(error)
    else:
        return []
    # Settings of TLS and SASL have no effect without the settings in `_PROTECTION`.
    protection = {name: settings[name] for name in _PROTECTION if name in settings}
    try:
        config.from_settings(protection)
    except ConfigError as error:
        shown = max(protection, key=_PROTECTION.index)
        return [f"{PREFIX}{shown.replace('_', '.')}: {error}"]
    alone = []
    for name, value in settings.items():
        try:
            config.from_settings({**protection, name: value})
        except ConfigError as error:
            alone.append(f"{PREFIX}{name.replace('_', '.')}: {error}")
    return alone or [together]


def _refusal(name: str, value: str) -> str:
    """The reason why a known setting of Java is not supported; "" if the setting is supported or
    unknown."""
    if name in _ONLY_DEFAULT:
        harmless, why = _ONLY_DEFAULT[name]
        return "" if value.strip().lower() == harmless.lower() else why
    return next((why for start, why in _NOT_YET.items() if name.startswith(start)), "")


def _unknown(option: str, known: Iterable[str]) -> str:
    names = [PREFIX + name.replace("_", ".") for name in known]
    return f"{option} is not a setting that this client has{did_you_mean(option, names, 0.75)}"
