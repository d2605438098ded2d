"""SCRAM-SHA-256 and SCRAM-SHA-512: the keys (RFC 5802, RFC 7677, KIP-84).

As in Kafka, names and passwords are taken as they are, in UTF-8, and not prepared by SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import Enum

#: Kafka's bounds of iterations (KIP-554).
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384


class ScramMechanism(Enum):
    """A SCRAM mechanism of Kafka: its name, its number in messages, its hash function."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, mechanism: str, number: int, hash_name: str) -> None:
        self.mechanism = mechanism
        self.number = number
        self.hash_name = hash_name
        self.key_bytes: int = hashlib.new(hash_name).digest_size

    @classmethod
    def of_name(cls, mechanism: str) -> ScramMechanism | None:
        """The one with this name; None if there is none."""
        return next((each for each in cls if each.mechanism == mechanism), None)

    @classmethod
    def of_number(cls, number: int) -> ScramMechanism | None:
        """The one with this number; None if there is none."""
        return next((each for each in cls if each.number == number), None)


@dataclass(frozen=True)
class ScramCredential:
    """The values that a broker stores in place of a password. The server key is enough to
    impersonate the broker to the user."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Hi() of RFC 5802, which is PBKDF2. Takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential that a broker stores, from a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    server_key = _hmac(mechanism, salted, b"Server Key")
    return ScramCredential(salt, _hash(mechanism, client_key), server_key, iterations)


def new_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """The credential that a broker stores, from a password."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """The proof that a client knows the password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    signature = _hmac(mechanism, _hash(mechanism, client_key), auth_message)
    return _xor(client_key, signature)


def proof_is_right(
    mechanism: ScramMechanism, credential: ScramCredential, auth_message: bytes, proof: bytes
) -> bool:
    """True if a client's proof is of this credential; takes the same time for every proof."""
    if len(proof) != mechanism.key_bytes or len(credential.stored_key) != mechanism.key_bytes:
        return False
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    client_key = _xor(proof, signature)
    return hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key)


def server_signature(mechanism: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    """The proof that a broker has the user's credential."""
    return _hmac(mechanism, server_key, auth_message)


def server_signature_of_password(
    mechanism: ScramMechanism, salted: bytes, auth_message: bytes
) -> bytes:
    """The same, as a client expects it from the broker."""
    return server_signature(mechanism, _hmac(mechanism, salted, b"Server Key"), auth_message)
