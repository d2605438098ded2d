"""Users create, renew, end and describe delegation tokens, and clients log in with the tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.sim.checkers.delegation_tokens import FollowedClock, KnownToken, TokenChecker
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_client.admin import (
    AclBinding,
    AclOperation,
    AclResourceType,
    Admin,
    DelegationToken,
    NewTopic,
    UserScramCredentialUpsertion,
)
from odradek_client.errors import AuthenticationFailed, OdradekError
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.world import World

_SECOND_MS = 1_000
_HOUR_MS = 3_600_000
_EXPIRY_MS = 20 * _HOUR_MS
_LIFETIME_MS = 40 * _HOUR_MS
_REQUEST_TIMEOUT_MS = 2_000
#: The minimum time in ms after which a client retries a request.
_FIRST_ATTEMPT_MS = 80
#: The users. Bob may create tokens for alice, carol may see alice's, and dora may do nothing.
_USERS = ("alice", "bob", "carol", "dora")
_OWNERS = ("alice", "bob")
_MECHANISM = "SCRAM-SHA-256"
_ITERATIONS = 4_096
_ACLS = (
    *(AclBinding.topic(f"of-{name}", f"User:{name}", AclOperation.DESCRIBE) for name in _OWNERS),
    AclBinding("User:bob", AclOperation.CREATE_TOKENS, AclResourceType.USER, "User:alice"),
    AclBinding("User:carol", AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, "User:alice"),
)
_OF_TOKENS = ("cut-power-behind-an-answer", "cut-power", "clock-jump")
_TOKENS_MAX = 12
#: The number of tokens that are used once more at the end.
_LAST_LOOKS_MAX = 8


def _may_see(user: str, token: DelegationToken) -> bool:
    return user == "carol" and token.owner == "User:alice"


class DelegationTokensWorkload:
    """Clients of three kinds that use delegation tokens.

    Keepers create and change tokens, with one change per token at a time. Holders log in with any
    token that was ever acknowledged. Readers describe tokens. After a change with an unknown
    outcome no keeper changes that token again.
    """

    name: ClassVar[str] = "delegation-tokens"
    settings: ClassVar[dict[str, object]] = {
        "listeners": "PLAINTEXT://broker:9092,SASL_PLAINTEXT://broker:9093",
        "sasl.enabled.mechanisms": _MECHANISM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "connection.failed.authentication.delay.ms": 0,
        "delegation.token.secret.key": "for the simulation",
        "delegation.token.expiry.time.ms": _EXPIRY_MS,
        "delegation.token.max.lifetime.ms": _LIFETIME_MS,
        "delegation.token.expiry.check.interval.ms": _SECOND_MS,
        "metadata.log.max.record.bytes.between.snapshots": 2_000,
    }
    #: About a third of the faults are power cuts and clock jumps.
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS + _OF_TOKENS * 2

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        clock = world.broker.clock = FollowedClock(world.loop)
        self._checker = TokenChecker(clock, _may_see, _EXPIRY_MS, _LIFETIME_MS)
        self._problems: list[str] = []

    def _found(self, problems: Iterator[str]) -> None:
        for problem in problems:
            self._world.note("CHECKER", problem)
            self._problems.append(problem)

    # --- Clients ---

    def _admin(self, user: str, password: str, **settings: Any) -> Admin:
        return Admin(
            bootstrap_servers=self._world.broker.listeners["SASL_PLAINTEXT"],
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            default_api_timeout_ms=2 * _REQUEST_TIMEOUT_MS,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=_MECHANISM,
            sasl_username=user,
            sasl_password=password,
            **settings,
        )

    def _as_user(self, user: str) -> Admin:
        return self._admin(user, f"password of {user}")

    def _with(self, known: KnownToken) -> Admin:
        token = known.token
        return self._admin(token.token_id, token.password, sasl_token_auth=True)

    async def prepare(self) -> None:
        """Create users, their topics and their rights."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion(
                    user, f"password of {user}", _MECHANISM, iterations=_ITERATIONS
                )
                for user in _USERS
            )
            await admin.create_topics([NewTopic(f"of-{name}") for name in _OWNERS])
            await admin.create_acls(_ACLS)

    async def work(self) -> None:
        """Run all clients at the same time."""
        await asyncio.gather(
            keep_running(self._world, "keeper", 2, self._keep),
            keep_running(self._world, "holder", 2, self._hold),
            keep_running(self._world, "reader", 1, self._read),
        )

    # --- Keepers ---

    async def _keep(self, name: str) -> None:
        random = self._random
        user = random.choice(_USERS)
        async with self._as_user(user) as admin:
            for _ in range(random.randint(1, 8)):
                tokens = self._checker.tokens
                if user in _OWNERS and len(tokens) < _TOKENS_MAX and random.random() < 0.4:
                    await self._create(admin, user)
                elif changeable := [each for each in tokens.values() if not each.changing]:
                    await self._change(admin, name, user, random.choice(changeable))
                await self._world.sleep(random.choice((1, 30, 100, 300)))

    async def _create(self, admin: Admin, user: str) -> None:
        random, checker = self._random, self._checker
        owner = random.choice(_OWNERS) if user == "bob" else user
        renewers = tuple(f"User:{each}" for each in _USERS if random.random() < 0.2)
        lifetime_ms = random.choice((None, _SECOND_MS, 3 * _SECOND_MS, _HOUR_MS, 90 * _HOUR_MS))
        asked = DelegationToken("", b"", f"User:{owner}", f"User:{user}", renewers, 0, 0, 0)
        began_ms = self._world.now_ms
        checker.creates(asked.owner, asked.requester)
        created = await admin.create_delegation_token(
            [each.partition(":")[2] for each in renewers],
            owner=None if owner == user else owner,
            max_lifetime_ms=lifetime_ms,
        )
        self._world.note(user, f"has created {created.token_id} for {owner}")
        self._found(checker.created(created, began_ms, asked, lifetime_ms))

    async def _change(self, admin: Admin, name: str, user: str, known: KnownToken) -> None:
        """Renew a token, let it expire soon, or remove it."""
        random, checker = self._random, self._checker
        kind = random.choice(("renew", "renew", "expire", "remove"))
        period_ms: int | None = None
        if kind == "renew":
            period_ms = random.choice((1, 500, 2_000, 10 * _HOUR_MS, 200 * _HOUR_MS))
        elif kind == "expire":
            period_ms = random.choice((0, 500, 2_000, 200 * _HOUR_MS))
        began_ms, before = self._world.now_ms, known.present
        if known.may_be_changed_by(user):
            checker.changes(known, removes=kind == "remove")
        self._world.note(name, f"({user}) {kind} {known.token.token_id} {period_ms}")
        hmac = known.token.hmac
        try:
            if kind == "renew":
                expiry_ms = await admin.renew_delegation_token(hmac, period_ms=period_ms)
            else:
                expiry_ms = await admin.expire_delegation_token(hmac, period_ms=period_ms)
        except OdradekError as problem:
            self._world.note(name, f"is refused: {problem}")
            code = problem.code if problem.code in _REFUSALS else None
            is_again = kind == "renew" and self._world.now_ms - began_ms >= _FIRST_ATTEMPT_MS
            if is_again and known.may_be_changed_by(user):
                # The refusal is not conclusive: an earlier attempt of the same request may have
                # been successful.
                code = None
            self._found(checker.change_refused(known, user, began_ms, before, code))
            if code is None:
                raise
            return
        if kind == "renew" and period_ms is not None:
            period_ms = min(period_ms, _EXPIRY_MS)
        self._world.note(name, f"has changed {known.token.token_id}: {expiry_ms}")
        self._found(checker.changed(known, user, began_ms, expiry_ms, period_ms))
        if self._world.now_ms - began_ms >= _REQUEST_TIMEOUT_MS:
            # An earlier attempt of the request may still be executed.
            checker.changes(known, removes=kind == "remove")

    # --- Holders ---

    async def _hold(self, name: str) -> None:
        tokens = list(self._checker.tokens.values())
        if not tokens:
            await self._world.sleep(50)
            return
        there = [each for each in tokens if not each.present.gone]
        known = self._random.choice(there if there and self._random.random() < 0.7 else tokens)
        await self._use(name, known, self._random.choice((0, 0, 300, 3_000)))

    async def _use(self, name: str, known: KnownToken, pause_ms: int) -> None:
        """Log in with a token, and use the connection once more after a pause."""
        began_ms = asked_ms = self._world.now_ms
        try:
            async with self._with(known) as admin:
                await self._look(admin, name, known, began_ms, began_ms)
                if pause_ms:
                    await self._world.sleep(pause_ms)
                    asked_ms = self._world.now_ms
                    await self._look(admin, name, known, asked_ms, began_ms)
        except AuthenticationFailed as problem:
            self._world.note(name, f"cannot log in with {known.token.token_id}: {problem}")
            self._found(self._checker.login_refused(known, asked_ms))

    async def _look(
        self, admin: Admin, name: str, known: KnownToken, began_ms: int, authenticated_ms: int
    ) -> None:
        """Check that the login sees only the topic of the token's owner, and is refused when it
        describes tokens."""
        topics = list(await admin.list_topics())
        self._world.note(name, f"sees {topics} with {known.token.token_id}")
        self._found(self._checker.logged_in(known, began_ms, authenticated_ms))
        owner = known.token.owner.partition(":")[2]
        if topics != [f"of-{owner}"]:
            self._problems.append(f"{known.name} sees the topics {topics}")
        try:
            await admin.describe_delegation_token()
        except OdradekError as problem:
            if problem.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
                return
            raise
        self._problems.append(f"{known.name} describes tokens")

    # --- Readers ---

    async def _read(self, name: str) -> None:
        random = self._random
        user = random.choice(_USERS)
        async with self._as_user(user) as admin:
            for _ in range(random.randint(1, 5)):
                owners = random.choice((None, None, (user,), ("alice",), ("dora", "bob"), ()))
                await self._describe(admin, user, owners)
                await self._world.sleep(random.choice((1, 100, 300)))

    async def _describe(self, admin: Admin, user: str, owners: tuple[str, ...] | None) -> None:
        began_ms, known_before = self._world.now_ms, tuple(self._checker.tokens)
        found = await admin.describe_delegation_token(owners)
        self._world.note(user, f"sees {len(found)} tokens of {owners}")
        self._found(self._checker.described(user, owners, found, began_ms, known_before))

    # --- The end ---

    async def check(self) -> Iterator[str]:
        """Check all tokens after a power cut."""
        await self._world.kill_broker(power_lost=True, down_ms=0)
        for user in _USERS:
            async with self._as_user(user) as admin:
                await self._describe(admin, user, None)
        tokens = list(self._checker.tokens.values())
        for known in tokens[-_LAST_LOOKS_MAX:]:
            await self._use("last look", known, 0)
        return iter(self._problems)


_REFUSALS = (
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    ErrorCode.DELEGATION_TOKEN_EXPIRED,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
)
