"""`odradek quota`, and Admin's calls about quotas, with a broker in another process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli_runner import Commands
from odradek import sync
from odradek_client.admin import QuotaEntity, QuotaName
from odradek_client.errors import OdradekError


@pytest.fixture
def odradek(live_bootstrap: str) -> Commands:
    return Commands(live_bootstrap)


@pytest.fixture
def admin(live_bootstrap: str) -> Iterator[sync.Admin]:
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        yield admin


@pytest.mark.own_broker
def test_q03_q04_quotas_are_set_shown_and_removed(odradek: Commands, unique_topic: str) -> None:
    name = unique_topic
    odradek.run("quota", "describe", "--client-id", name)
    assert "no quota is set" in odradek.stderr
    odradek.run(
        "quota", "set", "--client-id", name, "producer_byte_rate=1e6", "request_percentage=12.5"
    )
    assert f"set producer_byte_rate=1000000 of client-id {name!r}\n" in odradek.stderr
    odradek.run("quota", "set", "--user", name, "--client-defaults", "consumer_byte_rate=2")
    assert odradek.table("quota", "describe", "--client-id", name) == [
        ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
        ["-", name, "-", "producer_byte_rate", "1000000"],
        ["-", name, "-", "request_percentage", "12.5"],
    ]
    (row,) = odradek.rows("quota", "describe", "--user", name)
    assert row == {
        "user": name,
        "client_id": "(default)",
        "ip": None,
        "quota": "consumer_byte_rate",
        "value": 2.0,
    }
    assert odradek.rows("quota", "describe", "--user", name, "--strict") == []
    odradek.run("quota", "set", "--client-id", name, "--validate-only", "producer_byte_rate=1")
    assert "would set producer_byte_rate=1 " in odradek.stderr
    odradek.run("quota", "delete", "--client-id", name, "request_percentage", "producer_byte_rate")
    odradek.run("quota", "delete", "--user", name, "--client-defaults", "consumer_byte_rate")
    assert odradek.rows("quota", "describe", "--client-id", name) == []
    assert name not in odradek.run("quota", "describe")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("set producer_byte_rate=1", 2, "say whose quota it is"),
        ("set --user u producer_byte_rate", 2, "must be KEY=VALUE"),
        ("set --user u producer_byte_rate=much", 2, "it must be a number"),
        ("set --user u --user-defaults producer_byte_rate=1", 2, "give one of them"),
        ("delete --user u producer_byte_rate=1", 2, "without a value"),
        ("set --user u producer_byte_rate=0", 1, "producer_byte_rate"),
        ("set --user u --ip 192.0.2.1 producer_byte_rate=1", 1, "user 'u', ip '192.0.2.1'"),
        ("set --ip-defaults producer_byte_rate=1", 1, "default ip"),
    ],
)
def test_q03_wrong_quota_arguments_are_explained(
    odradek: Commands, words: str, code: int, says: str
) -> None:
    odradek.run("quota", *words.split(), code=code)
    assert says in odradek.stderr


@pytest.mark.own_broker
def test_the_admin_sets_and_describes_quotas(admin: sync.Admin, unique_topic: str) -> None:
    one = QuotaEntity(client_id=unique_topic)
    both = QuotaEntity(user=QuotaName.DEFAULT, client_id=unique_topic)
    admin.alter_client_quotas({one: {"producer_byte_rate": 5}, both: {"request_percentage": 2.5}})
    found = admin.describe_client_quotas(
        QuotaEntity(user=QuotaName.ANY, client_id=unique_topic), strict=True
    )
    assert found == {both: {"request_percentage": 2.5}}
    assert admin.describe_client_quotas()[one] == {"producer_byte_rate": 5.0}
    refused = admin.alter_client_quotas(
        {one: {"rubbish": 1}, both: {"request_percentage": None}}, raise_errors=False
    )
    assert list(refused) == [both]
    assert "rubbish" in str(refused.errors[one])
    admin.alter_client_quotas({one: {"producer_byte_rate": None}})
    assert admin.describe_client_quotas(QuotaEntity(client_id=unique_topic)) == {}


def test_illegal_quota_entities_are_refused(admin: sync.Admin) -> None:
    with pytest.raises(ValueError, match="ANY is for asking"):
        admin.alter_client_quotas({QuotaEntity(user=QuotaName.ANY): {"producer_byte_rate": 1}})
    with pytest.raises(OdradekError, match="INVALID_REQUEST"):
        admin.describe_client_quotas(QuotaEntity(user="u", ip="192.0.2.1"))
