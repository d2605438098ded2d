"""The checker of delegation tokens finds histories that are wrong on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from tests.sim.checkers.delegation_tokens import FollowedClock, KnownToken, TokenChecker

from odradek_client.admin import DelegationToken
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.clock import WALL_START_MS

EXPIRY_MS, LIFETIME_MS = 10_000, 30_000
ASKED = DelegationToken("", b"", "User:alice", "User:bob", ("User:dora",), 0, 0, 0)


class Loop:
    """A fake event loop whose time the test sets."""

    now_ms = 0

    def time(self) -> float:
        """The time in seconds."""
        return self.now_ms / 1000


class World:
    """A checker that knows one token: alice owns it, bob created it, and dora may renew it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.clock = FollowedClock(cast("Any", self.loop))
        self.checker = TokenChecker(
            self.clock, lambda user, _: user == "carol", EXPIRY_MS, LIFETIME_MS
        )
        start = WALL_START_MS
        self.token = replace(
            ASKED,
            token_id="id",
            hmac=b"hmac",
            issue_timestamp_ms=start,
            expiry_timestamp_ms=start + EXPIRY_MS,
            max_timestamp_ms=start + LIFETIME_MS,
        )
        self.checker.creates(ASKED.owner, ASKED.requester)
        assert self.created(self.token) == []

    def created(self, token: DelegationToken) -> list[str]:
        """Return the violations of an acknowledged creation of this token."""
        return list(self.checker.created(token, self.loop.now_ms, ASKED, None))

    @property
    def known(self) -> KnownToken:
        return self.checker.tokens["id"]

    def renewed(self, user: str, expiry_ms: int) -> list[str]:
        """Return the violations of an acknowledged renewal by the user for 1,000 ms."""
        if self.known.may_be_changed_by(user):
            self.checker.changes(self.known, removes=False)
        now_ms = self.loop.now_ms
        return list(self.checker.changed(self.known, user, now_ms, expiry_ms, 1_000))

    def removed(self) -> None:
        self.checker.changes(self.known, removes=True)
        assert list(self.checker.changed(self.known, "alice", self.loop.now_ms, 0, None)) == []

    def seen_by(
        self, user: str, *found: DelegationToken, owners: tuple[str, ...] | None = None
    ) -> list[str]:
        """Return the violations of a DescribeDelegationToken response with the tokens `found`."""
        now_ms = self.loop.now_ms
        return list(self.checker.described(user, owners, found, now_ms, ("id",)))

    def logged_in(self) -> list[str]:
        """Return the violations of a successful login with the token."""
        now_ms = self.loop.now_ms
        return list(self.checker.logged_in(self.known, now_ms, now_ms))

    def refused(self) -> list[str]:
        """Return the violations of a refused login with the token."""
        return list(self.checker.login_refused(self.known, self.loop.now_ms))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"owner": "User:bob"}, "was to be of owner"),
        ({"issue_timestamp_ms": WALL_START_MS - 1}, "which is not the time"),
        ({"max_timestamp_ms": WALL_START_MS + LIFETIME_MS + 1}, "may last until"),
        ({"expiry_timestamp_ms": WALL_START_MS + LIFETIME_MS}, "expires at"),
    ],
)
def test_a_token_unlike_its_request_is_a_violation(
    world: World, change: dict[str, Any], said: str
) -> None:
    world.checker.creates(ASKED.owner, ASKED.requester)
    problems = world.created(replace(world.token, token_id="other", **change))
    assert said in problems[0]


def test_wrong_and_unauthorized_renewals_are_violations(world: World) -> None:
    soon_ms = WALL_START_MS + 1_000
    assert world.renewed("alice", soon_ms) == []
    assert world.renewed("dora", soon_ms) == []
    assert world.renewed("bob", soon_ms) == ["bob has changed the token id of User:alice"]
    assert "which is not in 1000 ms" in world.renewed("alice", soon_ms + 5)[0]
    assert "may last until" in world.renewed("alice", WALL_START_MS + LIFETIME_MS + 1)[0]


def test_a_login_after_the_expiry_by_the_wall_clock_is_a_violation(world: World) -> None:
    assert world.logged_in() == []
    assert "cannot log in before it expires" in world.refused()[0]
    world.loop.now_ms = EXPIRY_MS + 1
    assert "has expired" in world.logged_in()[0]
    assert world.refused() == []
    world.clock.set_wrong(-5_000)
    assert world.logged_in() == []
    # The token may have been removed before the clock was set back.
    assert world.refused() == []


def test_a_session_that_outlives_its_token_is_a_violation(world: World) -> None:
    world.loop.now_ms = EXPIRY_MS + 1
    assert "has expired" in next(world.checker.logged_in(world.known, EXPIRY_MS + 1, 0))
    assert world.renewed("alice", WALL_START_MS + EXPIRY_MS + 1_001) == []
    assert list(world.checker.logged_in(world.known, EXPIRY_MS + 1, 0)) == []


def test_uses_of_a_removed_token_are_violations(world: World) -> None:
    world.removed()
    assert world.refused() == []
    assert world.logged_in() == ["the token id of User:alice was removed, and logs in"]
    (said,) = world.seen_by("alice", world.token)
    assert said == "the token id of User:alice was removed, and alice sees it"
    assert "and alice has changed it" in world.renewed("alice", WALL_START_MS + 1_000)[0]


def test_a_change_without_an_answer_may_have_been_made_or_not(world: World) -> None:
    world.checker.changes(world.known, removes=False)
    assert world.refused() == []
    world.loop.now_ms = LIFETIME_MS
    assert world.logged_in() == []
    assert world.seen_by("alice", world.token) == []
    world.loop.now_ms = LIFETIME_MS + 1
    assert world.logged_in() != []


def test_tokens_shown_to_or_hidden_from_the_wrong_users_are_violations(world: World) -> None:
    for user in ("alice", "bob", "dora", "carol"):
        assert world.seen_by(user, world.token) == []
    assert world.seen_by("eve", world.token) == ["eve sees the token id of User:alice"]
    assert world.seen_by("eve") == []
    assert "does not see the token id" in world.seen_by("bob")[0]
    assert world.seen_by("alice", owners=("carol",)) == []
    assert "has asked for ('carol',)" in world.seen_by("alice", world.token, owners=("carol",))[0]


def test_a_described_token_unlike_the_created_one_is_a_violation(world: World) -> None:
    later = replace(world.token, expiry_timestamp_ms=world.token.expiry_timestamp_ms + 1)
    assert "was to expire at" in world.seen_by("alice", later)[0]
    other = replace(world.token, renewers=())
    assert "was created as" in world.seen_by("alice", other)[0]
    unknown = replace(world.token, token_id="unknown")
    assert "which nobody has made" in world.seen_by("alice", world.token, unknown)[0]
    world.checker.creates(ASKED.owner, ASKED.requester)
    assert world.seen_by("alice", world.token, unknown) == []


def test_a_token_seen_as_missing_may_not_log_in_again(world: World) -> None:
    world.loop.now_ms = EXPIRY_MS + 1
    assert world.seen_by("alice") == []
    world.clock.set_wrong(-5_000)
    assert "was removed, and logs in" in world.logged_in()[0]


@pytest.mark.parametrize(
    ("user", "code", "said"),
    [
        ("alice", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "of which alice is owner or renewer"),
        ("alice", ErrorCode.DELEGATION_TOKEN_EXPIRED, "has expired for alice"),
        ("bob", ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "is not there for bob"),
        ("bob", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, None),
        ("alice", None, None),
    ],
)
def test_refusals_without_a_reason_are_violations(
    world: World, user: str, code: ErrorCode | None, said: str | None
) -> None:
    before = world.known.present
    if world.known.may_be_changed_by(user):
        world.checker.changes(world.known, removes=False)
    problems = list(world.checker.change_refused(world.known, user, 0, before, code))
    assert len(problems) == (said is not None)
    assert all(str(said) in problem for problem in problems)
    assert world.known.changing == (code is None)
