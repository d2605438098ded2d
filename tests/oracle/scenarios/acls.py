"""The APIs of ACLs on a broker without an authorizer; `tests/oracle/rights` has cases with an
authorizer."""

from __future__ import annotations

from typing import Any

from tests.oracle.script import Ask, scenarios_of

_FILTER: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ACL: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "@t",
    "resource_pattern_type": 3,
    "principal": "User:somebody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}

SCENARIOS = scenarios_of(
    {
        ("describe-acls-without-an-authorizer", "DescribeAcls"): [
            Ask("DescribeAcls", _FILTER),
            Ask("DescribeAcls", {**_FILTER, "operation": 0}),
        ],
        ("create-acls-without-an-authorizer", "CreateAcls"): [
            Ask("CreateAcls", {"creations": [_ACL, {**_ACL, "resource_name": ""}]}),
            Ask("CreateAcls", {"creations": []}),
            Ask("CreateAcls", {"creations": [{**_ACL, "permission_type": 0}]}),
        ],
        ("delete-acls-without-an-authorizer", "DeleteAcls"): [
            Ask("DeleteAcls", {"filters": [_FILTER, _FILTER]}),
            Ask("DeleteAcls", {"filters": []}),
            Ask("DeleteAcls", {"filters": [{**_FILTER, "operation": 0}]}),
        ],
    }
)
