"""Metrics of clients: subscriptions, pushes and their limits.

Any change of a subscription lets Kafka forget the times of the clients' last requests, so these
scenarios are played alone. Kafka uses a plugin that receives the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracle.script import Ask, Close, Scenario, Step, Wait

import otlp_messages as otlp
from odradek_protocol.compression import Codec, compress

_METRICS = 16
_SET, _DELETE = 0, 1
_NEW = bytes(16)
_INSTANCES = [bytes([0x40 + number]) * 16 for number in range(8)]
_ALL = {"metrics": "*"}
_PUSHED = otlp.metrics_data(
    [otlp.gauge("org.apache.kafka.producer.record.queue.time.avg", otlp.point(1.5))]
)


def _alter(settings: Mapping[str, str | None], name: str = "@s") -> Ask:
    configs = [
        {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        for key, value in settings.items()
    ]
    resource = {"resource_type": _METRICS, "resource_name": name, "configs": configs}
    return Ask("IncrementalAlterConfigs", {"resources": [resource]}, version=1, quiet=True)


def _removed(name: str = "@s") -> Ask:
    return _alter(dict.fromkeys(("interval.ms", "metrics", "match")), name)


def _get(instance: Any = _NEW, **more: Any) -> Ask:
    return Ask("GetTelemetrySubscriptions", {"client_instance_id": instance}, **more)


def _seen(
    interval_ms: int, metric: str | None = "*", instance: Any = _INSTANCES[7], **more: Any
) -> Ask:
    """Wait until a client gets the subscription: the answer must have this interval and metric."""
    until: dict[str, Any] = {"push_interval_ms": interval_ms}
    if metric is not None:
        until["requested_metrics"] = [metric]
    return _get(instance, until=until, **more)


def _push(
    instance: Any,
    metrics: bytes = _PUSHED,
    *,
    subscription: Any = "$subscription",
    codec: int = 0,
    last: bool = False,
    **more: Any,
) -> Ask:
    body = {
        "client_instance_id": instance,
        "subscription_id": subscription,
        "terminating": last,
        "compression_type": codec,
        "metrics": metrics,
    }
    return Ask("PushTelemetry", body, **more)


def _subscribed(interval_ms: int, instance: bytes) -> list[Step]:
    """Subscribe to all metrics with an interval, and wait until this client gets it; saves
    `$subscription`."""
    return [
        _alter({"metrics": "*", "interval.ms": str(interval_ms)}),
        _seen(interval_ms, instance=instance, save={"subscription": "subscription_id"}),
    ]


def _of_a_client(instance: bytes, on: str, client_id: str | None, *versions: str) -> list[Step]:
    """Ask for the subscription of a client with some software name, on a separate connection."""
    named = {"client_software_name": "tool", "client_software_version": "2.5"}
    hello = [Ask("ApiVersions", named, on=on, version=3, quiet=True)] if versions else []
    return [*hello, _get(instance, on=on, client_id=client_id), Close(on)]


#: The client that waits for a subscription may also match other subscriptions, so these fields are
#: not compared.
_SEEN = ("requested_metrics", "subscription_id")
_MATCHES = (
    "client_id=orders-[0-9]+",
    "client_id=orders",
    "client_id=.*",
    "client_software_name=tool,client_software_version=2\\..*",
    "client_software_name=tool,client_id=nobody",
    "client_software_name=unknown",
    "client_source_address=127\\..*",
    "client_source_port=[0-9]+",
    "client_instance_id=[A-Z].*",
    " client_id = orders-7 ",
)

SCENARIOS = [
    Scenario(
        "telemetry-subscriptions",
        "GetTelemetrySubscriptions",
        [
            _get(save={"new": "client_instance_id"}, ignore=("subscription_id",)),
            _get("$new"),
            _get(_INSTANCES[0]),
            _get(_INSTANCES[0]),
            _alter({"metrics": "org.apache.kafka.consumer.", "interval.ms": "2000"}),
            _seen(2000, "org.apache.kafka.consumer.", _INSTANCES[0]),
            _get(_INSTANCES[0]),
            _alter({"metrics": "*,org.", "interval.ms": "3000"}, "@other"),
            _seen(2000, instance=_INSTANCES[0]),
            _get(_INSTANCES[0]),
            _get(_INSTANCES[1]),
            _removed(),
            _seen(3000, instance=_INSTANCES[0]),
            _alter({"metrics": None, "interval.ms": "4000"}, "@other"),
            _seen(4000, None, _INSTANCES[1]),
            _removed("@other"),
            _seen(300_000, None, _INSTANCES[1]),
        ],
        alone=True,
    ),
    Scenario(
        "telemetry-subscriptions-matched",
        "GetTelemetrySubscriptions",
        [
            *(
                step
                for number, match in enumerate(_MATCHES)
                for step in (
                    _alter({"metrics": "*", "match": match}),
                    # Changes are applied in order. Every client matches this subscription, whose
                    # interval shows that the previous subscription is in force.
                    _alter({"interval.ms": str(2000 + number)}, "@seen"),
                    _seen(2000 + number, None, on="seen", client_id="seen", ignore=_SEEN),
                    *_of_a_client(_INSTANCES[2], "b", "orders-7"),
                    *_of_a_client(_INSTANCES[3], "c", "orders-7", "named"),
                    *_of_a_client(_INSTANCES[4], "d", None),
                )
            ),
            _removed(),
            _removed("@seen"),
        ],
        alone=True,
    ),
    Scenario(
        "telemetry-asks-again",
        "GetTelemetrySubscriptions",
        [
            *_subscribed(100, _INSTANCES[0]),
            Wait(200),
            _get(_INSTANCES[0]),
            _alter({"interval.ms": "3600000"}),
            _seen(300_000, instance=_INSTANCES[0]),
            _get(_INSTANCES[0]),
            _push(_INSTANCES[0], subscription=1),
            _get(_INSTANCES[0]),
            _get(_INSTANCES[0]),
            _removed(),
        ],
        alone=True,
    ),
    Scenario(
        "telemetry-pushes",
        "PushTelemetry",
        [
            *_subscribed(300_000, _INSTANCES[0]),
            _push(_INSTANCES[0]),
            _push(_INSTANCES[0]),
            _get(_INSTANCES[0]),
            _push(_INSTANCES[0], last=True),
            _push(_INSTANCES[0]),
            _push(_INSTANCES[0]),
            _push(_INSTANCES[0], last=True),
            _push(_INSTANCES[0], last=True),
            _push(_INSTANCES[0], last=True),
            _removed(),
        ],
        alone=True,
    ),
    Scenario(
        "telemetry-pushes-checked",
        "PushTelemetry",
        [
            *_subscribed(100, _INSTANCES[0]),
            *(
                step
                for push in (
                    _push(_INSTANCES[0], subscription=1, codec=9),
                    _push(_INSTANCES[0], b"x" * 1_048_577, codec=9),
                    _push(_INSTANCES[0], b"x" * 1_048_577),
                    _push(_INSTANCES[0], b"x" * 1_048_577, codec=1),
                    _push(_INSTANCES[0], codec=-1),
                    _push(_INSTANCES[0], codec=5),
                    _push(_INSTANCES[0], b""),
                    _push(_INSTANCES[0], b"", codec=1),
                    *(
                        _push(_INSTANCES[0], compress(codec, _PUSHED), codec=codec)
                        for codec in Codec
                    ),
                    *(_push(_INSTANCES[0], b"garbage", codec=codec) for codec in Codec),
                    _push(_INSTANCES[0], _PUSHED[:-3]),
                    _push(_NEW),
                    _push(bytes(15) + b"\1"),
                    _push(_INSTANCES[0], last=True),
                    _push(_INSTANCES[0]),
                )
                for step in (Wait(200), push)
            ),
            _removed(),
        ],
        alone=True,
    ),
    Scenario(
        "telemetry-pushes-without-asking",
        "PushTelemetry",
        [
            *_subscribed(300_000, _INSTANCES[0]),
            _push(_INSTANCES[1]),
            _push(_INSTANCES[1]),
            Close("a"),
            Wait(300),
            # The broker no longer knows the client, but the client's subscription is still the
            # same.
            _push(_INSTANCES[0], on="b"),
            _push(_INSTANCES[0], on="b"),
            Close("b"),
            _removed(),
        ],
        alone=True,
    ),
]
