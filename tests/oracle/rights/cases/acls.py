"""The APIs of ACLs."""

from __future__ import annotations

from typing import Any

from tests.oracle.rights.cells import (
    Case,
    cluster_right,
)
from tests.oracle.script import (
    Ask,
    Step,
)

_ANY_ACL_OF_T = {
    "resource_type_filter": 1,
    "resource_name_filter": "@t",
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ACL_OF_T = {
    "resource_type": 2,
    "resource_name": "@t",
    "resource_pattern_type": 4,
    "principal": "User:somebody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ONE_ACL: list[Step] = [
    Ask("CreateAcls", {"creations": [_ACL_OF_T]}, version=3, quiet=True),
    Ask(
        "DescribeAcls",
        _ANY_ACL_OF_T,
        version=3,
        quiet=True,
        until={"resources.0.acls.0.operation": 3},
    ),
]
_ACLS_OF_T = Ask("DescribeAcls", _ANY_ACL_OF_T, version=3)
_CHANGED: dict[str, dict[str, Any]] = {
    "of-another-cluster": {"resource_type": 4, "resource_pattern_type": 3},
    "of-the-cluster": {
        "resource_type": 4,
        "resource_pattern_type": 3,
        "resource_name": "kafka-cluster",
        "operation": 12,
    },
    "of-a-cluster-by-prefix": {"resource_type": 4, "resource_name": "kafka-cluster"},
    "without-a-name": {"resource_name": ""},
    "of-any-type": {"resource_type": 1},
    "of-an-unknown-type": {"resource_type": 0},
    "of-a-strange-type": {"resource_type": 77},
    "of-a-user": {"resource_type": 7, "operation": 13},
    "of-a-token": {"resource_type": 6, "operation": 14},
    "of-any-pattern": {"resource_pattern_type": 1},
    "of-a-match": {"resource_pattern_type": 2},
    "of-an-unknown-pattern": {"resource_pattern_type": 0},
    "of-a-strange-pattern": {"resource_pattern_type": 77},
    "for-any-operation": {"operation": 1},
    "for-an-unknown-operation": {"operation": 0},
    "for-a-strange-operation": {"operation": 77},
    "for-two-phases": {"operation": 15},
    "for-what-topics-have-not": {"operation": 12},
    "with-any-permission": {"permission_type": 1},
    "with-an-unknown-permission": {"permission_type": 0},
    "with-a-strange-permission": {"permission_type": 77},
    "for-a-name-alone": {"principal": "somebody"},
    "for-nobody": {"principal": ""},
    "for-a-type-alone": {"principal": "User:"},
    "for-no-type": {"principal": ":somebody"},
    "for-a-group": {"principal": "Group:somebody"},
    "from-nowhere": {"host": ""},
    "from-a-name": {"host": "localhost"},
    "twice": {},
    "for-everything": {"resource_name": "*", "principal": "User:nobody-at-all"},
    "for-a-slash": {"resource_name": "a/b"},
}
#: Invalid elements between two valid ones.
_CREATIONS = {
    name: [_ACL_OF_T, {**_ACL_OF_T, **changed}, {**_ACL_OF_T, "host": "10.0.0.1"}]
    for name, changed in _CHANGED.items()
}
_FILTERS: dict[str, dict[str, Any]] = {
    "of-a-type": {"resource_type_filter": 2},
    "of-another-type": {"resource_type_filter": 3},
    "of-an-unknown-type": {"resource_type_filter": 0},
    "of-a-strange-type": {"resource_type_filter": 77},
    "by-prefix": {"pattern_type_filter": 4},
    "literally": {"pattern_type_filter": 3},
    "of-an-unknown-pattern": {"pattern_type_filter": 0},
    "of-a-strange-pattern": {"pattern_type_filter": 77},
    "of-somebody": {"principal_filter": "User:somebody"},
    "of-somebody-else": {"principal_filter": "User:else"},
    "of-a-name-alone": {"principal_filter": "somebody"},
    "of-a-host": {"host_filter": "*"},
    "of-another-host": {"host_filter": "10.0.0.1"},
    "to-read": {"operation": 3},
    "to-write": {"operation": 4},
    "to-something-unknown": {"operation": 0},
    "to-something-strange": {"operation": 77},
    "that-allow": {"permission_type": 3},
    "that-deny": {"permission_type": 2},
    "with-an-unknown-permission": {"permission_type": 0},
    "with-a-strange-permission": {"permission_type": 77},
}
_ACLS = [
    Case(
        "describe-acls",
        "DescribeAcls",
        _ANY_ACL_OF_T,
        [cluster_right("DESCRIBE")],
        before=_ONE_ACL,
        extra={"alters": [cluster_right("ALTER")]},
    ),
    Case(
        "create-acls",
        "CreateAcls",
        {"creations": [_ACL_OF_T, {**_ACL_OF_T, "host": "10.0.0.1"}]},
        [cluster_right("ALTER")],
        after=[],
        extra={"describes": [cluster_right("DESCRIBE")]},
    ),
    *(
        Case(
            f"create-acls-{name}",
            "CreateAcls",
            {"creations": creations},
            versions="3-3",
            only=["super"],
        )
        for name, creations in _CREATIONS.items()
    ),
    *(
        Case(
            f"describe-acls-{name}",
            "DescribeAcls",
            {**_ANY_ACL_OF_T, **changed},
            before=_ONE_ACL,
            versions="3-3",
            only=["super"],
        )
        for name, changed in _FILTERS.items()
    ),
    *(
        Case(
            f"delete-acls-{name}",
            "DeleteAcls",
            {"filters": [{**_ANY_ACL_OF_T, **changed}, _ANY_ACL_OF_T]},
            before=_ONE_ACL,
            versions="3-3",
            only=["super"],
        )
        for name, changed in _FILTERS.items()
    ),
    Case(
        "delete-acls",
        "DeleteAcls",
        {"filters": [_ANY_ACL_OF_T, {**_ANY_ACL_OF_T, "resource_name_filter": "@none"}]},
        [cluster_right("ALTER")],
        before=_ONE_ACL,
    ),
]


CASES: list[Case] = [*_ACLS]
