"""The parts of an ACL, with Kafka's numbers (KIP-11, KIP-290, KIP-140), for requests, the metadata
log and the client."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

Code = TypeVar("Code", bound=IntEnum)

#: The name that stands for every resource of a type, and also for every user and every host.
WILDCARD = "*"
#: The only name of a resource of the type CLUSTER.
CLUSTER_NAME = "kafka-cluster"
#: The principal type of all users, as in "User:alice". "User:*" is every user.
USER_PREFIX = "User:"
EVERYBODY = "User:*"


class AclResourceType(IntEnum):
    """Kafka's ResourceType. UNKNOWN and ANY occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The meaning of a resource's name in an ACL (KIP-290). UNKNOWN, ANY and MATCH occur only in
    filters.

    MATCH selects the ACLs of any pattern type that apply to the name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's AclOperation. UNKNOWN and ANY occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Kafka's AclPermissionType. UNKNOWN and ANY occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def of_code(kind: type[Code], code: int) -> Code:
    """The member of `kind` with this number; UNKNOWN (0) for a number that only a later version of
    Kafka knows."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)
