"""SCRAM credentials in the cluster metadata (KIP-554): pure functions from the state to records and
answers. Codes, order and texts are those of Kafka's controller (A-40, A-41)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of,
)
from odradek_protocol.stored.cluster_metadata import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

#: The maximum number of users with credentials; nothing else limits their number.
_USERS_MAX = 100_000
_NAME_CHARACTERS_MAX = 1_024
#: The maximum length of a salt. Kafka's salts have 32 bytes. There is a limit because salts come
#: from clients and are kept in the metadata log.
_SALT_BYTES_MAX = 1_024


@dataclass(frozen=True)
class ScramDeletion:
    """A credential to remove. `mechanism`: the number of the mechanism, which need not be valid."""

    user: str
    mechanism: int


@dataclass(frozen=True)
class ScramUpsertion:
    """A credential to add or to replace."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass
class ScramResult:
    """The answer for one user."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_scram_credentials(
    metadata: ClusterMetadata, changes: Sequence[ScramDeletion | ScramUpsertion]
) -> tuple[list[MetadataRecord], list[ScramResult]]:
    """The records of the valid changes, and one answer for each user.

    If the request names a user twice, even with different mechanisms, no credential of the user
    changes.
    """
    records: dict[str, MetadataRecord] = {}
    refused: dict[str, ScramResult] = {}
    new_users = 0
    for change in changes:
        user = change.user
        if user in refused:
            continue
        try:
            if records.pop(user, None) is not None:
                raise AdminError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            if isinstance(change, ScramDeletion):
                records[user] = _deletion(metadata, change)
            else:
                records[user] = _upsertion(metadata, change, new_users)
                new_users += user not in metadata.scram_credentials
        except AdminError as error:
            refused[user] = ScramResult(user, error.error, error.message)
    results = [ScramResult(user) for user in records]
    return list(records.values()), [*results, *refused.values()]


def credential_record(
    user: str, mechanism: ScramMechanism, credential: ScramCredential
) -> UserScramCredentialRecord:
    """The record of a user's credential."""
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _mechanism(user: str, number: int) -> ScramMechanism:
    if not user:
        raise AdminError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = ScramMechanism.of_number(number)
    if mechanism is None:
        raise AdminError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _deletion(metadata: ClusterMetadata, change: ScramDeletion) -> MetadataRecord:
    mechanism = _mechanism(change.user, change.mechanism)
    if mechanism not in metadata.scram_credentials.get(change.user, {}):
        raise AdminError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    return RemoveUserScramCredentialRecord(name=change.user, mechanism=mechanism.number)


def _upsertion(metadata: ClusterMetadata, change: ScramUpsertion, new_users: int) -> MetadataRecord:
    """The record of a credential. Raises AdminError. `new_users`: users that get their first
    credential earlier in the request."""
    mechanism = _mechanism(change.user, change.mechanism)
    if change.iterations < ITERATIONS_MIN:
        raise AdminError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise AdminError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    problem = _beyond_limits(metadata, change, new_users)
    if problem:
        raise AdminError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    credential = credential_of(
        mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )
    return credential_record(change.user, mechanism, credential)


def _beyond_limits(metadata: ClusterMetadata, change: ScramUpsertion, new_users: int) -> str:
    """The reason why a credential exceeds a limit of this broker; Kafka has no such limits."""
    users = len(metadata.scram_credentials) + new_users
    if users >= _USERS_MAX and change.user not in metadata.scram_credentials:
        return f"{_USERS_MAX} users have credentials already; remove some of them first"
    if len(change.user) > _NAME_CHARACTERS_MAX:
        return f"The user name is longer than {_NAME_CHARACTERS_MAX} characters"
    if len(change.salt) > _SALT_BYTES_MAX:
        return f"The salt is longer than {_SALT_BYTES_MAX} bytes"
    mechanism = ScramMechanism.of_number(change.mechanism)
    if mechanism is not None and len(change.salted_password) != mechanism.key_bytes:
        return f"The salted password of {mechanism.mechanism} has {mechanism.key_bytes} bytes"
    return ""


def describe_scram_credentials(
    metadata: ClusterMetadata, user: str, times: int = 1
) -> tuple[ScramResult, Mapping[ScramMechanism, ScramCredential]]:
    """The answer for a user, with the user's credentials. `times`: how often the request names the
    user."""
    credentials = metadata.scram_credentials.get(user, {})
    result = ScramResult(user)
    if times > 1:
        result.error = ErrorCode.DUPLICATE_RESOURCE
        result.message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not credentials:
        result.error = ErrorCode.RESOURCE_NOT_FOUND
        result.message = f"Attempt to describe a user credential that does not exist: {user}"
    return result, {} if result.error else credentials
