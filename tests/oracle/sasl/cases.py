"""Requests on one connection, at a listener with PLAIN, SCRAM and unsigned tokens.

A case is a list of steps: a request (name, version, fields), `Token` (a frame without a header),
`Scram` (both messages of a client) or `Together` (requests that do not wait for each other). On the
listener SHORT, sessions expire soon.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek_protocol.common_structs import TokenPrincipal
from odradek_protocol.schemas.create_topics import CreatableTopic
from odradek_protocol.schemas.fetch import FetchPartition, FetchTopic

#: The users of PLAIN and of SCRAM, with their passwords.
USERS = {"alice": "alice-secret", "bob": "bob-secret", "odd,=name": "odd-secret"}
SASL, SHORT, PLAINTEXT = "SASL_PLAINTEXT", "SHORT", "PLAINTEXT"
SESSION_MS = 3_600_000
_PACKAGE = "org.apache.kafka.common.security"
_PLAIN = " ".join(f'user_{name}="{USERS[name]}"' for name in ("alice", "bob"))
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
#: Settings of both brokers, in addition to the listeners.
SETTINGS = {
    "sasl.enabled.mechanisms": MECHANISMS,
    "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
    **{
        f"listener.name.{listener}.{mechanism}.sasl.jaas.config": f"{_PACKAGE}.{module};"
        for listener in ("sasl_plaintext", "short")
        for mechanism, module in (
            ("plain", f"plain.PlainLoginModule required {_PLAIN}"),
            ("scram-sha-256", "scram.ScramLoginModule required"),
            ("scram-sha-512", "scram.ScramLoginModule required"),
            (
                "oauthbearer",
                'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x"',
            ),
        )
    },
}


@dataclass(frozen=True)
class Ask:
    api: str
    version: int
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Token:
    """A frame that has only the bytes of a SASL token."""

    data: bytes


@dataclass(frozen=True)
class Scram:
    """A handshake, and then both messages of a client. `bare`: the messages are sent without
    request headers."""

    mechanism: str
    user: str
    password: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    wrong_nonce: bool = False
    bare: bool = False


@dataclass(frozen=True)
class Together:
    """Requests that are sent at the same time, before the first one is answered."""

    asks: Sequence[Ask]


Step = Ask | Token | Scram | Together


@dataclass(frozen=True)
class Case:
    """The steps on one connection. After them, a Metadata request shows if the connection is still
    open."""

    name: str
    steps: Sequence[Step]
    listener: str = SASL


VERSIONS = Ask("ApiVersions", 3, {"client_software_name": "raw", "client_software_version": "1"})
METADATA = Ask("Metadata", 9, {"topics": []})


def handshake(mechanism: str = "PLAIN", version: int = 1) -> Ask:
    return Ask("SaslHandshake", version, {"mechanism": mechanism})


def authenticate(token: bytes, version: int = 2) -> Ask:
    return Ask("SaslAuthenticate", version, {"auth_bytes": token})


def plain(user: str, password: str = "", authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password or USERS[user]}".encode()


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def bearer(header: str = "n,,", algorithm: str = "none", **claims: Any) -> bytes:
    """A client's first message of OAUTHBEARER. By default the token was issued in 2023 and expires
    in 2096."""
    given = {"sub": "carol", "iat": 1_700_000_000, "exp": 4_000_000_000} | claims
    token = f"{_part({'alg': algorithm})}.{_part({k: v for k, v in given.items() if v})}."
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


#: Attributes of OAUTHBEARER, named aa to jj.
_ATTRIBUTES = [f"{first}{second}=x" for first in "abcdefghij" for second in "abcdefghij"]


def _behind(attributes: Sequence[str]) -> bytes:
    """A message of OAUTHBEARER whose token stands behind other attributes."""
    return bearer("n,," + "".join(f"\x01{each}" for each in attributes))


_ALICE = [handshake(), authenticate(plain("alice"))]
_TOPIC = Ask(
    "CreateTopics",
    5,
    {"topics": [CreatableTopic(name="waited-for", num_partitions=1, replication_factor=1)]},
)
#: A request that is answered only after a while, because its partition is empty.
_WAITING = Ask(
    "Fetch",
    11,
    {
        "max_wait_ms": 300,
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [
            FetchTopic(
                topic="waited-for",
                partitions=[FetchPartition(partition=0, partition_max_bytes=1000)],
            )
        ],
    },
)
_S256, _S512 = "SCRAM-SHA-256", "SCRAM-SHA-512"

CASES = [
    Case("plain", [VERSIONS, *_ALICE]),
    Case("plain without versions", _ALICE),
    *(
        Case(
            f"plain with SaslAuthenticate {version}",
            [handshake(), authenticate(plain("bob"), version)],
        )
        for version in (0, 1)
    ),
    Case("plain as itself", [handshake(), authenticate(plain("alice", authorization_id="alice"))]),
    Case("plain as another", [handshake(), authenticate(plain("alice", authorization_id="bob"))]),
    Case("wrong password", [handshake(), authenticate(plain("alice", "x"))]),
    Case("unknown user", [handshake(), authenticate(plain("nobody", "x"))]),
    Case("no password", [handshake(), authenticate(b"\0alice\0")]),
    Case("no user", [handshake(), authenticate(b"\0\0x")]),
    Case("two parts", [handshake(), authenticate(b"alice\0x")]),
    Case("four parts", [handshake(), authenticate(b"\0alice\0x\0")]),
    Case("a thousand parts", [handshake(), authenticate(b"\0" * 999)]),
    Case("no token", [handshake(), authenticate(b"")]),
    Case("unknown mechanism", [VERSIONS, handshake("DIGEST-MD5")]),
    Case("mechanism that is not enabled, version 0", [handshake("GSSAPI", 0)]),
    Case("mechanism in lower case", [handshake("plain")]),
    Case("no mechanism", [handshake("")]),
    Case("nothing before Metadata", []),
    Case("Metadata behind versions", [VERSIONS]),
    Case("Metadata behind the handshake", [handshake()]),
    Case("SaslAuthenticate first", [authenticate(plain("alice"))]),
    Case("SaslAuthenticate behind versions", [VERSIONS, authenticate(plain("alice"))]),
    Case("versions twice", [VERSIONS, VERSIONS]),
    Case("versions behind the handshake", [handshake(), VERSIONS]),
    Case("bad versions first", [Ask("ApiVersions", 3), VERSIONS, *_ALICE]),
    Case("handshake twice", [handshake(), handshake()]),
    Case("produce in place of the token", [handshake(), Ask("Produce", 9, {"acks": 1})]),
    Case("bare plain", [VERSIONS, handshake("PLAIN", 0), Token(plain("alice"))]),
    Case("bare plain, wrong", [handshake("PLAIN", 0), Token(plain("alice", "x"))]),
    Case("SaslAuthenticate in place of a bare token", [handshake("PLAIN", 0), authenticate(b"x")]),
    Case("handshake behind authentication", [*_ALICE, handshake(), METADATA]),
    Case("token behind authentication", [*_ALICE, authenticate(plain("alice")), METADATA]),
    Case("versions behind authentication", [*_ALICE, VERSIONS, VERSIONS]),
    *(
        Case(f"{name}", [handshake(name), Scram(name, "alice", USERS["alice"])])
        for name in (_S256, _S512)
    ),
    Case("SCRAM with an odd name", [handshake(_S256), Scram(_S256, "odd,=name", "odd-secret")]),
    Case("SCRAM, wrong password", [handshake(_S256), Scram(_S256, "alice", "x")]),
    Case("SCRAM as itself", [handshake(_S256), Scram(_S256, "bob", USERS["bob"], "bob")]),
    Case("SCRAM as another", [handshake(_S256), Scram(_S256, "bob", USERS["bob"], "alice")]),
    Case(
        "SCRAM, another nonce",
        [handshake(_S256), Scram(_S256, "bob", USERS["bob"], wrong_nonce=True)],
    ),
    Case(
        "SCRAM with extensions",
        [handshake(_S512), Scram(_S512, "bob", USERS["bob"], extensions={"other": "x"})],
    ),
    Case(
        "SCRAM, no token",
        [handshake(_S512), Scram(_S512, "bob", USERS["bob"], extensions={"tokenauth": "false"})],
    ),
    Case(
        "SCRAM, a token that does not exist",
        [handshake(_S256), Scram(_S256, "bob", USERS["bob"], extensions={"tokenauth": "true"})],
    ),
    Case("SCRAM, bare", [handshake(_S256, 0), Scram(_S256, "alice", USERS["alice"], bare=True)]),
    Case("SCRAM, no message of it", [handshake(_S256), authenticate(b"n,,n=alice")]),
    Case("SCRAM with channel binding", [handshake(_S256), authenticate(b"y,,n=alice,r=abc")]),
    *(
        Case(
            f"SCRAM, a nonce of {size} characters",
            [handshake(_S256), authenticate(b"n,,n=bob,r=" + b"x" * size)],
        )
        for size in (12_000, 20_000)
    ),
    *(
        Case(name, [handshake("OAUTHBEARER"), authenticate(token)])
        for name, token in (
            ("token behind 99 attributes", _behind(_ATTRIBUTES[:99])),
            ("token behind 100 attributes", _behind(_ATTRIBUTES)),
            ("token behind an attribute twice", _behind(["aa=x", "aa=y"])),
            ("token behind an attribute of 140 KB", _behind(["aa=" + "x" * 140_000])),
            ("token of half a surrogate pair", bearer(sub="a\ud800b")),
        )
    ),
    Case("token", [handshake("OAUTHBEARER"), authenticate(bearer())]),
    Case("token as itself", [handshake("OAUTHBEARER"), authenticate(bearer("n,a=carol,"))]),
    Case("token as another", [handshake("OAUTHBEARER"), authenticate(bearer("n,a=alice,"))]),
    Case(
        "token that has expired",
        [handshake("OAUTHBEARER"), authenticate(bearer(exp=1_700_000_060)), authenticate(b"\x01")],
    ),
    Case(
        "token without a user",
        [handshake("OAUTHBEARER"), authenticate(bearer(sub=None)), authenticate(b"\x01")],
    ),
    Case(
        "token that says it is signed",
        [handshake("OAUTHBEARER"), authenticate(bearer(algorithm="RS256")), authenticate(b"\x01")],
    ),
    Case("token, no message of it", [handshake("OAUTHBEARER"), authenticate(b"n,,\x01\x01")]),
    Case("session", _ALICE, SHORT),
    Case("session, SaslAuthenticate 0", [handshake(), authenticate(plain("alice"), 0)], SHORT),
    Case("session goes on", [*_ALICE, *_ALICE], SHORT),
    Case(
        "session goes on in bare tokens",
        [*_ALICE, handshake("PLAIN", 0), Token(plain("alice"))],
        SHORT,
    ),
    Case("session, again too soon", [*_ALICE, *_ALICE, handshake(), METADATA], SHORT),
    Case("session of another user", [*_ALICE, handshake(), authenticate(plain("bob"))], SHORT),
    Case(
        "session, wrong password", [*_ALICE, handshake(), authenticate(plain("alice", "x"))], SHORT
    ),
    Case(
        "session, SCRAM, wrong password",
        [
            handshake(_S256),
            Scram(_S256, "alice", USERS["alice"]),
            handshake(_S256),
            Scram(_S256, "alice", "x"),
        ],
        SHORT,
    ),
    Case(
        "session by another mechanism",
        [*_ALICE, handshake(_S256), authenticate(b"n,,n=alice,r=a")],
        SHORT,
    ),
    Case("session by an unknown mechanism", [*_ALICE, handshake("DIGEST-MD5")], SHORT),
    Case("session, a request in between", [*_ALICE, handshake(), METADATA], SHORT),
    Case("all at once", [Together([VERSIONS, *_ALICE, METADATA])]),
    Case(
        "all at once, wrong password",
        [Together([handshake(), authenticate(b"\0alice\0x"), METADATA])],
    ),
    Case(
        "session goes on among requests", [*_ALICE, Together([METADATA, *_ALICE, METADATA])], SHORT
    ),
    Case(
        "session goes on behind a request that waits",
        [*_ALICE, _TOPIC, Together([_WAITING, *_ALICE, _WAITING, METADATA])],
        SHORT,
    ),
    Case(
        "session, wrong password behind a request that waits",
        [
            *_ALICE,
            _TOPIC,
            Together([_WAITING, handshake(), authenticate(plain("alice", "x")), METADATA]),
        ],
        SHORT,
    ),
    Case(
        "session of another user behind a request that waits",
        [*_ALICE, _TOPIC, Together([_WAITING, handshake(), authenticate(plain("bob")), METADATA])],
        SHORT,
    ),
    Case(
        "session, a request in the middle of all",
        [*_ALICE, Together([METADATA, handshake(), METADATA, authenticate(plain("alice"))])],
        SHORT,
    ),
    Case("session goes on twice at once", [*_ALICE, Together([*_ALICE, *_ALICE, METADATA])], SHORT),
    Case("handshake without SASL", [handshake(), METADATA], PLAINTEXT),
    *(
        Case(f"{name} {version} {', '.join(fields)}", [*_ALICE, Ask(name, version, fields)])
        for name, versions, fields in (
            ("CreateDelegationToken", (1, 2, 3), {"max_lifetime_ms": 1000}),
            (
                "CreateDelegationToken",
                (3,),
                {"owner_principal_type": "User", "owner_principal_name": "alice"},
            ),
            (
                "CreateDelegationToken",
                (1, 2, 3),
                {"renewers": [TokenPrincipal(principal_type="Group", principal_name="x")]},
            ),
            ("RenewDelegationToken", (1, 2), {"hmac": b"x", "renew_period_ms": 1}),
            ("ExpireDelegationToken", (1, 2), {"hmac": b"x", "expiry_time_period_ms": -1}),
            ("DescribeDelegationToken", (1, 2, 3), {"owners": None}),
            ("DescribeDelegationToken", (3,), {}),
        )
        for version in versions
    ),
]
