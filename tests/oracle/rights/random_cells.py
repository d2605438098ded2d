"""Users with random ACLs, and their random requests, for a comparison of the authorizers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tests.oracle.differences import differing
from tests.oracle.group_steps import described, heartbeat, join_body
from tests.oracle.play import Answers
from tests.oracle.rights.cases.words import new
from tests.oracle.rights.cells import PRINCIPAL, USER, Case, Cell, Right, acl, created
from tests.oracle.rights.secured_broker import play_on_ours
from tests.oracle.rights.secured_kafka import SALTS, SecuredKafka
from tests.oracle.rights.turns import play
from tests.oracle.scenarios.configs import change_configs, describe_configs
from tests.oracle.scenarios.fetch import delete_records, list_offset, offset_for_epoch
from tests.oracle.scenarios.groups_consumer import consumer_heartbeat
from tests.oracle.scenarios.groups_share import share_heartbeat
from tests.oracle.scenarios.offsets import (
    commit_offsets,
    delete_groups,
    delete_offsets,
    fetch_offsets,
)
from tests.oracle.scenarios.transactions import (
    add_offsets,
    add_partitions,
    commit_in_transaction,
    end_transaction,
)
from tests.oracle.script import Ask, Batch, Scenario, Step, Wait, fetch_body, produce_body, topic

from odradek_protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType, PatternType

#: The answers by (name of the cell, version); for a broken cell, the error as text.
Played = Mapping[tuple[str, int], Answers | str]

_O, _T = AclOperation, AclResourceType
_NAMES: Mapping[AclResourceType, Sequence[str]] = {
    _T.TOPIC: ("@t", "@t", "@ta", "@u", "*"),
    _T.GROUP: ("@g", "@ga", "@h", "*"),
    _T.TRANSACTIONAL_ID: ("@id", "@i"),
    _T.CLUSTER: (CLUSTER_NAME,),
}
_OPERATIONS: Mapping[AclResourceType, Sequence[AclOperation]] = {
    _T.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS),
        *(_O.ALTER_CONFIGS, _O.ALL),
    ),
    _T.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.ALL),
    _T.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.ALL),
    _T.CLUSTER: (
        *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS),
        *(_O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALL),
    ),
}
_OF_BROKERS = ("brokers", "cluster_id", "controller_id")
_OF_COORDINATORS = (
    *("host", "port", "error_message", "coordinators.*.host", "coordinators.*.port"),
    "coordinators.*.error_message",
)
#: None of these requests changes anything, so a user's later answers do not depend on them.
_REQUESTS: Sequence[Callable[[Random, str], Ask]] = (
    lambda random, name: Ask(
        "Metadata",
        {
            "topics": [{"name": "@t"}, {"name": "@ta"}, {"name": "@absent"}],
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
            "allow_auto_topic_creation": False,
        },
        version=random.choice([8, 10]),
        ignore=_OF_BROKERS,
    ),
    lambda random, name: Ask(
        "DescribeTopicPartitions",
        {"topics": [{"name": "@t"}, {"name": "@ta"}], "response_partition_limit": 100},
    ),
    lambda random, name: Ask(
        "DescribeCluster",
        {"include_cluster_authorized_operations": True},
        version=1,
        ignore=_OF_BROKERS,
    ),
    lambda random, name: Ask("Produce", produce_body(Batch(), name), version=11),
    lambda random, name: Ask("Fetch", fetch_body(name), version=random.choice([11, 12])),
    lambda random, name: list_offset(-2, name=name),
    lambda random, name: offset_for_epoch(0),
    lambda random, name: delete_records(0),
    lambda random, name: describe_configs(["retention.ms"], name=name),
    lambda random, name: change_configs(("retention.ms", 0, "-1"), name=name, checked_only=True),
    lambda random, name: Ask(
        "CreateTopics",
        {**new("@tb", name), "validate_only": True},
        version=7,
        ignore=("topics.*.configs",),
    ),
    lambda random, name: Ask(
        "CreatePartitions",
        {
            "timeout_ms": 10_000,
            "topics": [{"name": name, "count": 2, "assignments": None}],
            "validate_only": True,
        },
    ),
    lambda random, name: Ask(
        "DeleteTopics",
        {
            "timeout_ms": 10_000,
            "topic_names": ["@absent"],
            "topics": [{"name": "@absent"}],
        },
    ),
    lambda random, name: Ask(
        "DescribeProducers", {"topics": [{"name": name, "partition_indexes": [0]}]}
    ),
    lambda random, name: commit_offsets((name, [(0, 1, "")])),
    lambda random, name: fetch_offsets(((name, (0,)),)),
    lambda random, name: fetch_offsets(None),
    lambda random, name: delete_offsets((name, (0,)), group_id="@none"),
    lambda random, name: described(version=None),
    lambda random, name: delete_groups("@ga"),
    lambda random, name: heartbeat("m", 1),
    lambda random, name: Ask("JoinGroup", {**join_body(), "session_timeout_ms": 1}),
    lambda random, name: consumer_heartbeat("m", 1),
    lambda random, name: share_heartbeat("m", 1),
    lambda random, name: Ask("ListGroups", {}, version=4, mine=True),
    lambda random, name: Ask(
        "FindCoordinator",
        {"key": "@g", "key_type": 0, "coordinator_keys": ["@g", "@h"]},
        ignore=_OF_COORDINATORS,
    ),
    lambda random, name: Ask(
        "FindCoordinator",
        {"key": "@id", "key_type": 1, "coordinator_keys": ["@id"]},
        ignore=_OF_COORDINATORS,
    ),
    lambda random, name: Ask(
        "InitProducerId",
        {"transactional_id": None, "transaction_timeout_ms": 60_000},
        version=4,
        ignore=("producer_id",),
    ),
    lambda random, name: Ask("DescribeTransactions", {"transactional_ids": ["@id"]}),
    lambda random, name: add_partitions(0, 4, version=3),
    lambda random, name: add_offsets(0, 4, version=3),
    lambda random, name: commit_in_transaction(1, 0, 4, version=3),
    lambda random, name: end_transaction(True, 0, 4, version=3),
    lambda random, name: Ask(
        "DescribeClientQuotas",
        {"components": [{"entity_type": "user", "match_type": 0, "match": "@u"}], "strict": True},
    ),
    lambda random, name: Ask("AlterClientQuotas", {"entries": [], "validate_only": True}),
    lambda random, name: Ask("CreateAcls", {"creations": []}),
)


def compare_seeds(folder: Path, seeds: Sequence[int]) -> list[str]:
    """Play the random cells of the seeds at an Apache Kafka and at ours; returns a text for each
    cell with different answers."""
    # The two kinds of cells are played separately: the filters of administrators would match the
    # ACLs that other users have for all topics.
    turns = [[make(seed) for seed in seeds] for make in (random_administration, random_cell)]
    with SecuredKafka(folder / "kafka") as kafka:
        theirs = _merged(asyncio.run(play(kafka.connect, cells, SALTS[0])) for cells in turns)
    ours = _merged(play_on_ours(folder / str(number), cells) for number, cells in enumerate(turns))
    found = []
    for cell in [cell for cells in turns for cell in cells]:
        [version] = cell.scenario.runs()
        expected, own = theirs[cell.name, version], ours[cell.name, version]
        if isinstance(expected, str) or isinstance(own, str):
            found.append(f"{cell.name} broke: {expected if isinstance(expected, str) else own}")
            continue
        lines = [
            f"  {path}: Kafka {was!r}, ours {now!r}"
            for path, was, now in differing(_unordered(expected), _unordered(own))
        ]
        if lines:
            asked = [each.api for each in cell.scenario.steps if isinstance(each, Ask)]
            rights = [f"  {right}" for right in cell.case.rights]
            found.append("\n".join([f"{cell.name}: {asked}", *rights, *lines]))
    return found


def _merged(turns: Iterable[Played]) -> Played:
    return {key: answers for turn in turns for key, answers in turn.items()}


def _unordered(value: Any) -> Any:
    """The value with ACLs and their resources sorted, because Kafka keeps them in sets."""
    if isinstance(value, list):
        return [_unordered(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: sorted(map(_unordered, each), key=repr) if key in _SETS and each else _unordered(each)
        for key, each in value.items()
    }


def random_cell(seed: int) -> Cell:
    """Return a user with some ACLs and requests; the same seed always gives the same ACLs and
    requests."""
    random = Random(f"rights {seed}")
    rights = [_right(random) for _ in range(random.randint(1, 6))]
    requests = [
        replace(random.choice(_REQUESTS)(random, random.choice(["@t", "@ta"])), on=USER)
        for _ in range(random.randint(5, 12))
    ]
    steps: list[Step] = [*topic(), *topic("@ta"), *created([acl(right) for right in rights])]
    scenario = Scenario(f"random-{seed}", "ApiVersions", [*steps, *requests], "4")
    return Cell(Case(f"random-{seed}", "ApiVersions", {}, rights), "user", scenario)


def _right(random: Random) -> Right:
    kind = random.choice([*[_T.TOPIC] * 5, _T.GROUP, _T.GROUP, _T.CLUSTER, _T.TRANSACTIONAL_ID])
    name = random.choice(_NAMES[kind])
    literal = kind is _T.CLUSTER or name == "*" or random.random() < 0.6
    return Right(
        kind,
        random.choice(_OPERATIONS[kind]),
        name,
        PatternType.LITERAL if literal else PatternType.PREFIXED,
        deny=random.random() < 0.25,
        host=random.choice(["*", "*", "*", "127.0.0.1", "192.0.2.1"]),
        principal=random.choice([PRINCIPAL, PRINCIPAL, PRINCIPAL, "User:other"]),
    )


def random_administration(seed: int) -> Cell:
    """ACLs, good and bad, that a super user creates, describes and deletes by filters."""
    random = Random(f"acls {seed}")
    steps: list[Step] = []
    for _ in range(random.randint(4, 10)):
        match random.choice(["create", "create", "describe", "delete"]):
            case "create":
                creations = [_entry(random) for _ in range(random.choice([1, 1, 2, 3]))]
                steps.append(Ask("CreateAcls", {"creations": creations}, on=USER))
            case "describe":
                steps += [_KNOWN, Ask("DescribeAcls", _filter(random), on=USER)]
            case _:
                filters = [_filter(random) for _ in range(random.choice([1, 1, 2]))]
                steps += [_KNOWN, Ask("DeleteAcls", {"filters": filters}, on=USER)]
    steps += [_KNOWN, *(Ask("DescribeAcls", _all_acls(name), on=USER) for name in _RESOURCES[1:])]
    scenario = Scenario(f"acls-{seed}", "CreateAcls", steps, "3")
    return Cell(Case(f"acls-{seed}", "CreateAcls", {}), "super", scenario)


_SETS = ("resources", "acls", "matching_acls")
#: The time until the broker applies a change.
_KNOWN = Wait(200)
_RESOURCES = ("@a", "@a", "@ab", "@b")
_USERS = ("User:p", "User:p", "User:q")
_HOSTS = ("*", "*", "192.0.2.1")
#: Field -> values that no ACL may have. ANY and MATCH are left out, because Kafka answers them with
#: one error for the whole request.
_WRONG: Mapping[str, Sequence[Any]] = {
    "resource_type": (0, 77),
    "resource_name": ("",),
    "resource_pattern_type": (0, 77),
    "principal": ("", "p", "User:", ":p", "Group:p"),
    "host": ("", "localhost"),
    "operation": (0, 77),
    "permission_type": (0, 77),
}


def _entry(random: Random) -> dict[str, Any]:
    """An element of CreateAcls, sometimes with an invalid field."""
    entry = {
        "resource_type": random.choice([_T.TOPIC, _T.TOPIC, _T.GROUP, _T.TRANSACTIONAL_ID]),
        "resource_name": random.choice(_RESOURCES),
        "resource_pattern_type": random.choice([3, 3, 4]),
        "principal": random.choice(_USERS),
        "host": random.choice(_HOSTS),
        "operation": random.randint(2, 15),
        "permission_type": random.choice([3, 3, 2]),
    }
    if random.random() < 0.15:
        field = random.choice(list(_WRONG))
        entry[field] = random.choice(_WRONG[field])
    return entry


def _all_acls(name: str) -> dict[str, Any]:
    """A filter for all ACLs of a resource of this cell."""
    numbers = dict.fromkeys(
        ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1
    )
    return {
        **numbers,
        "resource_name_filter": name,
        "principal_filter": None,
        "host_filter": None,
    }


def _filter(random: Random) -> dict[str, Any]:
    """A filter for ACLs of this cell; sometimes the filter is invalid."""
    given = {
        "resource_type_filter": random.choice([1, 1, _T.TOPIC, _T.GROUP]),
        "resource_name_filter": random.choice(_RESOURCES),
        "pattern_type_filter": random.choice([1, 1, 2, 3, 4]),
        "principal_filter": random.choice([None, None, *_USERS]),
        "host_filter": random.choice([None, None, *_HOSTS]),
        "operation": random.choice([1, 1, 1, *range(2, 13)]),
        "permission_type": random.choice([1, 1, 2, 3]),
    }
    if random.random() < 0.1:
        field = random.choice(["resource_type_filter", "pattern_type_filter", "operation"])
        given[field] = random.choice([0, 77])
    return given
