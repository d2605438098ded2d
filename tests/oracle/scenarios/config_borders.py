"""Values of settings that Java reads in another way than Python, and values at the borders of a
broker's settings."""

from __future__ import annotations

from tests.oracle.group_steps import group
from tests.oracle.scenarios.configs import change_configs
from tests.oracle.script import Ask, Step, scenarios_of, topic

_SET, _, _APPEND, _SUBTRACT = range(4)
_BROKER, _METRICS, _GROUP = 4, 16, 32


def _set(
    key: str, *values: str, operation: int = _SET, kind: int = 2, name: str = "@t"
) -> list[Step]:
    """Validate each value in a separate request."""
    return [
        change_configs((key, operation, value), kind=kind, name=name, checked_only=True)
        for value in values
    ]


_BLANK = ("1000\u00a0", "\u00a01000", "\u2003 1000", "\u00001000", "\t1000\n", "1000\u0085")
_WORDS = ("true\u00a0", "\u2003true", "true\u0000", " true\t")


SCENARIOS = scenarios_of(
    {
        ("alter-values-with-blanks", "IncrementalAlterConfigs", "1"): [
            *topic(),
            *group(),
            *_set("retention.ms", *_BLANK),
            *_set("min.cleanable.dirty.ratio", "0.5\u00a0", "\u20030.5", "\u00000.5", "\t0.5"),
            *_set("preallocate", *_WORDS),
            *_set(
                "cleanup.policy", "compact\u00a0", "\u2003compact,delete", "delete\u00a0,compact"
            ),
            *_set("cleanup.policy", "compact\u00a0", operation=_APPEND),
            *_set(
                "consumer.session.timeout.ms",
                *(f"{each}0" for each in _BLANK[1:4]),
                kind=_GROUP,
                name="@g",
            ),
            *_set("log.retention.bytes", *_BLANK, kind=_BROKER, name=""),
            *_set("interval.ms", *_BLANK, kind=_METRICS, name="@s"),
        ],
        ("alter-client-metrics-to-commas", "IncrementalAlterConfigs", "1"): [
            *_set("metrics", ",", ",,", " , ", "a,", ",a", kind=_METRICS, name="@s"),
            *_set("match", ",", ",,", " , ", "client_id=a,", kind=_METRICS, name="@s"),
        ],
        ("alter-broker-keys-at-their-borders", "IncrementalAlterConfigs", "1"): [
            *_set("log.retention.ms", "0", "1", "-1", kind=_BROKER, name=""),
            *_set(
                "log.local.retention.ms",
                "604800000",
                "604800001",
                "-1",
                "-2",
                "-3",
                kind=_BROKER,
                name="",
            ),
            *_set("log.local.retention.bytes", "-1", "0", "-2", "-3", kind=_BROKER, name=""),
            *_set("remote.log.reader.threads", "4", "5", "20", "21", kind=_BROKER, name=""),
            *_set(
                "remote.log.manager.copier.thread.pool.size",
                "4",
                "5",
                "20",
                "21",
                kind=_BROKER,
                name="",
            ),
            *_set(
                "remote.log.manager.expiration.thread.pool.size",
                "4",
                "5",
                "20",
                "21",
                kind=_BROKER,
                name="",
            ),
            *_set(
                "remote.log.manager.follower.thread.pool.size",
                "0",
                "1",
                "4",
                "5",
                kind=_BROKER,
                name="",
            ),
            *_set(
                "replica.alter.log.dirs.io.max.bytes.per.second", "-1", "0", kind=_BROKER, name=""
            ),
        ],
        ("alter-broker-keys-of-plugins", "IncrementalAlterConfigs", "1"): [
            *_set("log.retention.ms", "-2", kind=_BROKER, name=""),
            *_set("log.flush.interval.ms", "-1", kind=_BROKER, name=""),
            *_set("metric.reporters", "", kind=_BROKER, name=""),
            *_set("sasl.enabled.mechanisms", "PLAIN", kind=_BROKER, name="1"),
            *_set("cordoned.log.dirs", "", kind=_BROKER, name="1"),
            *_set("request.timeout.ms", "1", operation=_APPEND, kind=_BROKER, name=""),
            *_set("process.roles", "broker", operation=_SUBTRACT, kind=_BROKER, name=""),
        ],
        ("create-topics-without-configs", "CreateTopics", "5-7"): [
            Ask(
                "CreateTopics",
                {
                    "timeout_ms": 10_000,
                    "topics": [{"name": "@t", "num_partitions": 1, "replication_factor": 1}],
                },
            ),
            Ask(
                "CreateTopics",
                {
                    "timeout_ms": 10_000,
                    "validate_only": True,
                    "topics": [
                        {
                            "name": "@u",
                            "num_partitions": 1,
                            "replication_factor": 1,
                            "configs": [{"name": "retention.ms", "value": "604800000"}],
                        }
                    ],
                },
            ),
        ],
    }
)
