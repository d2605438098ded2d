"""Lists of which the broker can describe only a part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from odradek_cli import common
from odradek_cli.cluster import transactions
from odradek_cli.groups import groups
from odradek_client.admin.results import Results
from odradek_client.errors import CoordinatorUnavailable, OdradekError, Refused
from odradek_protocol.errors import ErrorCode

UNREACHED = CoordinatorUnavailable("no coordinator of 'b'")


def failed(**errors: OdradekError) -> Results[str, Any]:
    """Results that have only these errors."""
    found = Results[str, Any]()
    found.errors = dict(errors)
    return found


class StubAdmin:
    """Lists `a` and `b`: `a` does not exist any more when it is described, and `b` has no
    coordinator."""

    async def list_transactions(self, **_: object) -> list[Any]:
        return [SimpleNamespace(transactional_id=name) for name in "ab"]

    async def describe_transactions(self, names: list[str], **_: object) -> Results[str, Any]:
        gone = Refused("gone", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return failed(a=gone, b=UNREACHED)

    async def list_groups(self, **_: object) -> list[Any]:
        return [SimpleNamespace(group_id=name) for name in "ab"]

    async def describe_groups(self, names: list[str], **_: object) -> Results[str, Any]:
        return failed(a=Refused("gone", code=ErrorCode.GROUP_ID_NOT_FOUND), b=UNREACHED)

    async def list_offsets(self, *_: object, **__: object) -> Results[str, Any]:
        return failed()

    async def describe_cluster(self) -> SimpleNamespace:
        return SimpleNamespace(brokers=[])


@asynccontextmanager
async def stub(*_: object) -> AsyncIterator[StubAdmin]:
    yield StubAdmin()


@pytest.mark.parametrize(
    ("app", "command"),
    [(transactions.app, ["list"]), (groups.app, ["describe"])],
    ids=["transactions", "groups"],
)
def test_a_list_names_what_could_not_be_described(
    monkeypatch: pytest.MonkeyPatch, app: typer.Typer, command: list[str]
) -> None:
    monkeypatch.setattr(common, "open_admin", stub)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "no coordinator of 'b'" in done.stderr
    assert "gone" not in done.stderr
