"""Topics; the settings of topics, groups and brokers; quotas of clients; SCRAM credentials."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.oracle.group_steps import group
from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.configs import (
    DYNAMIC_BROKER_KEYS,
    TOPIC_KEYS,
    change_configs,
    describe_configs,
    replace_configs,
)
from tests.oracle.scenarios.identity import (
    alter_credentials,
    credential,
    describe_credentials,
    no_credential,
)
from tests.oracle.scenarios.quotas import alter_quotas, describe_quotas
from tests.oracle.script import Ask, Step, Wait, topic

_BROKER, _GROUP = 4, 32
#: Kafka refuses small segments; our broker accepts them.
_TOPIC_KEYS = [key for key in TOPIC_KEYS if key != "segment.bytes"]
#: Values of settings. Numbers that only Java parses ("1f") are left out, and so is NaN, because our
#: broker refuses them.
_VALUES = (
    *("", "0", "1", "-1", "-2", "true", "false", "TRUE", "abc", "1.5", "0.5", " 7 ", "1e3", "0x10"),
    *("9223372036854775807", "9223372036854775808", "2147483647", "2147483648", "\uff11", "-0"),
    *("delete", "compact", "compact,delete", "DELETE", "delete,", ",delete", "delete,delete"),
    *("gzip", "zstd", "lz4", "producer", "uncompressed", "CreateTime", "LogAppendTime", "none"),
    *("*", "0:1", "0:1,1:2", "all", "1_000", "1L", "00012", "\t3", "100", "1000", "1048576", "+5"),
)
_GROUP_KEYS = (
    *("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "share.isolation.level"),
    *("share.auto.offset.reset", "share.delivery.count.limit", "share.heartbeat.interval.ms"),
    *("share.partition.max.record.locks", "share.record.lock.duration.ms"),
    *("share.renew.acknowledge.enable", "share.session.timeout.ms", "streams.session.timeout.ms"),
    *("streams.heartbeat.interval.ms", "streams.num.standby.replicas"),
    "streams.initial.rebalance.delay.ms",
)
_GROUP_VALUES = (
    *("", "0", "1", "2", "3", "10", "11", "100", "2000", "4999", "5000", "14999", "15000", "15001"),
    *(
        "30000",
        "44999",
        "45000",
        "60000",
        "60001",
        "3600000",
        "2147483648",
        "-1",
        "1_000",
        " 7000 ",
    ),
    *("earliest", "latest", "EARLIEST", "by_duration:PT1H", "by_duration:", "by_duration:-PT1H"),
    *("read_committed", "read_uncommitted", "true", "false", "TRUE", "abc"),
)
#: The time after which Kafka's broker has applied a change.
_CHANGED = Wait(300)
_NAMES = ("@a", "@a", "@b", "@c.d", "@c_d", "@a b", "")


def topic_settings(random: Random) -> list[Step]:
    """Set, append, subtract and replace values of all kinds, for all settings of a topic."""
    steps: list[Step] = [*topic()]
    for _ in range(random.randint(10, 25)):
        key, value = random.choice(_TOPIC_KEYS), random.choice(_VALUES)
        match random.choice(["set", "set", "set", "set", "two", "append", "replace", "show"]):
            case "set":
                ask = change_configs((key, 0, value))
            case "two":
                others = [(random.choice(_TOPIC_KEYS), random.choice([0, 0, 1]), value)]
                ask = change_configs((key, 0, random.choice(_VALUES)), *others)
            case "append":
                lists = ["cleanup.policy", "leader.replication.throttled.replicas", key]
                ask = change_configs((random.choice(lists), random.choice([2, 3]), value))
            case "replace":
                ask = replace_configs({key: value}, checked_only=random.random() < 0.5)
            case _:
                steps.append(_CHANGED)
                ask = describe_configs([key, "cleanup.policy"])
        steps.append(any_version(random, ask))
    return [*steps, _CHANGED, describe_configs(_TOPIC_KEYS)]


def group_settings(random: Random) -> list[Step]:
    """Set values within and beyond the bounds, for the settings of a group."""
    steps: list[Step] = [*group()]
    for _ in range(random.randint(8, 20)):
        changes = [
            (random.choice(_GROUP_KEYS), random.choice([0, 0, 0, 1]), random.choice(_GROUP_VALUES))
            for _ in range(random.choice([1, 1, 2]))
        ]
        checked_only = random.random() < 0.2
        ask = change_configs(*changes, kind=_GROUP, name="@g", checked_only=checked_only)
        steps.append(any_version(random, ask))
    return [*steps, _CHANGED, describe_configs(_GROUP_KEYS, kind=_GROUP, name="@g")]


def broker_settings(random: Random) -> list[Step]:
    """Validate changes of a broker's settings; if they were applied, they would affect all
    scenarios."""
    steps: list[Step] = []
    for _ in range(random.randint(8, 20)):
        operation = random.choice([0, 0, 0, 1, 2, 3])
        change = (random.choice(DYNAMIC_BROKER_KEYS), operation, random.choice(_VALUES))
        name = random.choice(["", "1", "1", "2", "x"])
        ask = change_configs(change, kind=_BROKER, name=name, checked_only=True)
        steps.append(any_version(random, ask))
    return steps


def topics(random: Random) -> list[Step]:
    """Create, enlarge and delete topics with good and bad names, numbers and assignments."""
    steps: list[Step] = []
    for _ in range(random.randint(5, 14)):
        name = random.choice(_NAMES)
        match random.choice(["create", "create", "delete", "grow", "metadata", "pages", "configs"]):
            case "create":
                steps += [_create(random), _CHANGED]
            case "delete":
                topics = [{"name": name, "topic_id": bytes(16)}]
                body = {"topic_names": [name], "topics": topics, "timeout_ms": 10_000}
                steps += [any_version(random, Ask("DeleteTopics", body)), _CHANGED]
            case "grow":
                steps += [_grow(random, name), _CHANGED]
            case "metadata":
                steps.append(_metadata(random))
            case "pages":
                names = sorted(set(random.choices(_NAMES[:-1], k=3)))
                limit = random.choice([1, 2, 2000])
                body = {
                    "topics": [{"name": each} for each in names],
                    "response_partition_limit": limit,
                }
                steps.append(Ask("DescribeTopicPartitions", body))
            case _:
                ask = describe_configs(["cleanup.policy", "retention.ms"], name=name)
                steps.append(any_version(random, ask))
    return steps


def _create(random: Random) -> Ask:
    wanted: list[dict[str, Any]] = []
    for _ in range(random.choice([1, 1, 2])):
        made: dict[str, Any] = {
            "name": random.choice(_NAMES),
            "num_partitions": random.choice([-1, 0, 1, 2, 3, -2]),
            "replication_factor": random.choice([-1, 1, 1, 1, 2, 0]),
        }
        if random.random() < 0.3:
            key = random.choice(_TOPIC_KEYS)
            made["configs"] = [{"name": key, "value": random.choice([*_VALUES, None])}]
        if random.random() < 0.2:
            made["num_partitions"] = made["replication_factor"] = random.choice([-1, -1, 1])
            made["assignments"] = [
                {
                    "partition_index": random.randint(0, 2),
                    "broker_ids": random.choice([[1], [1], [2], [1, 1], []]),
                }
                for _ in range(random.randint(1, 2))
            ]
        wanted.append(made)
    body = {"timeout_ms": 10_000, "topics": wanted, "validate_only": random.random() < 0.2}
    defaults = any(-1 in (made["num_partitions"], made["replication_factor"]) for made in wanted)
    ask = Ask("CreateTopics", body, ignore=("topics.*.configs",))
    return any_version(random, ask, first=4 if defaults else 2)


def _grow(random: Random, name: str) -> Ask:
    wanted: dict[str, Any] = {
        "name": name,
        "count": random.choice([-1, 0, 1, 2, 3, 4]),
        "assignments": None,
    }
    if random.random() < 0.3:
        brokers = random.choices([[1], [2], [1, 1], []], k=random.randint(0, 2))
        wanted["assignments"] = [{"broker_ids": each} for each in brokers]
    body = {
        "topics": [wanted] * random.choice([1, 1, 1, 2]),
        "timeout_ms": 10_000,
        "validate_only": random.random() < 0.2,
    }
    return any_version(random, Ask("CreatePartitions", body))


def _metadata(random: Random) -> Ask:
    names = sorted(set(random.choices(_NAMES, k=2)))
    body = {"topics": [{"name": each} for each in names], "allow_auto_topic_creation": False}
    of_cluster = ("brokers", "cluster_id", "controller_id", "cluster_authorized_operations")
    return any_version(random, Ask("Metadata", body, ignore=of_cluster), first=4)


_QUOTA_KEYS = (
    *("producer_byte_rate", "producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    *("controller_mutation_rate", "connection_creation_rate", "rubbish"),
)
#: The names belong to only one run, so that the quotas apply to no other scenario.
_QUOTA_PARTS: tuple[tuple[str, str | None], ...] = (
    *(("user", "@u"), ("user", "@u"), ("user", "@v"), ("client-id", "@c"), ("client-id", "@d")),
    *(("ip", "192.0.2.7"), ("ip", "no host"), ("group", "@g"), ("user", "")),
)


def client_quotas(random: Random) -> list[Step]:
    """Set, remove and describe client quotas: valid and invalid ones, of one entity or of
    several."""
    steps: list[Step] = []
    for _ in range(random.randint(5, 14)):
        if random.random() < 0.6:
            entries = [_quota_entry(random) for _ in range(random.choice([1, 1, 1, 2]))]
            addressed = any(("ip", "192.0.2.7") in entity for entity, _ in entries)
            # If a request repeats an entity, Kafka makes the first change, and our broker makes
            # none.
            repeated = len({tuple(dict(entity).items()) for entity, _ in entries}) < len(entries)
            # All scenarios share the IP address, so its quotas are never really changed.
            only_check = addressed or repeated or random.random() < 0.2
            steps.append(any_version(random, alter_quotas(*entries, only_check=only_check)))
            continue
        steps.append(_CHANGED)
        parts = []
        for kind, name in random.sample(_QUOTA_PARTS, k=random.choice([1, 1, 2])):
            match = random.choice([0, 0, 0, 0, 1, 3])
            parts.append((kind, match, name if match != 1 else None))
        if any(name and name.startswith("@") and match == 0 for _, match, name in parts):
            strict = random.random() < 0.7
            steps.append(any_version(random, describe_quotas(*parts, strict=strict)))
    return [*steps, _CHANGED, describe_quotas(("user", 0, "@u"), strict=False)]


def _quota_entry(random: Random) -> tuple[list[tuple[str, str | None]], list[tuple[str, Any]]]:
    entity = random.sample(_QUOTA_PARTS, k=random.choice([1, 1, 1, 2, 2, 3]))
    if not any(name and name.startswith("@") for _, name in entity):
        entity = [*entity, ("user", "@u")]
    values = [
        (
            random.choice(_QUOTA_KEYS),
            random.choice([1.0, 0.5, 2.0, 1e6, 1.5, -1.0, 0.0, 100.0, None, None]),
        )
        for _ in range(random.randint(0, 3))
    ]
    return entity, values


def scram_credentials(random: Random) -> list[Step]:
    """Credentials of three users, set and removed, good and bad."""
    steps: list[Step] = []
    users = ["@u", "@u", "@v", "@w", ""]
    for _ in range(random.randint(5, 14)):
        mechanism = random.choice([1, 1, 2, 2, 0, 3])
        if random.random() < 0.6:
            upsertions = [
                credential(
                    random.choice(users),
                    random.choice([1, 2, mechanism]),
                    random.choice([4096, 4096, 8192, 16384, 4095, 16385, 0, -1]),
                )
                for _ in range(random.randint(0, 2))
            ]
            deletions = [
                no_credential(random.choice(users), random.choice([1, 2, mechanism]))
                for _ in range(random.choice([0, 0, 1, 2]))
            ]
            steps.append(alter_credentials(*upsertions, deletions=deletions))
        else:
            steps.append(_CHANGED)
            names = random.choices(["@u", "@v", "@w", "@absent"], k=random.randint(1, 3))
            steps.append(describe_credentials(*names))
    return [*steps, _CHANGED, describe_credentials("@u", "@v", "@w")]
