"""The users of PLAIN: users in the configuration, with their passwords, and users in a file, with
hashes of their passwords.

A wrong password and an unknown user take the same time. Hashes are computed in another thread, one
at a time; the addresses of waiting clients take turns. A keyed hash of each correct password is
kept, so that no scrypt hash has to be computed when the client connects again (A-44).
"""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from odradek_broker.deferred import Deferred
from odradek_broker.security.passwords import (
    PasswordHash,
    PasswordHashError,
    parse_password_hash,
)
from odradek_broker.security.sasl import OTHER_USER, Authenticated, SaslFailure, SaslServer, Step
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.plain import parse_plain

WRONG = "Authentication failed: Invalid username or password"
BUSY = "too many passwords are waiting to be checked"
#: The maximum number of users in a file.
_USERS_MAX = 100_000
#: The maximum number of characters in a user's name.
_NAME_CHARACTERS_MAX = 1_024
#: The maximum number of correct passwords whose keyed hashes are kept.
_REMEMBERED_MAX = 10_000
#: The maximum number of passwords of one address that wait to be checked. Further passwords are
#: refused immediately.
_WAITING_MAX = 100
#: The maximum number of addresses with waiting passwords.
_ADDRESSES_WAITING_MAX = 1_000
#: The maximum length of a password. It also limits the time that a hash takes.
_PASSWORD_CHARACTERS_MAX = 1_024

Work = Callable[[], None]
Done = Callable[[Exception | None], None]
#: A function that runs the work in another thread, and then calls `Done` on the event loop.
Beside = Callable[[Work, Done], None]


class UsersFileError(ValueError):
    """The error for an unusable file of users; the text names the line and the problem."""


def parse_users(text: str) -> dict[str, PasswordHash]:
    """The users of a file: NAME:HASH in each line; empty lines and lines that begin with # are
    ignored.

    Raises UsersFileError.
    """
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        # Hashes contain no colon.
        name, colon, hashed = line.rpartition(":")
        if not colon or not name or len(name) > _NAME_CHARACTERS_MAX:
            raise UsersFileError(f"line {number} must be NAME:HASH")
        if name in users:
            raise UsersFileError(f"line {number} has a user that was there before")
        if len(users) >= _USERS_MAX:
            raise UsersFileError(f"line {number} is of more than {_USERS_MAX} users")
        try:
            users[name] = parse_password_hash(hashed)
        except PasswordHashError as problem:
            raise UsersFileError(f"line {number} has no usable hash: {problem}") from None
    return users


class _Queue:
    """Work that waits: the addresses take turns, so that no address delays another for long."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        #: The waiting work of each address. The addresses are in the order of their turns.
        self._waiting: dict[str, deque[tuple[Work, Done]]] = {}
        self._running = False

    def add(self, host: str, work: Work, done: Done) -> bool:
        """Add work; False if too much work waits already."""
        own = self._waiting.get(host)
        if own is None:
            if len(self._waiting) >= _ADDRESSES_WAITING_MAX:
                return False
            own = self._waiting[host] = deque()
        if len(own) >= _WAITING_MAX:
            return False
        own.append((work, done))
        self._next()
        return True

    def _next(self) -> None:
        if self._running or not self._waiting:
            return
        host, own = next(iter(self._waiting.items()))
        work, done = own.popleft()
        del self._waiting[host]
        if own:
            self._waiting[host] = own
        self._running = True

        def over(problem: Exception | None) -> None:
            self._running = False
            done(problem)
            self._next()

        self._beside(work, over)


class PlainUsers:
    """The users of PLAIN. `passwords`: the passwords by user name, in the clear. `secret`: 32
    random bytes of this process.
    """

    def __init__(self, passwords: Mapping[str, str], secret: bytes, beside: Beside) -> None:
        self._passwords = dict(passwords)
        self._secret = secret
        self._queue = _Queue(beside)
        self._hashes: dict[str, PasswordHash] = {}
        #: The keyed hash of the correct password, by user.
        self._right: dict[str, bytes] = {}
        #: The hash for unknown users. It matches no password, and checking it takes as long as
        #: checking the hash of a known user.
        self._nobody = PasswordHash(secret, secret)

    def knows(self, name: str) -> bool:
        return name in self._passwords or name in self._hashes

    def use_hashes(self, hashes: dict[str, PasswordHash]) -> dict[str, PasswordHash]:
        """Replace all earlier hashes of users by `hashes`. Returns the earlier ones."""
        self._right.clear()
        earlier, self._hashes = self._hashes, hashes
        if self._hashes:
            like = next(iter(self._hashes.values()))
            self._nobody = replace(like, salt=self._secret, key=self._secret)
        return earlier

    def check(self, host: str, name: str, password: str) -> bool | Deferred[bool] | None:
        """True if the password is this user's; None if too many checks for the client's address are
        waiting."""
        seen = self._keyed(password)
        given = self._passwords.get(name)
        if hmac.compare_digest(self._keyed(given or ""), seen) and given:
            return True
        if not self._hashes or len(password) > _PASSWORD_CHARACTERS_MAX:
            return False
        if hmac.compare_digest(self._right.get(name, b""), seen):
            return True
        stored = self._hashes.get(name)
        against = stored or self._nobody
        answer: Deferred[bool] = Deferred()
        found: list[bool] = []

        def done(problem: Exception | None) -> None:
            # The user's hash may have been replaced while this check waited.
            right = found == [True] and stored is not None and self._hashes.get(name) is stored
            if right:
                self._remember(name, seen)
            answer.resolve(right)

        taken = self._queue.add(host, lambda: found.append(against.fits(password)), done)
        return answer if taken else None

    def _keyed(self, password: str) -> bytes:
        return hmac.digest(self._secret, hashlib.sha256(password.encode()).digest(), "sha256")

    def _remember(self, name: str, seen: bytes) -> None:
        self._right.pop(name, None)
        while len(self._right) >= _REMEMBERED_MAX:
            del self._right[next(iter(self._right))]
        self._right[name] = seen


class PlainMechanism:
    """PLAIN with these users."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def begin(self, host: str) -> SaslServer:
        return _PlainExchange(self._users, host)


class _PlainExchange:
    def __init__(self, users: PlainUsers, host: str) -> None:
        self._users = users
        self._host = host

    def step(self, token: bytes) -> Step | Deferred[Step]:
        try:
            message = parse_plain(token)
        except SaslMessageError as problem:
            return SaslFailure(str(problem), str(problem))
        name = message.username
        if message.authorization_id not in ("", name):
            return SaslFailure(OTHER_USER, OTHER_USER)
        right = self._users.check(self._host, name, message.password)
        if isinstance(right, Deferred):
            return right.map(lambda is_right: self._ended(name, is_right))
        if right is None:
            return SaslFailure(BUSY, BUSY)
        return self._ended(name, right)

    def _ended(self, name: str, right: bool) -> Step:
        if right:
            return Authenticated(name)
        # Unknown names are not logged, because a client may have sent a password as the name.
        who = f"a wrong password for user {name!r}" if self._users.knows(name) else "no such user"
        return SaslFailure(f"PLAIN: {who}", WRONG)
