"""Changes of users and ACLs from pages: their plans, effects and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import sasl_brokers
from console_changes import ChangingPage, changing_page, confirmation
from console_process import console_process
from odradek.broker import Broker
from odradek_client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    Admin,
    UserScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from playwright.async_api import Page

SECRET = "correct horse"


@pytest.fixture(scope="module")
def sasl_bootstrap() -> Iterator[str]:
    """A broker with users and ACLs, where `admin` may do everything."""
    settings = {
        **sasl_brokers.LISTENER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Broker.subprocess(settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture
async def page(sasl_bootstrap: str) -> AsyncIterator[ChangingPage]:
    async with changing_page(sasl_bootstrap, **sasl_brokers.as_admin(sasl_bootstrap)) as page:
        yield page


@pytest.fixture
async def admin(sasl_bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(**sasl_brokers.as_admin(sasl_bootstrap)) as admin:
        yield admin


@pytest.fixture
def user(unique_topic: str) -> str:
    return f"user-{unique_topic}"


def as_user(bootstrap: str, user: str, password: str) -> dict[str, Any]:
    return sasl_brokers.as_user(bootstrap, "SCRAM-SHA-512", user, password)


async def test_a_password_is_planned_then_stored_and_shown_nowhere(
    page: ChangingPage, admin: Admin, sasl_bootstrap: str, user: str
) -> None:
    body = {"user": user, "mechanism": "SCRAM-SHA-512", "password": SECRET, "iterations": 8192}
    with capture_logs() as lines:
        planned = await page.plan("password", body)
        assert planned["plan"] == {
            "user": user, "mechanism": "SCRAM-SHA-512", "iterations": 8192,
            "replaces": None, "others": [], "own": False,
        }  # fmt: skip
        assert user not in await admin.describe_user_scram_credentials()
        result = await page.do("password", body)
    assert result["text"] == f"Stored the password of {user} for SCRAM-SHA-512"
    async with Admin(**as_user(sasl_bootstrap, user, SECRET)):
        pass
    # The plan is another one, now that the user exists.
    assert (await page.refused("password", confirmation(planned, body)))[0] == 409
    for told in (planned, result, lines):
        assert SECRET not in str(told)
    assert {
        "user": user,
        "mechanism": "SCRAM-SHA-512",
        "iterations": "8192",
        "password": "...",
    } in [{name: text for name, text in line["of"].items() if name != "plan"} for line in lines]


async def test_another_password_keeps_the_iterations_and_the_other_mechanism(
    page: ChangingPage, admin: Admin, sasl_bootstrap: str, user: str
) -> None:
    for mechanism, iterations in (("SCRAM-SHA-512", 5000), ("SCRAM-SHA-256", 4096)):
        change = UserScramCredentialUpsertion(user, "old", mechanism, iterations)
        await admin.alter_user_scram_credentials(change)
    body = {"user": user, "password": SECRET}
    planned = (await page.plan("password", body))["plan"]
    assert (planned["replaces"], planned["iterations"]) == (5000, 5000)
    assert planned["others"] == ["SCRAM-SHA-256"]
    result = await page.do("password", body)
    assert result["text"] == f"Changed the password of {user} for SCRAM-SHA-512"
    async with Admin(**as_user(sasl_bootstrap, user, SECRET)):
        pass
    found = await admin.describe_user_scram_credentials(user)
    assert sorted(each.iterations for each in found[user]) == [4096, 5000]


async def test_a_user_is_deleted_for_one_mechanism_or_for_all(
    page: ChangingPage, admin: Admin, user: str
) -> None:
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        change = UserScramCredentialUpsertion(user, "old", mechanism)
        await admin.alter_user_scram_credentials(change)
    planned = await page.plan("user-deletion", {"user": user})
    assert planned["plan"]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    one = await page.do("user-deletion", {"user": user, "mechanism": "SCRAM-SHA-256"})
    assert one["text"] == f"Deleted the password of {user} for SCRAM-SHA-256"
    # The plan named two passwords.
    assert (await page.refused("user-deletion", planned["send"]))[0] == 409
    await page.do("user-deletion", {"user": user})
    assert user not in await admin.describe_user_scram_credentials()
    assert (await page.refused("user-deletion", {"user": user}))[0] == 422


async def test_an_acl_is_planned_then_added_and_deleted(
    page: ChangingPage, admin: Admin, user: str
) -> None:
    body: dict[str, Any] = {"principal": user, "permission": "allow", "operation": "read"}
    body |= {"type": "topic", "name": user, "pattern": "prefixed", "host": None}
    planned = await page.plan("acl-creation", body)
    row = {**body, "principal": f"User:{user}", "host": "*"}
    assert planned["plan"] == {"acl": row}
    assert not [acl for acl in await admin.describe_acls() if acl.name == user]
    await page.do("acl-creation", body)
    (acl,) = [acl for acl in await admin.describe_acls() if acl.name == user]
    assert str(acl) == f"ALLOW READ on prefixed topic {user!r} to User:{user} from *"
    assert (await page.refused("acl-creation", body))[0] == 422, "it exists"
    planned = await page.plan("acl-deletion", row)
    assert planned["plan"] == {"rows": [row]}
    assert (await page.do("acl-deletion", row))["text"] == "Deleted 1 ACL"
    assert not [acl for acl in await admin.describe_acls() if acl.name == user]
    assert (await page.refused("acl-deletion", row))[0] == 422


async def test_all_acls_of_a_user_are_deleted_as_the_plan_has_shown_them(
    page: ChangingPage, admin: Admin, user: str
) -> None:
    def acl(operation: AclOperation, name: str = user) -> AclBinding:
        return AclBinding.topic(name, f"User:{name}", operation)

    kept = acl(AclOperation.READ, f"{user}-2")
    await admin.create_acls([acl(AclOperation.READ), acl(AclOperation.WRITE), kept])
    stale = await page.plan("acl-deletion", {"principal": user})
    assert [row["operation"] for row in stale["plan"]["rows"]] == ["read", "write"]
    await admin.create_acls(acl(AclOperation.DELETE))
    assert (await page.refused("acl-deletion", stale["send"]))[0] == 409
    assert (await page.do("acl-deletion", {"principal": user}))["text"] == "Deleted 3 ACLs"
    assert [each for each in await admin.describe_acls() if user in each.name] == [kept]


async def test_the_brokers_rights_decide_and_the_page_says_so(
    page: ChangingPage, admin: Admin, sasl_bootstrap: str, user: str
) -> None:
    await admin.alter_user_scram_credentials(UserScramCredentialUpsertion(user, SECRET))
    changes = {
        "password": {"user": user, "password": "another"},
        "user-deletion": {"user": user},
        "acl-creation": {
            "principal": user, "permission": "allow", "operation": "all", "type": "cluster"
        },
        "acl-deletion": {"principal": user},
    }  # fmt: skip
    own = AclBinding.cluster(f"User:{user}", AclOperation.DESCRIBE)
    async with changing_page(sasl_bootstrap, **as_user(sasl_bootstrap, user, SECRET)) as his:
        for what, body in changes.items():
            assert (await his.refused(what, body)) == (403, "A right on the cluster is missing")
        # The right to look is not the right to change.
        await admin.create_acls(own)
        for what, body in changes.items():
            confirmed = confirmation(await his.plan(what, body), body)
            with capture_logs() as lines:
                status, answer = await his.post(what, confirmed)
            assert (status, answer["error"]["title"]) == (403, "A right on the cluster is missing")
            assert "ALTER" in answer["error"]["detail"]
            assert [line["event"] for line in lines] == ["a change was refused"]
    async with Admin(**as_user(sasl_bootstrap, user, SECRET)) as unchanged:
        mine = AclBindingFilter(principal=own.principal)
        assert await unchanged.describe_acls(mine) == [own]


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("password", {"password": "x"}, 400),
        ("password", {"user": "u"}, 400),
        ("password", {"user": "u", "password": ""}, 400),
        ("password", {"user": "u", "password": "x" * 4_097}, 400),
        ("password", {"user": "u" * 257, "password": "x"}, 400),
        ("password", {"user": "u", "password": "x", "mechanism": "PLAIN"}, 400),
        ("password", {"user": "u", "password": "x", "iterations": 4_095}, 400),
        ("password", {"user": "u", "password": "x", "iterations": 16_385}, 400),
        ("user-deletion", {"user": "nobody"}, 422),
        ("user-deletion", {"user": "nobody", "mechanism": ["SCRAM-SHA-256"]}, 400),
        ("acl-creation", {}, 400),
        ("acl-creation", {"principal": "u"}, 400),
        ("acl-creation", {"operation": "any"}, 400),
        ("acl-creation", {"pattern": "match"}, 400),
        ("acl-creation", {"host": "x" * 1_001}, 400),
        ("acl-deletion", {}, 400),
        ("acl-deletion", {"principal": None}, 400),
        ("acl-deletion", {"permission": "unknown"}, 400),
        ("acl-deletion", {"principal": "nobody"}, 422),
    ],
)
async def test_a_wrong_change_of_users_or_acls_is_refused(
    page: ChangingPage, what: str, body: dict[str, Any], status: int
) -> None:
    answered, title = await page.refused(what, body)
    assert answered == status, title


async def test_a_broker_without_an_authorizer_says_so(live_bootstrap: str) -> None:
    body = {"principal": "u", "permission": "allow", "operation": "all", "type": "cluster"}
    async with changing_page(live_bootstrap) as page:
        status, answer = await page.post("acl-creation", body)
    assert (status, answer["error"]["title"]) == (422, "The broker refuses this")
    assert "authorizer" in answer["error"]["detail"].lower()


async def test_too_many_acls_are_not_deleted_at_once(
    page: ChangingPage, admin: Admin, user: str
) -> None:
    names = [f"{user}-{number}" for number in range(501)]
    await admin.create_acls(
        [AclBinding.topic(name, f"User:{user}", AclOperation.READ) for name in names]
    )
    assert (await page.refused("acl-deletion", {"principal": user}))[0] == 422
    await page.do("acl-deletion", {"principal": user, "name": names[0]})
    assert (await page.do("acl-deletion", {"principal": user}))["text"] == "Deleted 500 ACLs"


@pytest.mark.full
async def test_a_browser_adds_and_deletes_a_user_and_an_acl(
    sasl_bootstrap: str, browser_page: Page, user: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    options = ("--write", "-X", "security.protocol=SASL_PLAINTEXT")
    with console_process(sasl_bootstrap, *options) as address:
        await page.goto(f"{address}access")
        await page.get_by_label("Mechanism").select_option("PLAIN")
        await page.get_by_label("User").fill("admin")
        await page.get_by_label("Password").fill(sasl_brokers.ADMIN_PASSWORD)
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Add a user").click()
        await page.get_by_role("textbox", name="User").fill(user)
        await page.get_by_role("textbox", name="Password").fill(SECRET)
        again = page.get_by_label("The same again")
        await again.fill("other")
        plan = page.get_by_role("button", name="Show the plan")
        await plan.click()
        assert await again.evaluate("each => each.validationMessage") == "The passwords differ."
        await again.fill(SECRET)
        await plan.click()
        await expect(page.get_by_role("dialog")).to_contain_text("4,096 iterations")
        assert await page.get_by_role("textbox", name="Password").input_value() == ""
        await page.get_by_role("button", name="Store it").click()
        await expect(page.get_by_text(f"Stored the password of {user}")).to_be_visible()
        kept = "JSON.stringify([document.documentElement.outerHTML, localStorage, sessionStorage])"
        assert SECRET not in await page.evaluate(kept)

        await page.goto(f"{address}access")
        await page.get_by_role("link", name="Add an ACL").click()
        await page.get_by_label("Principal").fill(user)
        await page.locator("[name=type]").select_option("group")
        await page.get_by_role("textbox", name="Name").fill(user)
        await page.locator("[name=operation]").select_option("read")
        await plan.click()
        await expect(page.get_by_role("dialog")).to_contain_text(f"User:{user}")
        await page.get_by_role("button", name="Add it").click()
        await expect(page.get_by_text("Added: ALLOW READ on group")).to_be_visible()

        await page.goto(f"{address}access?filter={user}")
        await (
            page.get_by_role("region", name="ACLs")
            .get_by_role("link", name="Delete", exact=True)
            .click()
        )
        await plan.click()
        await expect(page.get_by_role("dialog")).to_contain_text("This ACL is deleted")
        await page.get_by_role("button", name="Delete them").click()
        await expect(page.get_by_text("Deleted 1 ACL")).to_be_visible()

        await page.goto(f"{address}access")
        row = page.get_by_role("row").filter(has=page.get_by_text(user, exact=True))
        await row.get_by_role("link", name="Delete", exact=True).click()
        await plan.click()
        await expect(page.get_by_role("dialog")).to_contain_text("is deleted")
        await page.get_by_role("button", name="Delete it").click()
        await expect(page.get_by_text(f"Deleted the password of {user}")).to_be_visible()
