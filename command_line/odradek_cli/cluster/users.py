"""`odradek user list|create|alter|delete|hash`: users of SCRAM and of PLAIN, and their
passwords."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, print_rows, tell
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin import Admin

app = Commands(
    help="List, create, alter, delete SCRAM users; hash passwords for PLAIN. Passwords come "
    "from the terminal, a file, the environment or standard input; only salted hashes of "
    "them are sent."
)

_DEFAULT_MECHANISM = "SCRAM-SHA-512"
_DEFAULT_ITERATIONS = 4096
_PASSWORD_CHARACTERS_MAX = 65_536

Name = Annotated[str, argument("NAME", "The user.")]


@dataclass(frozen=True)
class CredentialOptions:
    """The options of a SCRAM credential."""

    mechanism: Annotated[
        list[str] | None,
        option(
            "--mechanism -m NAME",
            f"SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. [default: {_DEFAULT_MECHANISM}]",
        ),
    ] = None
    iterations: Annotated[
        int, option("--iterations", "Number of iterations of the hash function: 4096 to 16384.")
    ] = _DEFAULT_ITERATIONS


@dataclass(frozen=True)
class PasswordOptions:
    """The options that say where a password is."""

    password_file: Annotated[
        str | None, option("--password-file FILE", "A file with the password; - is stdin.")
    ] = None
    password_env: Annotated[
        str | None, option("--password-env NAME", "An environment variable with the password.")
    ] = None

    def read(self, name: str) -> str:
        """The password of a user from the options, the terminal or standard input. Ends the
        program if there is none."""
        file, variable = self.password_file, self.password_env
        if file is not None and variable is not None:
            fail("--password-file and --password-env are given; leave one out", 2)
        if variable is not None:
            password = os.environ.get(variable)
            if password is None:
                fail(f"--password-env: the environment has no variable {variable}", 2)
        elif file is not None and file != "-":
            password = _first_line(file)
        elif file is None and sys.stdin.isatty():
            password = typer.prompt(
                f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
            )
        else:
            password = sys.stdin.readline(_PASSWORD_CHARACTERS_MAX).rstrip("\r\n")
        if not password:
            fail("the password is empty", 2)
        return str(password)


@app.command("list")
def list_(
    brokers: BrokerOptions,
    names: Annotated[
        list[str] | None, argument("[NAME]...", "The names of users. [default: all]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List users and the mechanisms that they have a password for.

    \b
    odradek user list
    odradek user list alice --json
    """

    found = brokers.ask(lambda admin: admin.describe_user_scram_credentials(names or None))
    rows = [
        {"user": user, "mechanism": info.mechanism, "iterations": info.iterations}
        for user, infos in found.items()
        for info in infos
    ]
    nothing = "there are no users of SCRAM"
    print_rows("USER MECHANISM ITERATIONS", rows, as_json=as_json, nothing=nothing)


@app.command()
def create(
    name: Name, brokers: BrokerOptions, *, credential: CredentialOptions, password: PasswordOptions
) -> None:
    """Give a new user a password.

    \b
    odradek user create alice
    odradek user create loader --mechanism SCRAM-SHA-256 --password-env LOADER_PASSWORD
    """
    _store(name, brokers, credential, password, new=True)


@app.command()
def alter(
    name: Name, brokers: BrokerOptions, *, credential: CredentialOptions, password: PasswordOptions
) -> None:
    """Give a user another password. Open connections stay open.

    \b
    odradek user alter alice --password-file /run/secrets/alice
    """
    _store(name, brokers, credential, password, new=False)


@app.command()
def delete(
    name: Name,
    brokers: BrokerOptions,
    mechanism: Annotated[
        list[str] | None,
        option("--mechanism -m NAME", "Only the password for this mechanism; repeatable."),
    ] = None,
) -> None:
    """Remove a user's passwords. Open connections stay open until their session ends.

    \b
    odradek user delete alice
    """
    from odradek_client.admin import UserScramCredentialDeletion

    wanted = _mechanisms(mechanism, default=())

    async def main(admin: Admin) -> list[str]:
        mechanisms = wanted or await _mechanisms_of(admin, name)
        if not mechanisms:
            fail(f"user {name!r} has no password; `odradek user list` shows who has")
        for each in mechanisms:
            await admin.alter_user_scram_credentials(UserScramCredentialDeletion(name, each))
        return mechanisms

    for each in brokers.ask(main):
        tell(f"deleted the password of {name} for {each}")


@app.command("hash")
def hash_(name: Name, *, password: PasswordOptions) -> None:
    """Print a line for the file of PLAIN users (sasl.plain.users.file), without a broker.

    \b
    odradek user hash alice >> /etc/odradek/users
    """
    from odradek_broker.security.passwords import SALT_BYTES, hash_password

    say(f"{name}:{hash_password(password.read(name), os.urandom(SALT_BYTES))}")


def _store(
    name: str,
    brokers: BrokerOptions,
    credential: CredentialOptions,
    password: PasswordOptions,
    *,
    new: bool,
) -> None:
    from odradek_client.admin import UserScramCredentialUpsertion

    mechanisms = _mechanisms(credential.mechanism, default=(_DEFAULT_MECHANISM,))
    text = password.read(name)

    async def main(admin: Admin) -> None:
        present = await _mechanisms_of(admin, name)
        for each in mechanisms:
            if (each in present) == new:
                fail(_other_command(name, each, new))
        # Each credential has its own request, because brokers accept one credential of a user
        # in a request.
        for each in mechanisms:
            await admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion(name, text, each, credential.iterations)
            )

    try:
        brokers.ask(main)
    except ValueError as error:
        fail(str(error), 2)
    for each in mechanisms:
        tell(f"{'created' if new else 'altered'} the password of {name} for {each}")


def _other_command(name: str, mechanism: str, new: bool) -> str:
    has, other = ("has a", "alter") if new else ("has no", "create")
    return f"user {name!r} {has} password for {mechanism}; use `odradek user {other}`"


async def _mechanisms_of(admin: Admin, name: str) -> list[str]:
    found = await admin.describe_user_scram_credentials()
    return [info.mechanism for info in found.get(name, [])]


def _mechanisms(given: list[str] | None, default: tuple[str, ...]) -> list[str]:
    """The mechanisms by name. Ends the program for an unknown mechanism."""
    from odradek_client.admin import SCRAM_MECHANISMS

    mechanisms = list(dict.fromkeys(each.strip().upper() for each in given or default))
    for each in mechanisms:
        if each not in SCRAM_MECHANISMS:
            fail(f"--mechanism {each!r} must be one of {', '.join(SCRAM_MECHANISMS)}", 2)
    return mechanisms


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline(_PASSWORD_CHARACTERS_MAX).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        fail(f"cannot read the password in {path}: {why}", 2)
