"""Rights by ACLs (rules A-60 to A-66, A-69), and the lines of the audit log."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from at_once import at_once
from broker_in_loop import RunningBroker, StartBroker
from large_requests import CountedBroker
from odradek_broker.config.broker import BrokerConfigError, parse_config
from odradek_broker.request import RequestContext
from odradek_broker.security.acls import Acl, AclIndex
from odradek_broker.security.authorizer import (
    CLUSTER,
    Operation,
    Resource,
    ResourceType,
    group,
    topic,
)
from odradek_broker.security.standard_authorizer import AuditLog, StandardAuthorizer
from odradek_protocol import frames
from odradek_protocol.acls import AclPermission, PatternType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from steps import steps_of

O, R = Operation, ResourceType
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
CLASS = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class World:
    """An authorizer whose clock and ACLs the test controls."""

    def __init__(self, *super_users: str, **more: Any) -> None:
        self.acls = AclIndex()
        self.now_ms = 0.0
        self.logs_allowed = False
        self.audit = AuditLog(lambda: self.now_ms, lambda: self.logs_allowed)
        self.authorizer = StandardAuthorizer(self.acls, super_users, self.audit, **more)

    def add(self, *acls: Acl) -> None:
        for acl in acls:
            self.acls.add(bytes([len(self.acls)]) * 16, acl)

    def may(
        self, operation: Operation, resource: Resource, user: str = "alice", host: str = "10.0.0.1"
    ) -> bool:
        return self.authorizer.allows(context(user, host), operation, resource)


def context(user: str = "alice", host: str = "10.0.0.1") -> RequestContext:
    return RequestContext(0, "c", host, 1, user=user, api_name="Produce")


def acl(
    operation: Operation = O.READ,
    name: str = "orders",
    pattern: PatternType = LITERAL,
    *,
    kind: ResourceType = R.TOPIC,
    principal: str = "User:alice",
    host: str = "*",
    deny: bool = False,
) -> Acl:
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return Acl(kind, name, pattern, principal, host, operation, permission)


# --- settings, super users ---


def test_a60_an_authorizer_class_other_than_kafkas_standard_is_refused() -> None:
    with pytest.raises(BrokerConfigError, match=r"StandardAuthorizer.*classes of Java"):
        parse_config({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"})
    with pytest.raises(BrokerConfigError, match="User:alice;User:bob"):
        parse_config({"super.users": "alice"})


def test_a60_authorizer_settings_that_lock_out_everybody_are_a_warning() -> None:
    def warnings(**given: str) -> list[str]:
        _, notices = parse_config({key.replace("_", "."): value for key, value in given.items()})
        return [notice.text for notice in notices if notice.level == "warning"]

    (nobody,) = warnings(authorizer_class_name=CLASS)
    assert "super.users is empty" in nobody
    assert not warnings(authorizer_class_name=CLASS, super_users="User:root")
    assert not warnings(authorizer_class_name=CLASS, allow_everyone_if_no_acl_found="true")
    alone = warnings(super_users="User:root", allow_everyone_if_no_acl_found="true")
    assert ["no effect without authorizer.class.name" in text for text in alone] == [True, True]


async def test_a60_a_broker_uses_the_configured_authorizer_and_super_users(
    start_broker: StartBroker,
) -> None:
    broker: RunningBroker = await start_broker(
        authorizer_class_name=CLASS, super_users="User:root; User:ANONYMOUS"
    )
    authorizer = broker.node.authorizer
    assert authorizer.allows(context("root"), O.ALTER, CLUSTER)
    assert authorizer.allows(context("ANONYMOUS"), O.ALTER, CLUSTER)
    assert not authorizer.allows(context("alice"), O.DESCRIBE, CLUSTER)


def test_a60_a_deny_acl_does_not_apply_to_a_super_user() -> None:
    world = World("User:alice")
    world.add(acl(O.ALL, "*", principal="User:*", deny=True))
    assert world.may(O.WRITE, topic("orders"))
    assert not world.may(O.WRITE, topic("orders"), "bob")


# --- decisions ---


def test_a61_every_operation_without_an_acl_is_denied() -> None:
    assert not World().may(O.DESCRIBE, topic("orders"))


@pytest.mark.parametrize(
    ("principal", "host", "allowed"),
    [
        ("User:alice", "*", True),
        ("User:*", "*", True),
        ("User:alice", "10.0.0.1", True),
        ("User:bob", "*", False),
        ("Group:alice", "*", False),
        ("User:alice", "10.0.0.2", False),
    ],
)
def test_a61_an_acl_applies_to_its_principal_and_host(
    principal: str, host: str, allowed: bool
) -> None:
    world = World()
    world.add(acl(principal=principal, host=host))
    assert world.may(O.READ, topic("orders")) == allowed


def test_a61_an_acl_applies_to_its_own_resource_type() -> None:
    world = World()
    world.add(acl())
    assert not world.may(O.READ, group("orders"))


@pytest.mark.parametrize("operation", [O.READ, O.WRITE, O.DELETE, O.ALTER, O.ALL])
def test_a61_allow_acls_imply_describe_and_deny_acls_do_not(operation: Operation) -> None:
    world = World()
    world.add(acl(operation))
    assert world.may(O.DESCRIBE, topic("orders"))
    if operation is not O.ALL:
        world.add(acl(O.DESCRIBE, principal="User:bob"))
        world.add(acl(operation, principal="User:bob", deny=True))
        assert world.may(O.DESCRIBE, topic("orders"), "bob")


def test_a61_alter_configs_implies_describe_configs_and_create_implies_nothing() -> None:
    world = World()
    world.add(acl(O.ALTER_CONFIGS), acl(O.CREATE))
    assert world.may(O.DESCRIBE_CONFIGS, topic("orders"))
    assert not world.may(O.DESCRIBE, topic("orders"))


@pytest.mark.parametrize(
    "denied",
    [
        acl(O.READ, deny=True),
        acl(O.ALL, deny=True),
        acl(O.READ, "*", deny=True),
        acl(O.READ, "or", PREFIXED, deny=True),
        acl(O.READ, principal="User:*", deny=True),
        acl(O.READ, host="10.0.0.1", deny=True),
    ],
    ids=str,
)
def test_a61_a_deny_acl_overrides_every_allow_acl(denied: Acl) -> None:
    for acls in ([denied, acl(O.ALL)], [acl(O.ALL), denied], [acl(O.READ, "*"), denied]):
        world = World()
        world.add(*acls)
        assert not world.may(O.READ, topic("orders"))


def test_a62_resource_patterns_are_literal_prefixed_or_wildcard() -> None:
    world = World()
    world.add(acl(O.READ, "pay", PREFIXED), acl(O.WRITE, "*"), acl(O.ALTER, "*", PREFIXED))
    assert world.may(O.READ, topic("pay")) and world.may(O.READ, topic("payments"))
    assert not world.may(O.READ, topic("pa"))
    assert world.may(O.WRITE, topic("anything"))
    assert not world.may(O.ALTER, topic("payments"))
    assert world.may(O.ALTER, topic("*x"))


def test_a63_resources_without_acls_may_be_open_to_everybody() -> None:
    world = World(open_without_acls=True)
    assert world.may(O.DELETE, topic("orders"))
    world.add(acl(O.READ, "or", PREFIXED, principal="User:bob"))
    assert not world.may(O.DELETE, topic("orders"))
    assert world.may(O.DELETE, topic("payments"))
    assert world.may(O.ALTER, CLUSTER)


def test_a69_hosts_of_acls_are_compared_as_addresses() -> None:
    world = World()
    world.add(acl(host="0:0:0:0:0:0:0:1"), acl(O.WRITE, host="192.0.2.1"))
    assert world.may(O.READ, topic("orders"), host="::1")
    assert world.may(O.WRITE, topic("orders"), host="::ffff:192.0.2.1")


@pytest.mark.parametrize("host", ["::ffff:192.0.2.1", "0:0:0:0:0:FFFF:c000:201"])
def test_a69_an_ipv4_address_in_the_form_of_ipv6_fits_no_client(host: str) -> None:
    world = World()
    world.add(acl(host=host), acl(O.WRITE), acl(O.WRITE, host=host, deny=True))
    for client in ("192.0.2.1", "::ffff:192.0.2.1"):
        assert not world.may(O.READ, topic("orders"), host=client)
        assert world.may(O.WRITE, topic("orders"), host=client)


def test_a65_a_changed_acl_applies_to_the_next_decision() -> None:
    world = World()
    assert not world.may(O.READ, topic("orders"))
    world.acls.add(b"1" * 16, acl())
    assert world.may(O.READ, topic("orders"))
    world.acls.remove(b"1" * 16)
    assert not world.may(O.READ, topic("orders"))


def test_a65_the_number_of_cached_decisions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek_broker.security.standard_authorizer._DECISIONS_MAX", 10)
    world = World()
    for number in range(100):
        world.may(O.READ, topic(f"t{number}"))
        world.may(O.READ, topic("x" * 10_000))
    assert 0 < len(world.authorizer._decisions) <= 10
    assert max(len(key[-1]) for key in world.authorizer._decisions) < 10


# --- some resource of a type ---


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(O.WRITE)], True),
        ([acl(O.ALL, "or", PREFIXED)], True),
        ([acl(O.READ)], False),
        ([acl(O.WRITE, kind=R.GROUP)], False),
        ([acl(O.WRITE, principal="User:bob")], False),
        ([acl(O.WRITE, host="10.0.0.2")], False),
        ([acl(O.WRITE), acl(O.WRITE, "*", deny=True)], False),
        ([acl(O.WRITE, "*"), acl(O.WRITE, "orders", deny=True)], True),
        ([acl(O.WRITE), acl(O.WRITE, deny=True)], False),
        ([acl(O.WRITE), acl(O.WRITE, "or", PREFIXED, deny=True)], False),
        ([acl(O.WRITE, "orders", PREFIXED), acl(O.ALL, "o", PREFIXED, deny=True)], False),
        ([acl(O.WRITE, "or", PREFIXED), acl(O.WRITE, "orders", PREFIXED, deny=True)], True),
        ([acl(O.WRITE, "or", PREFIXED), acl(O.WRITE, "or", deny=True)], True),
        ([acl(O.WRITE, "orders", PREFIXED), acl(O.WRITE, "x", PREFIXED, deny=True)], True),
        ([acl(O.WRITE, "hardcode"), acl(O.WRITE, "*", host="10.0.0.9", deny=True)], True),
    ],
    ids=lambda value: "; ".join(map(str, value)) if isinstance(value, list) else str(value),
)
def test_a64_acls_decide_whether_any_topic_may_be_written(acls: list[Acl], allowed: bool) -> None:
    world = World()
    world.add(*acls)
    assert at_once(world.authorizer.allows_any(context(), O.WRITE, R.TOPIC)) == allowed


def test_a64_super_users_and_open_resources_may_write_any_topic() -> None:
    for world in (World("User:alice"), World(open_without_acls=True)):
        assert at_once(world.authorizer.allows_any(context(), O.WRITE, R.TOPIC))


# --- Many ACLs ---


def test_n57_a_decision_is_quick_however_many_acls_a_name_has() -> None:
    world = World()
    for number in range(5_000):
        host = f"10.1.{number // 250}.{number % 250}"
        world.acls.add(number.to_bytes(16, "big"), acl(O.WRITE, host=host))
    assert steps_of(lambda: world.may(O.WRITE, topic("orders"), host="10.1.3.7")) < 1_000
    assert not world.may(O.WRITE, topic("orders"), host="10.2.0.0")
    assert steps_of(lambda: world.acls.remove((4_999).to_bytes(16, "big"))) < 1_000


@pytest.mark.parametrize("denied", [False, True])
def test_n57_no_question_about_any_topic_holds_the_loop(denied: bool) -> None:
    """With `denied` the user's ACLs are examined one by one, and in vain."""
    broker = CountedBroker(authorizer_class_name=CLASS, super_users="User:admin")
    acls = broker.world.node.metadata.acls
    principal = "User:alice" if denied else "User:bob"
    for number in range(5_000):
        acls.add(number.to_bytes(16, "big"), acl(O.WRITE, f"orders-{number}", principal=principal))
    acls.add(b"x" * 16, acl(O.WRITE, "orders-", PREFIXED, deny=True))
    request = InitProducerIdRequest(transactional_id=None)
    steps, reply = broker.longest_callback(request, 5, "alice")
    answer: Any = frames.decode_response(APIS[ApiKey.INIT_PRODUCER_ID], 5, b"".join(reply)[4:])
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert steps <= 20_000


# --- The index compared with a list ---


def _plainly(acls: list[Acl], user: str, operation: Operation, resource: Resource) -> bool:
    """The decision by a loop over all ACLs."""
    fitting = [
        each
        for each in acls
        if each.resource_type is resource.type
        and each.principal in (f"User:{user}", "User:*")
        and each.host in ("10.0.0.1", "*")
        and (
            resource.name.startswith(each.name)
            if each.pattern_type is PREFIXED
            else each.name in (resource.name, "*")
        )
    ]
    implied = {O.DESCRIBE: [O.READ, O.WRITE, O.DELETE, O.ALTER]}.get(operation, [])
    if any(
        a.permission is AclPermission.DENY and a.operation in (operation, O.ALL) for a in fitting
    ):
        return False
    return any(
        a.permission is AclPermission.ALLOW and a.operation in (operation, O.ALL, *implied)
        for a in fitting
    )


@pytest.mark.parametrize("seed", range(5))
def test_a61_a62_the_acl_index_decides_like_a_loop_over_all_acls(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    held: dict[bytes, Acl] = {}

    def some(choices: list[Any]) -> Any:
        return rng.choice(choices)

    for step in range(400):
        made = acl(
            some([O.READ, O.WRITE, O.DESCRIBE, O.ALL]),
            some(["a", "ab", "abc", "b", "*"]),
            some([LITERAL, PREFIXED]),
            principal=some(["User:alice", "User:bob", "User:*"]),
            host=some(["*", "10.0.0.1", "10.0.0.2"]),
            kind=some([R.TOPIC, R.GROUP]),
            deny=rng.random() < 0.3,
        )
        if rng.random() < 0.5 and made not in world.acls:
            acl_id = step.to_bytes(16, "big")
            held[acl_id] = made
            world.acls.add(acl_id, made)
        elif held and rng.random() < 0.6:
            gone = some(list(held))
            del held[gone]
            world.acls.remove(gone)
        user, operation = some(["alice", "bob"]), some([O.READ, O.WRITE, O.DESCRIBE])
        resource = Resource(some([R.TOPIC, R.GROUP]), some(["a", "ab", "abcd", "b", "c"]))
        expected = _plainly(list(held.values()), user, operation, resource)
        assert world.may(operation, resource, user) == expected
    for acl_id in held:
        world.acls.remove(acl_id)
    assert not any(
        of.literal or of.prefixed or of.lengths or of.by_principal
        for of in world.acls._types.values()
    ), "nothing is left behind"


# --- the audit log ---


def lines_of(act: Callable[[], object]) -> list[Any]:
    with capture_logs() as lines:
        act()
    return lines


def test_a66_a_denial_is_logged_with_user_operation_and_acl() -> None:
    world = World()
    world.add(acl(O.WRITE, "or", PREFIXED, deny=True))
    (line,) = lines_of(lambda: world.may(O.WRITE, topic("orders")))
    assert line == {
        "event": "denied",
        "log_level": "info",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "operation": "WRITE",
        "resource": "TOPIC:orders",
        "request": "Produce",
        "rule": "DENY WRITE to User:alice from * on PREFIXED TOPIC or",
    }
    assert not lines_of(
        lambda: world.authorizer.would_allow(context(), O.WRITE, topic("orders-2"))
    ), "what an answer leaves out is not told"


def test_a66_a_repeated_denial_is_logged_once_a_minute_with_its_count() -> None:
    world = World()
    assert len(lines_of(lambda: [world.may(O.READ, topic("orders")) for _ in range(50)])) == 1
    world.now_ms += 60_000
    (line,) = lines_of(lambda: world.may(O.READ, topic("orders")))
    assert line["repeated"] == 49


def test_a66_the_number_of_logged_denials_is_limited() -> None:
    world = World()
    many = lines_of(lambda: [world.may(O.READ, topic(f"t{n}")) for n in range(4_000)])
    assert len(many) == 100, "the others are for other users"
    more = lambda: [world.may(O.READ, topic(f"t{n}"), f"user{n}") for n in range(1_000)]
    assert len(lines_of(more)) == 100
    world.now_ms += 60_000
    (line,) = lines_of(lambda: world.may(O.READ, topic("x" * 30_000)))
    assert line["lines_left_out"] == 900
    assert len(line["resource"]) < 300
    assert len(world.audit._denied._told) <= 1_000
    kept = world.audit.denials
    assert len(kept) == 1_000 and max(map(len, kept)) < 300


def test_a66_permissions_are_logged_if_configured() -> None:
    world = World("User:root")
    world.add(acl())
    ask = lambda: [world.may(O.READ, topic("orders")), world.may(O.ALTER, CLUSTER, "root")]
    assert lines_of(ask) == []
    world.logs_allowed = True
    assert [(line["event"], line["rule"]) for line in lines_of(ask)] == [
        ("allowed", "ALLOW READ to User:alice from * on LITERAL TOPIC orders"),
        ("allowed", "super user"),
    ]


class Read(str):
    """A name, and the characters of it that were read in parts."""

    parts: list[str]

    def __getitem__(self, cut: Any) -> str:
        self.parts.append(super().__getitem__(cut))
        return self.parts[-1]


def test_n57_a_name_is_compared_with_the_lengths_of_prefixes_that_there_are() -> None:
    name = Read("n" * 30_000)
    name.parts = []
    world = World()
    world.add(acl(O.WRITE, name), acl(O.WRITE, "nn", PREFIXED, deny=True))
    assert not at_once(world.authorizer.allows_any(context(), O.WRITE, R.TOPIC))
    assert name.parts == ["nn"]


def test_n57_a_name_is_read_once_for_long_prefixes_of_any_number() -> None:
    world = World()
    for length in range(1_000, 1_200):
        prefix = acl(O.READ, "n" * length + "x", PREFIXED)
        world.acls.add(length.to_bytes(16, "big"), prefix)
    world.add(acl(O.READ, "n" * 1_100, PREFIXED))
    name = Read("n" * 5_000)
    name.parts = []
    assert world.may(O.READ, topic(name))
    assert len("".join(name.parts)) <= 1_200
    world.acls.remove(bytes([200]) * 16)
    assert not world.may(O.READ, topic("n" * 5_000))
