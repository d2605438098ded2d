"""The calls of the admin client about SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_client.admin.arguments import each_of, whole_number
from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results, settle
from odradek_client.errors import OdradekError, error_for
from odradek_protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    salted_password,
)
from odradek_protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek_protocol.schemas.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

SCRAM_MECHANISMS = tuple(each.mechanism for each in ScramMechanism)
_SALT_BYTES = 32


@dataclass(frozen=True)
class ScramCredentialInfo:
    """The part of a SCRAM credential that a broker discloses. `mechanism`: "SCRAM-SHA-256" or
    "SCRAM-SHA-512"."""

    mechanism: str
    iterations: int


@dataclass(frozen=True)
class UserScramCredentialUpsertion:
    """A credential to store. It replaces the user's credential of the same mechanism. `salt`: None
    for a random salt."""

    user: str
    password: str = field(repr=False)
    mechanism: str = ScramMechanism.SHA_512.mechanism
    iterations: int = ITERATIONS_MIN
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class UserScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: str = ScramMechanism.SHA_512.mechanism


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


class UserAdmin(AdminPart):
    """The calls about users."""

    async def describe_user_scram_credentials(
        self, users: str | Iterable[str] | None = None, *, raise_errors: bool = True
    ) -> Results[str, list[ScramCredentialInfo]]:
        """The credentials by user, for these users or for all users with credentials.

        Raises ClusterAuthorizationFailed, and Refused for a requested user without credentials.
        """
        if users is None:
            described = _described(await self.requests.retrying(lambda: self._describe(None)))
            found: Results[str, list[ScramCredentialInfo]] = Results()
            errors: dict[str, OdradekError] = {}
            for user, outcome in sorted(described.items()):
                if isinstance(outcome, OdradekError):
                    errors[user] = outcome
                else:
                    found[user] = outcome
            return settle(found, errors, raise_errors)
        wanted = each_of(users, str, "users", "the names of users")

        async def ask(asked: list[str]) -> Outcomes[str, list[ScramCredentialInfo]]:
            return _described(await self._describe(asked))

        return await self.requests.for_each(dict.fromkeys(wanted), ask, raise_errors)

    async def _describe(self, users: list[str] | None) -> DescribeUserScramCredentialsResponse:
        node_id = await self.network.least_loaded_node()
        names = None if users is None else [UserName(name=name) for name in users]
        request = DescribeUserScramCredentialsRequest(users=names)
        response: DescribeUserScramCredentialsResponse = await self.network.send(node_id, request)
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about="users")
        return response

    async def alter_user_scram_credentials(
        self,
        alterations: UserScramCredentialAlteration | Iterable[UserScramCredentialAlteration],
        *,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Store and delete credentials, at most one change for each user; returns results by user.

        Passwords are salted and hashed by this client, and not sent (C-78). Raises
        ClusterAuthorizationFailed, Refused for an invalid change (the deletion of a missing
        credential, two changes of one user), and ValueError for an empty name or password, an
        unknown mechanism, and iterations below 4096 or above 16384.
        """
        by_user: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {}
        kinds = (UserScramCredentialUpsertion, UserScramCredentialDeletion)
        given = [alterations] if isinstance(alterations, kinds) else list(alterations)
        for alteration in given:
            entry = _entry(alteration)
            by_user.setdefault(entry.name, []).append(entry)

        async def ask(asked: list[str]) -> Outcomes[str, None]:
            entries = [entry for user in asked for entry in by_user[user]]
            request = AlterUserScramCredentialsRequest(
                deletions=[each for each in entries if isinstance(each, ScramCredentialDeletion)],
                upsertions=[each for each in entries if isinstance(each, ScramCredentialUpsertion)],
            )
            response: AlterUserScramCredentialsResponse = await self.requests.to_controller(request)
            return {
                result.user: error_for(
                    result.error_code, result.error_message, about=f"user {result.user!r}"
                )
                if result.error_code
                else None
                for result in response.results
            }

        return await self.requests.for_each(by_user, ask, raise_errors)


def _described(
    response: DescribeUserScramCredentialsResponse,
) -> Outcomes[str, list[ScramCredentialInfo]]:
    return {
        result.user: error_for(
            result.error_code, result.error_message, about=f"user {result.user!r}"
        )
        if result.error_code
        else [
            ScramCredentialInfo(_mechanism_name(info.mechanism), info.iterations)
            for info in sorted(result.credential_infos, key=lambda info: info.mechanism)
        ]
        for result in response.results
    }


def _mechanism_name(number: int) -> str:
    mechanism = ScramMechanism.of_number(number)
    return f"UNKNOWN({number})" if mechanism is None else mechanism.mechanism


def _entry(
    alteration: UserScramCredentialAlteration,
) -> ScramCredentialDeletion | ScramCredentialUpsertion:
    kinds = (UserScramCredentialUpsertion, UserScramCredentialDeletion)
    if not isinstance(alteration, kinds):
        raise TypeError(
            f"alterations: a {type(alteration).__name__}; give UserScramCredentialUpsertion or"
            " UserScramCredentialDeletion"
        )
    mechanism = ScramMechanism.of_name(alteration.mechanism)
    if mechanism is None:
        raise ValueError(
            f"mechanism {alteration.mechanism!r} must be one of {', '.join(SCRAM_MECHANISMS)}"
        )
    if not alteration.user:
        raise ValueError("the name of the user is empty")
    if isinstance(alteration, UserScramCredentialDeletion):
        return ScramCredentialDeletion(name=alteration.user, mechanism=mechanism.number)
    if not alteration.password:
        raise ValueError(f"the password of user {alteration.user!r} is empty")
    iterations = whole_number(alteration.iterations, "iterations")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(
            f"iterations is {iterations}; it must be {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    salt = secrets.token_bytes(_SALT_BYTES) if alteration.salt is None else alteration.salt
    return ScramCredentialUpsertion(
        name=alteration.user,
        mechanism=mechanism.number,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, alteration.password, salt, iterations),
    )
