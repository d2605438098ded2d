"""Delegation tokens: acknowledged tokens survive crashes, expired and removed tokens never
reappear, and no user sees or changes more than Kafka allows.

After an acknowledged change of a token, the checker knows the exact expiry; after a change without
an answer, it knows bounds of the expiry. Expiries and other timestamps of tokens are by the wall
clock; all other times are virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from odradek_client.admin import DelegationToken
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.clock import LoopClock

#: True if a user may see a token that does not concern that user.
MaySee = Callable[[str, DelegationToken], bool]


class FollowedClock(LoopClock):
    """The clocks of a broker, and the history of the difference between wall clock and virtual
    time."""

    __slots__ = ("_differences",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        #: (virtual time in ms, difference in ms from then on), where the difference is the wall
        #: clock minus virtual time.
        self._differences = [(0, self.wall_ms() - self.monotonic_ms())]

    def jump(self, by_ms: int) -> None:
        """See `LoopClock`."""
        super().jump(by_ms)
        self._note()

    def set_wrong(self, by_ms: int) -> None:
        """See `LoopClock`."""
        super().set_wrong(by_ms)
        self._note()

    def _note(self) -> None:
        now_ms = self.monotonic_ms()
        self._differences.append((now_ms, self.wall_ms() - now_ms))

    def ahead_ms(self, since_ms: int) -> tuple[int, int]:
        """The minimum and the maximum, since `since_ms`, of the wall clock minus virtual time, in
        ms."""
        before = [each for each in self._differences if each[0] <= since_ms][-1:]
        after = [each for each in self._differences if each[0] > since_ms]
        ahead = [difference for _, difference in before + after]
        return min(ahead), max(ahead)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The known state of a token from `from_ms` on.

    `least_ms` and `most_ms` are bounds of its expiry by the wall clock; `there_ms` is the last time
    at which the token certainly existed.
    """

    from_ms: int
    there_ms: int
    least_ms: int
    most_ms: int
    may_be_gone: bool = False
    gone: bool = False


class KnownToken:
    """A token whose creation was acknowledged. `changing`: a change of the token has no answer
    yet."""

    def __init__(self, token: DelegationToken, began_ms: int, now_ms: int) -> None:
        self.token = token
        self.changing = False
        expiry_ms = token.expiry_timestamp_ms
        self._bounds = [Bounds(now_ms, began_ms, expiry_ms, expiry_ms)]

    @property
    def name(self) -> str:
        """The name of the token in violations."""
        return f"the token {self.token.token_id} of {self.token.owner}"

    @property
    def present(self) -> Bounds:
        """The newest known state."""
        return self._bounds[-1]

    def becomes(self, bounds: Bounds) -> None:
        """Add a newer state, unless the token has certainly expired or been removed."""
        if not self.present.gone:
            self._bounds.append(bounds)

    def since(self, began_ms: int) -> Bounds:
        """Merge all states since `began_ms` into one. The result's `gone` is true only if `gone`
        is true in every merged state."""
        before = [each for each in self._bounds if each.from_ms <= began_ms][-1:]
        states = before + [each for each in self._bounds if each.from_ms > began_ms]
        return Bounds(
            states[0].from_ms,
            min(each.there_ms for each in states),
            min(each.least_ms for each in states),
            max(each.most_ms for each in states),
            any(each.may_be_gone or each.gone for each in states),
            all(each.gone for each in states),
        )

    def concerns(self, user: str) -> bool:
        """True if the user is the token's owner, requester or renewer."""
        principal = f"User:{user}"
        return principal in (self.token.owner, self.token.requester, *self.token.renewers)

    def may_be_changed_by(self, user: str) -> bool:
        """True if the user is the token's owner or renewer."""
        return f"User:{user}" in (self.token.owner, *self.token.renewers)


class TokenChecker:
    """Checks each answer about tokens. `expiry_ms`, `lifetime_ms`: the broker's settings."""

    def __init__(
        self, clock: FollowedClock, may_see: MaySee, expiry_ms: int, lifetime_ms: int
    ) -> None:
        self._clock = clock
        self._may_see = may_see
        self._expiry_ms = expiry_ms
        self._lifetime_ms = lifetime_ms
        self.tokens: dict[str, KnownToken] = {}
        #: (owner, requester) of each creation that has no answer: the token may exist.
        self._unanswered: list[tuple[str, str]] = []

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _is_after(self, wall_ms: int, period_ms: int, began_ms: int) -> bool:
        """True if `wall_ms` minus `period_ms` is a time that the wall clock may have shown between
        `began_ms` and now."""
        least, most = self._clock.ahead_ms(began_ms)
        return began_ms + least <= wall_ms - period_ms <= self._now_ms() + most

    def _may_have_expired(self, bounds: Bounds, since_ms: int) -> bool:
        _, most = self._clock.ahead_ms(since_ms)
        return self._now_ms() + most > bounds.least_ms

    def _may_be_removed(self, bounds: Bounds) -> bool:
        return bounds.may_be_gone or self._may_have_expired(bounds, bounds.there_ms)

    # --- Changes ---

    def creates(self, owner: str, requester: str) -> None:
        """Called when a token is about to be created."""
        self._unanswered.append((owner, requester))

    def created(
        self, token: DelegationToken, began_ms: int, asked: DelegationToken, lifetime_ms: int | None
    ) -> Iterator[str]:
        """Note a created token, and check it. `asked`: the requested owner, requester and
        renewers."""
        self._unanswered.remove((asked.owner, asked.requester))
        known = self.tokens[token.token_id] = KnownToken(token, began_ms, self._now_ms())
        wanted = (asked.owner, asked.requester, asked.renewers)
        if wanted != (token.owner, token.requester, token.renewers):
            yield f"{known.name} was to be of owner, requester and renewers {wanted}"
        issued_ms = token.issue_timestamp_ms
        if not self._is_after(issued_ms, 0, began_ms):
            yield f"{known.name} was issued at {issued_ms}, which is not the time"
        end_ms = issued_ms + min(lifetime_ms or self._lifetime_ms, self._lifetime_ms)
        if token.max_timestamp_ms != end_ms:
            yield f"{known.name} may last until {token.max_timestamp_ms} instead of {end_ms}"
        expiry_ms = min(end_ms, issued_ms + self._expiry_ms)
        if token.expiry_timestamp_ms != expiry_ms:
            yield f"{known.name} expires at {token.expiry_timestamp_ms} instead of {expiry_ms}"

    def changes(self, known: KnownToken, *, removes: bool) -> None:
        """Called when an authorized user is about to change the expiry of a token or to remove
        it."""
        known.changing = True
        bounds = replace(known.present, from_ms=self._now_ms())
        if removes:
            known.becomes(replace(bounds, may_be_gone=True))
        else:
            most_ms = known.token.max_timestamp_ms
            known.becomes(replace(bounds, least_ms=0, most_ms=most_ms))

    def changed(
        self, known: KnownToken, user: str, began_ms: int, expiry_ms: int, period_ms: int | None
    ) -> Iterator[str]:
        """Check an acknowledged change, and note it.

        `period_ms`: the requested period until the expiry; None if the token was removed.
        """
        if not known.may_be_changed_by(user):
            yield f"{user} has changed {known.name}"
        elif known.since(began_ms).gone:
            yield f"{known.name} was removed, and {user} has changed it"
        known.changing = False
        now_ms = self._now_ms()
        if period_ms is None:
            known.becomes(replace(known.present, from_ms=now_ms, gone=True))
            return
        end_ms = known.token.max_timestamp_ms
        if expiry_ms > end_ms:
            yield f"{known.name} expires at {expiry_ms}, and may last until {end_ms}"
        elif expiry_ms < end_ms and not self._is_after(expiry_ms, period_ms, began_ms):
            yield f"{known.name} expires at {expiry_ms}, which is not in {period_ms} ms"
        known.becomes(Bounds(now_ms, began_ms, expiry_ms, expiry_ms))

    def change_refused(
        self, known: KnownToken, user: str, began_ms: int, before: Bounds, code: ErrorCode | None
    ) -> Iterator[str]:
        """Check a refused change.

        `before`: the state of the token before the request. `code`: None if the outcome is not
        known.
        """
        may_change = known.may_be_changed_by(user)
        # Among the users who have the right to change a token, only one changes it at a time.
        bounds = before if may_change else known.since(began_ms)
        if code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH:
            if may_change:
                yield f"{user} may not change {known.name}, of which {user} is owner or renewer"
        elif code is ErrorCode.DELEGATION_TOKEN_EXPIRED:
            if not self._may_have_expired(bounds, began_ms):
                yield f"{known.name} has expired for {user}, before {bounds.least_ms}"
        elif code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND and not self._may_be_removed(bounds):
            yield f"{known.name} is not there for {user}, who wants to change it"
        if may_change and code is not None:
            # A refused request leaves the state unchanged.
            known.changing = False
            known.becomes(replace(before, from_ms=self._now_ms()))

    # --- Logins ---

    def logged_in(self, known: KnownToken, began_ms: int, authenticated_ms: int) -> Iterator[str]:
        """Check a request that was answered on a connection authenticated by this token.

        The request began at `began_ms`, the authentication of its connection at `authenticated_ms`.
        """
        bounds = known.since(began_ms)
        least, _ = self._clock.ahead_ms(authenticated_ms)
        most_ms = known.since(authenticated_ms).most_ms
        if bounds.gone and authenticated_ms == began_ms:
            yield f"{known.name} was removed, and logs in"
        elif began_ms + least > most_ms:
            yield f"{known.name} has expired at {most_ms}, and is in use {began_ms + least}"

    def login_refused(self, known: KnownToken, began_ms: int) -> Iterator[str]:
        """Check a refused login."""
        bounds = known.since(began_ms)
        if not self._may_be_removed(bounds):
            yield f"{known.name} cannot log in before it expires, at {bounds.least_ms}"

    # --- Descriptions ---

    def described(
        self,
        user: str,
        owners: Collection[str] | None,
        found: Iterable[DelegationToken],
        began_ms: int,
        known_before: Collection[str],
    ) -> Iterator[str]:
        """Check the tokens that a user gets described.

        `owners`: the owners whose tokens were requested, None for all. `known_before`: the ids of
        the tokens that were known when the request began.
        """
        by_id = {token.token_id: token for token in found}
        for token_id, token in by_id.items():
            known = self.tokens.get(token_id)
            if known is not None:
                yield from self._described_one(user, known, token, began_ms)
            elif (token.owner, token.requester) not in self._unanswered:
                yield f"{user} sees the token {token_id} of {token.owner}, which nobody has made"
        for token_id in known_before:
            known = self.tokens[token_id]
            asked = owners is None or any(map(known.concerns, owners))
            if token_id in by_id:
                if not asked:
                    yield f"{user} has asked for {owners}, and sees {known.name}"
            elif asked and self._is_visible(user, known):
                yield from self._missing(user, known, began_ms)

    def _is_visible(self, user: str, known: KnownToken) -> bool:
        return known.concerns(user) or self._may_see(user, known.token)

    def _described_one(
        self, user: str, known: KnownToken, token: DelegationToken, began_ms: int
    ) -> Iterator[str]:
        bounds = known.since(began_ms)
        if bounds.gone:
            yield f"{known.name} was removed, and {user} sees it"
        if not self._is_visible(user, known):
            yield f"{user} sees {known.name}"
        expiry_ms = token.expiry_timestamp_ms
        if replace(token, expiry_timestamp_ms=known.token.expiry_timestamp_ms) != known.token:
            yield f"{known.name} was created as {known.token}, and {user} sees {token}"
        if not bounds.least_ms <= expiry_ms <= bounds.most_ms:
            wanted = f"{bounds.least_ms} to {bounds.most_ms}"
            yield f"{known.name} expires at {expiry_ms} for {user}, and was to expire at {wanted}"

    def _missing(self, user: str, known: KnownToken, began_ms: int) -> Iterator[str]:
        bounds = known.since(began_ms)
        if not self._may_be_removed(bounds):
            yield f"{user} does not see {known.name}, which expires at {bounds.least_ms}"
        else:
            # The broker answers only with durable state, so the removal of the token is final.
            known.becomes(replace(known.present, from_ms=self._now_ms(), gone=True))
