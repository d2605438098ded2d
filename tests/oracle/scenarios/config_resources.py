"""ListConfigResources: the names of resources that have settings."""

from __future__ import annotations

from typing import Any

from tests.oracle.script import Ask, Receive, Send, scenarios_of, topic

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32


def _listed(*types: int, **more: Any) -> Ask:
    """List the resources of this run; those of other runs are left out."""
    return Ask("ListConfigResources", {"resource_types": list(types)}, mine=True, **more)


def _set(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> Ask:
    return Ask(
        "IncrementalAlterConfigs",
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [{"name": key, "config_operation": operation, "value": value}],
                }
            ]
        },
        version=1,
        quiet=True,
    )


_INTERVAL = "interval.ms"
_SESSION = "consumer.session.timeout.ms"


def _removed(*names: str) -> list[Ask]:
    """Remove the subscriptions of client metrics, which would otherwise apply to every later
    client."""
    return [_set(_METRICS, name, _INTERVAL, None, 1) for name in names]


SCENARIOS = scenarios_of(
    {
        ("list-config-resources", "ListConfigResources"): [
            *topic(),
            _set(_METRICS, "@m", _INTERVAL, "1000"),
            _set(_METRICS, "@n", _INTERVAL, "2000"),
            _set(_GROUP, "@g", _SESSION, "46000"),
            *topic("@u"),
            _listed(),
            _listed(_METRICS),
            *_removed("@m", "@n"),
        ],
        ("list-config-resources-by-type", "ListConfigResources", "1"): [
            *topic(),
            _set(_METRICS, "@m", _INTERVAL, "1000"),
            _set(_GROUP, "@g", _SESSION, "46000"),
            *topic("@u"),
            *(_listed(kind) for kind in (_TOPIC, _METRICS, _GROUP)),
            Ask("ListConfigResources", {"resource_types": [_BROKER]}),
            Ask("ListConfigResources", {"resource_types": [_LOGGER]}),
            _listed(_GROUP, _METRICS, _TOPIC),
            _listed(_METRICS, _METRICS),
            *(_listed(kind) for kind in (0, 1, 3, 127, -1, -128)),
            _listed(_METRICS, 3),
            *_removed("@m"),
        ],
        ("list-config-resources-without-settings", "ListConfigResources"): [
            _set(_METRICS, "@m", _INTERVAL, "1000"),
            _set(_GROUP, "@g", _SESSION, "46000"),
            _set(_METRICS, "@m", _INTERVAL, None, 1),
            _set(_GROUP, "@g", _SESSION, None, 1),
            *topic("@u"),
            _listed(),
        ],
        ("list-config-resources-pipelined", "ListConfigResources"): [
            _set(_METRICS, "@m", _INTERVAL, "1000"),
            *topic(),
            Send(_listed()),
            Send(_listed(_METRICS)),
            Receive(),
            Receive(),
            *_removed("@m"),
        ],
    }
)
