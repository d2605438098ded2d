"""Changes in two steps: a plan of the change, and then, if the plan is still the same, the change
itself.

The second request contains a mark of the plan that the user has seen. The console makes the plan
again, and changes nothing if the two plans differ. Every change, done or refused, is a line in the
audit log. Secret fields are neither in that line nor in an answer, and nobody can guess them from a
mark.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from odradek_client.errors import OdradekError
from odradek_console.answers import HttpProblem, Json, refusal_of
from odradek_console.sessions import ConsoleSession
from odradek_console.sign_in import audited

_audit = structlog.get_logger("odradek.console.audit")

_SHOWN_CHARACTERS = 200
#: The key of the marks, so that the hash of a mark cannot be computed elsewhere.
_MARK_KEY = secrets.token_bytes(32)


@dataclass(frozen=True)
class PageChange:
    """A change that a page can request.

    `plan` returns the effects as JSON, and changes nothing; Refusal if the change is impossible. A
    plan can contain `send`: fields that the page sends with its confirmation instead of its own
    fields, so that "the end" becomes an offset. `act` carries out the plan, and returns the result.
    `secret`: the fields whose values are left out of the audit log and of the answer; the page adds
    them to its confirmation. If the value of a secret field is a JSON object, the names in the
    object are logged, and their values are not.
    """

    plan: Callable[[ConsoleSession, Json], Awaitable[Json]]
    act: Callable[[ConsoleSession, Json, Json], Awaitable[Json]]
    secret: frozenset[str] = frozenset()


async def perform(name: str, change: PageChange, session: ConsoleSession, sent: Json) -> Json:
    """Answer a page's request for a change: with the plan of the change and the fields with which
    the page can confirm it (`again`: the names of those that only the page has), or, after the
    confirmation, with the result."""
    _check_fields(sent)
    # A plan for one cluster confirms nothing in another.
    where = f"{session.cluster} {name}"
    seen = sent.pop("plan", None)
    if seen is None:
        plan = await change.plan(session, sent)
        send = plan.pop("send", sent)
        mark = _mark(where, send, plan)
        shown = {key: value for key, value in send.items() if key not in change.secret}
        again = sorted(send.keys() - shown.keys())
        return {"plan": plan, "send": {**shown, "plan": mark}, "again": again}
    told = {
        key: (_without_values(value) if key in change.secret else str(value))[:_SHOWN_CHARACTERS]
        for key, value in sent.items()
    }
    log = _audit.bind(change=name, user=audited(session.user), of=told)
    if session.cluster:
        log = log.bind(cluster=session.cluster)
    try:
        plan = await change.plan(session, sent)
        plan.pop("send", None)
        if seen != _mark(where, sent, plan):
            raise HttpProblem(
                409,
                "The plan has changed since you saw it",
                "Nothing was done.",
                "Look at the new plan.",
            )
        result = await change.act(session, sent, plan)
    except OdradekError as error:
        refusal = refusal_of(error)
        log.warning("a change was refused", why=str(refusal))
        raise refusal from None
    except HttpProblem as refusal:
        log.warning("a change was refused", why=str(refusal))
        raise
    except BaseException as error:
        # A part of the change may have been made before the error.
        log.error("a change failed", why=type(error).__name__)
        session.forget()
        raise
    log.info("a change was made", result=str(result)[:_SHOWN_CHARACTERS])
    session.forget()
    return {"result": result}


def _check_fields(sent: Json) -> None:
    """Refuse fields that cannot be sent to a broker, or cannot be repeated in an answer."""
    try:
        json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise HttpProblem(
            400, "A field has half of a surrogate pair, which is no character"
        ) from None
    except ValueError:
        raise HttpProblem(400, "A field has a number that is none") from None
    except RecursionError:
        raise HttpProblem(400, "The fields are nested too deeply") from None


def _without_values(value: Any) -> str:
    return ", ".join(value) if isinstance(value, dict) else "..."


def _mark(name: str, sent: Json, plan: Json) -> str:
    whole = json.dumps([name, sent, plan], sort_keys=True)
    return hmac.digest(_MARK_KEY, whole.encode(), "sha256").hex()


def text_of(sent: Json, name: str, *, most: int = 10_000) -> str:
    """A text that a page has sent. Refusal if it is missing or too long."""
    value = sent.get(name)
    if not isinstance(value, str) or not value or len(value) > most:
        raise HttpProblem(400, f"The field {name} must be a text of 1 to {most:,} characters")
    return value


def whole_of(sent: Json, name: str, *, most: int = 2**63 - 1) -> int | None:
    """A whole number that a page sent, or None if the field is missing. Refusal for anything
    else."""
    value: Any = sent.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise HttpProblem(400, f"The field {name} must be a whole number from 0 to {most:,}")
    return value
