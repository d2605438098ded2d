"""Client quotas: set, removed, described, and their effect on produce, fetch and topics.

Each run has its own names, because all scenarios share the broker. Default quotas apply to all
clients: they are set in only one version, to high values, and while no other scenario is played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.script import (
    Ask,
    Batch,
    Scenario,
    Step,
    Wait,
    fetch_body,
    produce_body,
    produced,
    scenarios_of,
    topic,
)

_EXACT, _DEFAULT, _SPECIFIED = range(3)
_ADDRESS = "192.0.2.7"

Entity = Sequence[tuple[str, str | None]]
#: Quota -> value, or None to remove the quota.
Values = Mapping[str, float | None] | Sequence[tuple[str, float | None]]


def _entity(pairs: Entity) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in pairs]


def _entry(entity: Entity, values: Values) -> dict[str, Any]:
    pairs = values.items() if isinstance(values, Mapping) else values
    return {
        "entity": _entity(entity),
        "ops": [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in pairs],
    }


def alter_quotas(*entries: tuple[Entity, Values], only_check: bool = False, **more: Any) -> Ask:
    body = {"entries": [_entry(*each) for each in entries], "validate_only": only_check}
    return Ask("AlterClientQuotas", body, **more)


def _one(entity: Entity, values: Values) -> Ask:
    return alter_quotas((entity, values))


def describe_quotas(*parts: tuple[str, int, str | None], strict: bool = True, **more: Any) -> Ask:
    components = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in parts]
    return Ask("DescribeClientQuotas", {"components": components, "strict": strict}, **more)


def _seen(value: float, *parts: tuple[str, int, str | None], **more: Any) -> Ask:
    """Wait until the first value of the first entity is `value`."""
    return describe_quotas(*parts, until={"entries.0.values.0.value": value}, **more)


_USER = [("user", "@u")]
_CLIENT = [("client-id", "@c")]
_BOTH = [("user", "@u"), ("client-id", "@c")]
_EXACT_USER = ("user", _EXACT, "@u")
_EXACT_CLIENT = ("client-id", _EXACT, "@c")


def _after_all() -> list[Step]:
    """Describe the quotas of the user @u after all changes: changes take effect in order, a moment
    later."""
    return [
        alter_quotas(
            ([("client-id", "@last")], {"request_percentage": 1.0}), version=1, quiet=True
        ),
        describe_quotas(
            ("client-id", _EXACT, "@last"),
            version=1,
            quiet=True,
            until={"entries.0.values.0.value": 1.0},
        ),
        describe_quotas(_EXACT_USER),
    ]


def _quota(values: Values) -> list[Step]:
    """Preparing steps: set quotas of the client id @c, and wait until they are in force."""
    first = min(dict(values).items())
    return [
        alter_quotas((_CLIENT, values), version=1, quiet=True),
        describe_quotas(
            _EXACT_CLIENT,
            version=1,
            quiet=True,
            until={"entries.0.values.0.key": first[0], "entries.0.values.0.value": first[1]},
        ),
        # Kafka enforces a quota a moment after it describes it.
        Wait(1000),
    ]


def _created(name: str, partitions: int) -> Ask:
    return Ask(
        "CreateTopics",
        {
            "timeout_ms": 10_000,
            "topics": [{"name": name, "num_partitions": partitions, "replication_factor": 1}],
        },
        client_id="@c",
        ignore=("topics.*.configs",),
        on=name,
    )


SCENARIOS = [
    *scenarios_of(
        {
            ("client-quotas", "AlterClientQuotas"): [
                _one(_USER, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}),
                _seen(2000.0, _EXACT_USER),
                _one(_USER, {"consumer_byte_rate": 2000.0}),
                _one(_USER, {"producer_byte_rate": None, "consumer_byte_rate": 3000.0}),
                _seen(3000.0, _EXACT_USER),
                _one(_USER, {"producer_byte_rate": None}),
                _one(_USER, {"no_such_key": None}),
                _one(_USER, {}),
                alter_quotas(
                    (_CLIENT, {"request_percentage": 12.5, "controller_mutation_rate": 0.5}),
                    (_BOTH, {"request_percentage": 200.25}),
                ),
                _seen(0.5, _EXACT_CLIENT),
                _seen(200.25, _EXACT_USER, _EXACT_CLIENT),
                _one([("client-id", "@c"), ("user", "@u")], {"request_percentage": 7.0}),
                _seen(7.0, _EXACT_USER, _EXACT_CLIENT),
                alter_quotas((_USER, {"consumer_byte_rate": 1.0}), only_check=True),
                alter_quotas((_USER, {"consumer_byte_rate": 0.0}), only_check=True),
                *_after_all(),
            ],
            ("client-quota-entities", "AlterClientQuotas"): [
                _one([], {"producer_byte_rate": 1.0}),
                _one([("group", "@g")], {"producer_byte_rate": 1.0}),
                _one([("", "@g")], {"producer_byte_rate": 1.0}),
                _one([("user", "")], {"producer_byte_rate": 1.0}),
                _one([("client-id", "")], {"producer_byte_rate": 1.0}),
                _one([("ip", "")], {"connection_creation_rate": 1.0}),
                _one([("user", "@u"), ("user", "@v")], {"producer_byte_rate": 1.0}),
                _one([("user", "@u"), ("ip", _ADDRESS)], {"producer_byte_rate": 1.0}),
                _one([("client-id", "@c"), ("ip", _ADDRESS)], {"connection_creation_rate": 1.0}),
                _one([("user", "@u"), ("group", "@g")], {"producer_byte_rate": 1.0}),
                _one([("ip", "no host")], {"connection_creation_rate": 1.0}),
                alter_quotas(
                    ([("ip", _ADDRESS)], {"connection_creation_rate": 1.0}), only_check=True
                ),
                alter_quotas(([("ip", "::1")], {"connection_creation_rate": 1.0}), only_check=True),
                alter_quotas(([("ip", None)], {"connection_creation_rate": 1.0}), only_check=True),
                alter_quotas(([("user", None)], {"producer_byte_rate": 1.0}), only_check=True),
                alter_quotas(
                    ([("user", None), ("client-id", "@c")], {"producer_byte_rate": 1.0}),
                    ([("user", "@u"), ("client-id", None)], {"producer_byte_rate": 1.0}),
                    ([("user", None), ("client-id", None)], {"producer_byte_rate": 1.0}),
                    only_check=True,
                ),
                alter_quotas(
                    (_USER, {"producer_byte_rate": 1.0}), (_USER, {"consumer_byte_rate": 1.0})
                ),
                alter_quotas(
                    (_USER, {"producer_byte_rate": 3.0}), ([("user", "@v")], {"rubbish": 1.0})
                ),
                *_after_all(),
            ],
            ("client-quota-of-a-repeated-entity", "AlterClientQuotas"): [
                alter_quotas(
                    (_USER, {"producer_byte_rate": 1.0}), (_USER, {"consumer_byte_rate": 1.0})
                ),
                *_after_all(),
            ],
            ("client-quota-values", "AlterClientQuotas"): [
                *(
                    alter_quotas((_USER, {key: value}), only_check=True)
                    for key, value in [
                        ("producer_byte_rate", 0.0),
                        ("producer_byte_rate", -1.0),
                        ("producer_byte_rate", 1.5),
                        ("producer_byte_rate", 1.0000001),
                        ("producer_byte_rate", 0.9999999),
                        ("producer_byte_rate", 1e19),
                        ("producer_byte_rate", float("inf")),
                        ("producer_byte_rate", float("-inf")),
                        ("producer_byte_rate", float("nan")),
                        ("request_percentage", float("inf")),
                        ("request_percentage", float("nan")),
                        ("controller_mutation_rate", float("nan")),
                        ("consumer_byte_rate", 0.5),
                        ("consumer_byte_rate", 9e18),
                        ("request_percentage", 0.0),
                        ("request_percentage", 0.01),
                        ("request_percentage", 1e9),
                        ("controller_mutation_rate", -0.1),
                        ("controller_mutation_rate", 1e300),
                        ("connection_creation_rate", 1.0),
                        ("rubbish", 1.0),
                        ("", 1.0),
                    ]
                ),
                *(
                    alter_quotas(([("ip", _ADDRESS)], {key: value}), only_check=True)
                    for key, value in [
                        ("connection_creation_rate", 0.0),
                        ("connection_creation_rate", 0.5),
                        ("connection_creation_rate", 2147483647.0),
                        ("connection_creation_rate", 2147483648.0),
                        ("connection_creation_rate", float("nan")),
                        ("producer_byte_rate", 1.0),
                    ]
                ),
                _one(_USER, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
                _one(_USER, [("producer_byte_rate", 5.0), ("rubbish", 2.0)]),
                *_after_all(),
            ],
        }
    ),
    Scenario(
        "client-quota-defaults",
        "AlterClientQuotas",
        [
            alter_quotas(
                ([("user", None)], {"producer_byte_rate": 1e15}),
                ([("client-id", None)], {"producer_byte_rate": 2e15}),
                ([("user", None), ("client-id", None)], {"producer_byte_rate": 3e15}),
                ([("ip", None)], {"connection_creation_rate": 1e9}),
            ),
            _seen(1e15, ("user", _DEFAULT, None)),
            _seen(2e15, ("client-id", _DEFAULT, None)),
            _seen(3e15, ("user", _DEFAULT, None), ("client-id", _DEFAULT, None)),
            _seen(1e9, ("ip", _DEFAULT, None)),
            describe_quotas(("ip", _SPECIFIED, None)),
            alter_quotas(
                ([("user", None)], {"producer_byte_rate": None}),
                ([("client-id", None)], {"producer_byte_rate": None}),
                ([("user", None), ("client-id", None)], {"producer_byte_rate": None}),
                ([("ip", None)], {"connection_creation_rate": None}),
            ),
        ],
        versions="1",
        # While this scenario is played, its default quota for all users would override the quotas
        # of other scenarios.
        alone=True,
    ),
    *scenarios_of(
        {
            ("describe-client-quotas", "DescribeClientQuotas"): [
                describe_quotas(_EXACT_USER),
                alter_quotas(
                    (_USER, {"producer_byte_rate": 1.0}),
                    (_BOTH, {"producer_byte_rate": 2.0}),
                    ([("user", "@u"), ("client-id", "@d")], {"producer_byte_rate": 3.0}),
                    ([("user", "@u"), ("client-id", None)], {"producer_byte_rate": 4.0}),
                    (_CLIENT, {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0}),
                    version=1,
                    quiet=True,
                ),
                _seen(6.0, _EXACT_CLIENT),
                describe_quotas(_EXACT_USER),
                describe_quotas(_EXACT_USER, strict=False),
                describe_quotas(_EXACT_CLIENT, strict=False),
                describe_quotas(_EXACT_USER, _EXACT_CLIENT),
                describe_quotas(_EXACT_CLIENT, _EXACT_USER, strict=False),
                describe_quotas(_EXACT_USER, ("client-id", _DEFAULT, None)),
                describe_quotas(_EXACT_USER, ("client-id", _SPECIFIED, None)),
                describe_quotas(_EXACT_USER, ("client-id", _EXACT, "@nobody")),
                describe_quotas(("user", _DEFAULT, None), _EXACT_CLIENT),
                describe_quotas(("ip", _EXACT, "192.0.2.9")),
            ],
            ("describe-client-quota-filters", "DescribeClientQuotas"): [
                describe_quotas(("", _EXACT, "@u")),
                describe_quotas(("group", _EXACT, "@u")),
                describe_quotas(("group", 7, "@u")),
                describe_quotas(_EXACT_USER, _EXACT_USER),
                describe_quotas(_EXACT_USER, ("user", _SPECIFIED, None)),
                describe_quotas(("user", _EXACT, None)),
                describe_quotas(("user", _EXACT, "")),
                describe_quotas(("user", _DEFAULT, "@u")),
                describe_quotas(("user", _SPECIFIED, "@u")),
                describe_quotas(("user", 3, None)),
                describe_quotas(("user", -1, "@u")),
                describe_quotas(("ip", _EXACT, _ADDRESS), _EXACT_USER),
                describe_quotas(("client-id", _SPECIFIED, None), ("ip", _DEFAULT, None)),
            ],
            ("quota-of-a-producer", "Produce", "3-13"): [
                *topic(),
                *_quota({"producer_byte_rate": 100.0}),
                Ask("Produce", produce_body(Batch(["x" * 1500])), client_id="@c"),
            ],
            ("quota-of-a-consumer", "Fetch", "4-17"): [
                *topic(),
                produced(Batch(["x" * 3000])),
                *_quota({"consumer_byte_rate": 250.0}),
                Ask("Fetch", fetch_body(), client_id="@c"),
                Ask("Fetch", fetch_body(offset=1), client_id="@c", on="b"),
            ],
            ("quota-of-topics", "CreateTopics"): [
                *_quota({"controller_mutation_rate": 1.0}),
                _created("@most", 21),
                _created("@more", 1),
            ],
            ("quota-of-partitions", "CreatePartitions"): [
                *topic(),
                *_quota({"controller_mutation_rate": 1.0}),
                *(
                    Ask(
                        "CreatePartitions",
                        {
                            "timeout_ms": 10_000,
                            "topics": [{"name": "@t", "count": count, "assignments": None}],
                        },
                        client_id="@c",
                        on=f"c{count}",
                    )
                    for count in (22, 23)
                ),
            ],
            ("quota-of-deletions", "DeleteTopics"): [
                *topic("@t", partitions=21),
                *topic("@u"),
                *_quota({"controller_mutation_rate": 1.0}),
                *(
                    Ask(
                        "DeleteTopics",
                        {"timeout_ms": 10_000, "topic_names": [name], "topics": [{"name": name}]},
                        client_id="@c",
                        on=name,
                    )
                    for name in ("@t", "@u")
                ),
            ],
        }
    ),
]
