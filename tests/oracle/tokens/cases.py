"""Requests about delegation tokens, and authentication with them, on brokers with a secret key.

A case is a list of steps: a request by a user, `Login` (SCRAM with a token) or `Wait`. A name such
as `<t>` in a field stands for the HMAC of the token that a step with `token="t"` has created. Each
case has its own users, so that cases do not see each other's tokens: `@alice` becomes `c7-alice` in
case 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.rights.secured_kafka import AUTHORIZER

from odradek_protocol.acls import AclOperation, AclResourceType

PASSWORD = "pass"
#: The users of each case. `super` is a super user; `maker` may create tokens for alice; `viewer`
#: may describe alice's tokens; `reader` may describe every token.
NAMES = ("alice", "bob", "carol", "maker", "viewer", "reader")
SUPER = "admin"
#: The names of the SASL listener and of the listener without authentication.
SASL, PLAINTEXT = "SASL_PLAINTEXT", "PLAINTEXT"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
INT64_MAX = 2**63 - 1
S256, S512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
_PACKAGE = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Ask:
    """A request by a user, in one version. `token`: the name for the token that it creates."""

    who: str
    api: str
    version: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    token: str = ""


@dataclass(frozen=True)
class Login:
    """Authenticate with a token, on a new connection that gets the name `connection`.

    `token`: the token's name, or a token id that does not exist. `hmac`: the name of the token
    whose HMAC is the password, or a wrong password. `again`: authenticate on the existing
    connection of this name.
    """

    connection: str
    token: str
    mechanism: str = S256
    hmac: str = ""
    authorization_id: str = ""
    word: str = "true"
    again: bool = False


@dataclass(frozen=True)
class Wait:
    seconds: float


Step = Ask | Login | Wait


@dataclass(frozen=True)
class Case:
    """Steps in order. Their connections stay open until the end of the case."""

    name: str
    steps: Sequence[Step]


def jaas_line(cases: int) -> str:
    """The login module of PLAIN with all users of all cases."""
    names = [SUPER, *(user(case, name) for case in range(cases) for name in NAMES)]
    return f"{_PACKAGE}.plain.PlainLoginModule required " + " ".join(
        f'user_{name}="{PASSWORD}"' for name in names
    )


def user(case: int, name: str) -> str:
    """The name of a user in a case."""
    return SUPER if name == SUPER else f"c{case}-{name}"


def rights(case: int) -> list[tuple[str, AclResourceType, str, AclOperation]]:
    """The ACLs of a case: (user, type and name of the resource, operation)."""
    alice = f"User:{user(case, 'alice')}"
    return [
        (user(case, "maker"), AclResourceType.USER, alice, AclOperation.CREATE_TOKENS),
        (
            user(case, "maker"),
            AclResourceType.USER,
            f"Group:{user(case, 'alice')}",
            AclOperation.CREATE_TOKENS,
        ),
        (user(case, "viewer"), AclResourceType.USER, alice, AclOperation.DESCRIBE_TOKENS),
        (user(case, "reader"), AclResourceType.DELEGATION_TOKEN, "*", AclOperation.DESCRIBE),
    ]


def settings(key: str | None = "a secret key", *, authorizer: bool = True) -> dict[str, str]:
    """Settings of both brokers, in addition to the listeners."""
    given = {
        **(AUTHORIZER | {"super.users": f"User:{SUPER};User:ANONYMOUS"} if authorizer else {}),
        "sasl.enabled.mechanisms": f"PLAIN,{S256},{S512}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas_line(len(CASES))};",
        **{
            f"listener.name.sasl_plaintext.{each.lower()}.sasl.jaas.config": (
                f"{_PACKAGE}.scram.ScramLoginModule required;"
            )
            for each in (S256, S512)
        },
        "delegation.token.max.lifetime.ms": str(7 * DAY_MS),
        "delegation.token.expiry.time.ms": str(DAY_MS),
    }
    return given | ({} if key is None else {"delegation.token.secret.key": key})


def create(
    who: str = "@alice",
    token: str = "t",
    version: int = 3,
    renewers: Sequence[str] = (),
    lifetime_ms: int = -1,
    **more: Any,
) -> Ask:
    given = [
        {"principal_type": kind, "principal_name": name}
        for kind, _, name in (each.partition(":") for each in renewers)
    ]
    fields = {"renewers": given, "max_lifetime_ms": lifetime_ms, **more}
    return Ask(who, "CreateDelegationToken", version, fields, token)


def _for(owner: str, kind: str | None = "User") -> dict[str, Any]:
    return {"owner_principal_type": kind, "owner_principal_name": owner}


def renew(who: str, period_ms: int = -1, hmac: str = "<t>", version: int = 2) -> Ask:
    fields = {"hmac": hmac, "renew_period_ms": period_ms}
    return Ask(who, "RenewDelegationToken", version, fields)


def expire(who: str, period_ms: int = -1, hmac: str = "<t>", version: int = 2) -> Ask:
    fields = {"hmac": hmac, "expiry_time_period_ms": period_ms}
    return Ask(who, "ExpireDelegationToken", version, fields)


def describe(who: str = "@alice", *owners: str, version: int = 3, none: bool = False) -> Ask:
    """A request that describes all tokens; with `none`, one with an empty list of owners."""
    given = [
        {"principal_type": kind, "principal_name": name}
        for kind, _, name in (each.partition(":") for each in owners)
    ]
    fields = {"owners": given if given or none else None}
    return Ask(who, "DescribeDelegationToken", version, fields)


def metadata(who: str = "login") -> Ask:
    """A request that shows if the connection is open."""
    return Ask(who, "Metadata", 9, {"topics": []})


_EVERYBODY = ("@alice", "@bob", "@carol", "@maker", "@viewer", "@reader", SUPER)

CASES = [
    *(
        Case(
            f"life in version {version}",
            [
                describe(version=version),
                create(version=version, renewers=["User:@bob"], lifetime_ms=2 * DAY_MS),
                describe(version=version),
                renew("@bob", HOUR_MS, version=min(version, 2)),
                describe(version=version),
                expire("@alice", 2 * HOUR_MS, version=min(version, 2)),
                describe(version=version),
                expire("@alice", version=min(version, 2)),
                describe(version=version),
                renew("@alice", version=min(version, 2)),
                expire("@alice", version=min(version, 2)),
            ],
        )
        for version in (1, 2, 3)
    ),
    *(
        Case(f"lifetime of {name}", [create(lifetime_ms=lifetime_ms), describe()])
        for name, lifetime_ms in (
            ("0 ms", 0),
            ("an hour", HOUR_MS),
            ("ten days", 10 * DAY_MS),
            ("the most ms", INT64_MAX),
            ("the least ms", -INT64_MAX),
        )
    ),
    Case(
        "renewers",
        [
            create(token="two", renewers=["User:@bob", "User:@carol"]),
            create(token="same", renewers=["User:@bob", "User:@bob"]),
            create(token="own", renewers=["User:@alice"]),
            create(token="empty", renewers=["User:"]),
            create(token="group", renewers=["User:@bob", "Group:@carol"]),
            create(token="typeless", renewers=[":@bob"]),
            create(token="lower", renewers=["user:@bob"]),
            describe("@alice"),
        ],
    ),
    Case(
        "owners",
        [
            create("@maker", "others", **_for("@alice")),
            create("@maker", "again", **_for("@alice"), renewers=["User:@bob"]),
            create("@carol", "refused", **_for("@alice")),
            create("@carol", "refused-group", **_for("@alice"), renewers=["Group:@bob"]),
            create("@maker", "bobs", **_for("@bob")),
            create(SUPER, "super", **_for("@alice")),
            create("@alice", "own", **_for("@alice")),
            create("@alice", "nameless", **_for("")),
            create("@alice", "grouped", **_for("@alice", "Group")),
            create("@maker", "group", **_for("@alice", "Group")),
            create("@maker", "typeless", **_for("@alice", "")),
            create(SUPER, "typeless-super", **_for("@alice", "")),
            describe("@alice"),
            describe("@maker"),
            describe("@alice", "Group:@alice"),
            describe("@maker", "Group:@alice"),
        ],
    ),
    Case(
        "renewals",
        [
            create(renewers=["User:@bob"], lifetime_ms=3 * DAY_MS),
            renew("@alice", 0),
            renew("@alice", HOUR_MS),
            renew("@bob", 2 * HOUR_MS),
            renew("@alice", 10 * DAY_MS),
            renew("@alice", INT64_MAX),
            renew("@alice", -INT64_MAX),
            renew("@carol"),
            renew(SUPER),
            renew("@viewer"),
            renew("@alice", hmac="no such token"),
            renew("@alice", hmac=""),
            create("@maker", "made", **_for("@alice")),
            renew("@maker", hmac="<made>"),
            expire("@maker", hmac="<made>"),
            renew("@alice", hmac="<made>"),
            create(token="short", lifetime_ms=HOUR_MS),
            renew("@alice", hmac="<short>"),
        ],
    ),
    Case(
        "ends",
        [
            create(renewers=["User:@bob"], lifetime_ms=3 * DAY_MS),
            expire("@alice", 5 * HOUR_MS),
            expire("@alice", 2 * DAY_MS),
            expire("@bob", 10 * DAY_MS),
            expire("@alice", INT64_MAX),
            expire("@carol"),
            expire(SUPER, HOUR_MS),
            expire("@alice", hmac="no such token"),
            expire("@alice", hmac=""),
            expire("@bob", -7),
            describe(),
        ],
    ),
    Case(
        "expired",
        [
            create(renewers=["User:@bob"]),
            expire("@alice", 0),
            Wait(1),
            renew("@alice"),
            renew("@carol"),
            expire("@alice", HOUR_MS),
            expire("@carol", HOUR_MS),
            expire("@carol"),
            describe(),
            expire("@bob"),
            describe(),
        ],
    ),
    Case(
        "descriptions",
        [
            create(token="own", renewers=["User:@bob"]),
            create("@bob", "bobs"),
            create("@maker", "made", **_for("@alice")),
            *(describe(who) for who in ("@alice", "@bob", "@carol", "@maker", "@viewer")),
            *(describe(who, "User:@alice") for who in _EVERYBODY),
            *(describe(who, "User:@bob") for who in _EVERYBODY),
            *(describe(who, "User:@alice", "User:@bob", "User:@carol") for who in _EVERYBODY),
            describe(SUPER, "User:@maker"),
            describe(SUPER, "Group:@alice"),
            describe("@alice", none=True),
            describe(SUPER, none=True),
        ],
    ),
    *(
        Case(
            f"login by {mechanism}",
            [
                create(renewers=["User:@bob"], lifetime_ms=HOUR_MS),
                Login("login", "t", mechanism),
                metadata(),
                *(create("login", "of-token", version) for version in (1, 2, 3)),
                *(renew("login", version=version) for version in (1, 2)),
                *(expire("login", version=version) for version in (1, 2)),
                *(describe("login", version=version) for version in (1, 2, 3)),
                create("login", "of-others", **_for("@bob"), renewers=["Group:x"]),
                metadata(),
                describe("@alice"),
            ],
        )
        for mechanism in (S256, S512)
    ),
    Case(
        "logins that fail",
        [
            create(),
            create("@bob", "bobs"),
            Login("wrong", "t", hmac="not the HMAC"),
            Login("other", "t", hmac="<bobs>"),
            Login("unknown", "no-such-token"),
            Login("off", "t", word="false"),
            Login("upper", "t", word="TRUE"),
            Login("as-owner", "t", authorization_id="@alice"),
            Login("as-token", "t", authorization_id="<id t>"),
            Login("as-other", "t", authorization_id="@bob"),
        ],
    ),
    Case(
        "login with a token that has ended",
        [
            create(),
            create(token="late"),
            Login("login", "t"),
            Login("late", "late"),
            expire("@alice"),
            expire("@alice", 0, "<late>"),
            Wait(1),
            metadata(),
            Login("after", "t"),
            Login("login", "t", again=True),
            Login("expired", "late"),
            metadata("expired"),
            metadata("late"),
        ],
    ),
    Case(
        "login again",
        [
            create(lifetime_ms=HOUR_MS),
            create(token="second", lifetime_ms=2 * HOUR_MS),
            create("@bob", "bobs"),
            Login("login", "t"),
            metadata(),
            Login("login", "second", again=True),
            metadata(),
            Wait(1.5),
            Login("login", "bobs", again=True),
        ],
    ),
    Case(
        "login with a token for a group",
        [
            create("@maker", **_for("@alice", "Group")),
            create("@bob", "bobs"),
            Login("login", "t"),
            metadata(),
            Login("login", "bobs", again=True),
        ],
    ),
    Case(
        "login with a renewed token",
        [create(), renew("@alice", 3 * HOUR_MS), Login("login", "t"), metadata()],
    ),
]

#: Cases for brokers without an authorizer.
OPEN_CASES = [
    Case(
        "without an authorizer",
        [
            create(renewers=["User:@bob"], lifetime_ms=HOUR_MS),
            create("@bob", "bobs"),
            create("@carol", "others", **_for("@alice")),
            *(describe(who) for who in ("@alice", "@bob", "@carol", "@viewer")),
            *(describe(who, "User:@alice") for who in ("@bob", "@carol")),
            describe("@carol", "User:@maker"),
            describe("@carol", none=True),
            renew("@carol"),
            expire("@carol"),
            renew("@carol", hmac="<others>"),
            expire("@bob"),
            describe("@carol"),
            Login("login", "bobs"),
            describe("login"),
        ],
    ),
]
