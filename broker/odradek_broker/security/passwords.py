"""Hashes of passwords in a users file: scrypt, of the standard library.

scrypt$14$8$1$SALT$KEY      log2 of the cost, block size, parallelism; salt and key in base64
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import field

from odradek_protocol.lazy_dataclass import dataclass

_SCHEME = "scrypt"
#: With this cost, each hash takes 16 MiB and about 50 ms.
LOG_COST = 14
BLOCK_SIZE = 8
PARALLELISM = 1
SALT_BYTES = 16
_KEY_BYTES = 32
#: The values of log2 of the cost that a file may use; the highest needs 256 MiB.
_LOG_COST_RANGE = range(10, 19)
_BLOCK_SIZE_MAX = 8
_PARALLELISM_MAX = 4
_SALT_BYTES = range(8, 65)
_HASH = re.compile(
    r"scrypt\$([0-9]{1,2})\$([0-9]{1,2})\$([0-9]{1,2})\$([A-Za-z0-9+/=]{1,200})\$([A-Za-z0-9+/=]{1,200})"
)


class PasswordHashError(ValueError):
    """The error for a text that is no password hash. The message contains no part of the text."""


@dataclass(frozen=True)
class PasswordHash:
    """A salted hash of one password."""

    salt: bytes = field(repr=False)
    key: bytes = field(repr=False)
    log_cost: int = LOG_COST
    block_size: int = BLOCK_SIZE
    parallelism: int = PARALLELISM

    def fits(self, password: str) -> bool:
        """True if the hash is that of the password. Takes tens of milliseconds and tens of
        megabytes."""
        return hmac.compare_digest(_derive(password, self), self.key)

    def __str__(self) -> str:
        parts = (self.log_cost, self.block_size, self.parallelism)
        texts = [base64.b64encode(each).decode() for each in (self.salt, self.key)]
        return "$".join((_SCHEME, *map(str, parts), *texts))


def hash_password(password: str, salt: bytes) -> PasswordHash:
    """The hash of a password; `salt`: SALT_BYTES random bytes."""
    return PasswordHash(salt, _derive(password, PasswordHash(salt, b"")))


def parse_password_hash(text: str) -> PasswordHash:
    """The hash in a text. Raises PasswordHashError with the problem."""
    found = _HASH.fullmatch(text)
    if found is None:
        raise PasswordHashError("it is not of the form scrypt$14$8$1$SALT$KEY")
    log_cost, block_size, parallelism = map(int, found.groups()[:3])
    try:
        salt, key = (base64.b64decode(each, validate=True) for each in found.groups()[3:])
    except binascii.Error:
        raise PasswordHashError("salt and key must be base64") from None
    if log_cost not in _LOG_COST_RANGE:
        raise PasswordHashError(
            f"log2 of the cost must be {_LOG_COST_RANGE[0]} to {_LOG_COST_RANGE[-1]}"
        )
    if not 1 <= block_size <= _BLOCK_SIZE_MAX or not 1 <= parallelism <= _PARALLELISM_MAX:
        raise PasswordHashError(
            f"block size and parallelism must be 1 to {_BLOCK_SIZE_MAX} and 1 to {_PARALLELISM_MAX}"
        )
    if len(salt) not in _SALT_BYTES or len(key) != _KEY_BYTES:
        raise PasswordHashError(
            f"it must have a salt of {_SALT_BYTES[0]} to {_SALT_BYTES[-1]} bytes and a key of {_KEY_BYTES}"
        )
    return PasswordHash(salt, key, log_cost, block_size, parallelism)


def _derive(password: str, made: PasswordHash) -> bytes:
    cost = 1 << made.log_cost
    return hashlib.scrypt(
        password.encode(),
        salt=made.salt,
        n=cost,
        r=made.block_size,
        p=made.parallelism,
        dklen=_KEY_BYTES,
        # The limit is a little above the needed memory, because OpenSSL refuses the exact amount.
        maxmem=128 * made.block_size * (cost + made.parallelism + 2) + 1_048_576,
    )
