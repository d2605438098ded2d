"""The settings of authorization."""

from __future__ import annotations

from odradek_broker.config.types import ConfigType, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import Check, read_list

#: The only authorizer, by the name of Kafka's class.
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def read_super_users(text: str) -> tuple[str, ...]:
    """The principals in a value of super.users. Raises ValueError if one is not TYPE:NAME."""
    found = read_list(text, ";")
    for principal in found:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ValueError(principal)
    return found


def _are_principals(text: str) -> bool:
    try:
        read_super_users(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class AuthorizerSettings:
    """The settings of the authorizer, and of the log of its decisions."""

    authorizer_class_name: str = setting(
        ConfigType.STRING,
        "",
        f"The authorizer of requests: {STANDARD_AUTHORIZER} checks ACLs; empty: everything is"
        " allowed.",
        Check(
            f"{STANDARD_AUTHORIZER}, or empty; other classes of Java cannot run here",
            lambda name: name in ("", STANDARD_AUTHORIZER),
        ),
    )
    super_users: str = setting(
        ConfigType.STRING,
        "",
        "Principals that may do everything, separated by semicolons: User:alice;User:bob.",
        Check("principals separated by semicolons, like User:alice;User:bob", _are_principals),
    )
    allow_everyone_if_no_acl_found: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "true: every user may do everything with a resource that has no ACLs.",
    )
    authorizer_log_allowed: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "Log allowed requests too, not only denied ones.",
        dynamic=True,
        ours=True,
    )
