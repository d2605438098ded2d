"""The first users of SCRAM. The broker creates these users at its start, so that they can create
further users (A-48).

    sasl.scram.initial.users=admin=env:ADMIN_PASSWORD,ops=file:/run/secrets/ops
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from odradek_broker.config.sasl_settings import INITIAL_USERS, USER_SOURCES
from odradek_broker.metadata.scram import credential_record
from odradek_broker.platform.seams import Randomness
from odradek_broker.server.host import StartError
from odradek_protocol.sasl.scram import ITERATIONS_MIN, ScramMechanism, new_credential
from odradek_protocol.stored.cluster_metadata import MetadataRecord
from odradek_protocol.tls import files
from odradek_protocol.tls.settings import TlsError

_SALT_BYTES = 26


def initial_user_records(
    texts: Sequence[str],
    present: Collection[str],
    randomness: Randomness,
    environment: Mapping[str, str] = os.environ,
) -> tuple[list[MetadataRecord], list[str]]:
    """The credentials of both mechanisms for users without credentials, and the names of these
    users.

    `present`: the users that have credentials; they stay unchanged. Raises StartError for a missing
    password.
    """
    records: list[MetadataRecord] = []
    names = []
    for text in texts:
        name, _, source = text.partition("=")
        if name in present or name in names:
            continue
        password = _password(name, source, environment)
        names.append(name)
        for mechanism in ScramMechanism:
            salt = randomness.below(1 << 8 * _SALT_BYTES).to_bytes(_SALT_BYTES, "big")
            credential = new_credential(mechanism, password, salt, ITERATIONS_MIN)
            records.append(credential_record(name, mechanism, credential))
    return records, names


def _password(name: str, source: str, environment: Mapping[str, str]) -> str:
    kind, _, where = source.partition(":")
    assert f"{kind}:" in USER_SOURCES, source
    if kind == "env":
        password = environment.get(where, "")
        missing = f"the environment has no variable {where}, or it is empty"
    else:
        try:
            lines = files.read(where).decode().splitlines()
        except TlsError as problem:
            raise StartError(f"{INITIAL_USERS}: the password of {name}: {problem}") from None
        except UnicodeDecodeError:
            raise StartError(
                f"{INITIAL_USERS}: the password of {name}: {where} is no UTF-8"
            ) from None
        password = lines[0] if lines else ""
        missing = f"the first line of {where} is empty"
    if not password:
        raise StartError(f"{INITIAL_USERS}: the password of {name}: {missing}")
    return password
