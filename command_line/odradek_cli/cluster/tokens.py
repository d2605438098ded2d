"""`odradek token create|describe|renew|expire`: delegation tokens, which are passwords that
expire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, print_rows, tell
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say
from odradek_records.offset_grammar import OffsetError, utc_time
from odradek_records.reset_plan import parse_duration_ms

if TYPE_CHECKING:
    from odradek_client.admin import Admin, DelegationToken

app = Commands(
    help="Create, describe, renew, expire delegation tokens. Only create shows the HMAC, which is the password; the other commands"
    " take the id."
)

#: The longest period that fits into a request.
_PERIOD_MS_MAX = 2**63 - 1
_USER = "User:"

TokenId = Annotated[str, argument("ID", "The id of the token.")]


@app.command()
def create(
    brokers: BrokerOptions,
    owner: Annotated[
        str | None, option("--owner NAME", "The owner of the token. [default: your own user]")
    ] = None,
    renewer: Annotated[
        list[str] | None,
        option("--renewer NAME", "A user that may renew and expire it; repeatable."),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        option(
            "--max-lifetime TIME",
            "The maximum lifetime of the token, beyond which nobody can renew it: 12h, 7d. "
            "[default: the broker's]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print its id and its HMAC, which are the user name and password for SCRAM.
    The HMAC is not shown again.

    \b
    odradek token create -X alice.properties
    odradek token create --owner alice --renewer bob --max-lifetime 2d --json
    """
    lifetime_ms = _period_ms("--max-lifetime", max_lifetime, least_ms=1)

    try:
        token = brokers.ask(
            lambda admin: admin.create_delegation_token(
                [_user(each) for each in renewer or ()],
                owner=None if owner is None else _user(owner),
                max_lifetime_ms=lifetime_ms,
            )
        )
    except ValueError as error:
        fail(str(error))
    if as_json:
        say(json.dumps({**_row(token), "hmac": token.password}))
    else:
        # Not a table that fits a terminal: the HMAC must stay whole.
        say(f"{'TOKEN-ID':{len(token.token_id)}}  HMAC", f"{token.token_id}  {token.password}")
    tell(
        f"created a token of {token.owner}: it expires at {utc_time(token.expiry_timestamp_ms)}"
        f" unless it is renewed, and at {utc_time(token.max_timestamp_ms)} at the latest;"
        " its HMAC is not printed again"
    )


@app.command()
def describe(
    brokers: BrokerOptions,
    owners: Annotated[
        list[str] | None, argument("[NAME]...", "Users whose tokens are shown. [default: all]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show tokens, without their HMACs: your own, and those that you may renew or describe.

    \b
    odradek token describe
    odradek token describe alice --json
    """

    names = [_user(each) for each in owners] if owners else None
    rows = [_row(token) for token in brokers.ask(lambda a: a.describe_delegation_token(names))]
    drop = "ISSUED REQUESTER ENDS RENEWERS"
    headings = "TOKEN-ID OWNER REQUESTER RENEWERS ISSUED EXPIRES ENDS"
    nothing = "there are no delegation tokens that you may see"
    print_rows(headings, rows, as_json=as_json, nothing=nothing, drop=drop)


@app.command()
def renew(
    token_id: TokenId,
    brokers: BrokerOptions,
    period: Annotated[
        str | None,
        option(
            "--for TIME",
            "Time from now until the token expires: 90m, 12h, 7d. [default: the broker's]",
        ),
    ] = None,
) -> None:
    """Renew a token, at most until the end of its maximum lifetime.

    \b
    odradek token renew 3C0sY1xQSvGkYkN0yGQ2nQ --for 12h
    """
    period_ms = _period_ms("--for", period, least_ms=1)

    async def main(admin: Admin) -> int:
        token = await _token(admin, token_id)
        return await admin.renew_delegation_token(token.hmac, period_ms=period_ms)

    tell(f"token {token_id} expires at {utc_time(brokers.ask(main))}")


@app.command()
def expire(
    token_id: TokenId,
    brokers: BrokerOptions,
    period: Annotated[
        str | None,
        option(
            "--in TIME", "Time from now until the token expires, for example 90m. [default: now]"
        ),
    ] = None,
) -> None:
    """Let a token expire, immediately or after some time.

    \b
    odradek token expire 3C0sY1xQSvGkYkN0yGQ2nQ
    """
    period_ms = _period_ms("--in", period, least_ms=0)

    async def main(admin: Admin) -> int:
        token = await _token(admin, token_id)
        return await admin.expire_delegation_token(token.hmac, period_ms=period_ms)

    expiry_ms = brokers.ask(main)
    if period_ms is None:
        tell(f"expired token {token_id}")
    else:
        tell(f"token {token_id} expires at {utc_time(expiry_ms)}")


async def _token(admin: Admin, token_id: str) -> DelegationToken:
    """The token with this id. Ends the program if this user cannot see such a token."""
    seen = {token.token_id: token for token in await admin.describe_delegation_token()}
    if token_id not in seen:
        fail(f"there is no token {token_id!r} that you may see; see `odradek token describe`")
    return seen[token_id]


def _row(token: DelegationToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": utc_time(token.issue_timestamp_ms),
        "expires": utc_time(token.expiry_timestamp_ms),
        "ends": utc_time(token.max_timestamp_ms),
    }


def _user(name: str) -> str:
    """The name of a user that is given as alice or as User:alice."""
    return name.removeprefix(_USER)


def _period_ms(option: str, text: str | None, least_ms: int) -> int | None:
    """The duration that an option gives, in ms. Ends the program for an invalid duration."""
    if text is None:
        return None
    try:
        period_ms = parse_duration_ms(text)
    except OffsetError as error:
        fail(f"{option}: {error}", 2)
    if not least_ms <= period_ms <= _PERIOD_MS_MAX:
        fail(f"{option} {text!r} must be {least_ms} to {_PERIOD_MS_MAX} ms", 2)
    return period_ms
