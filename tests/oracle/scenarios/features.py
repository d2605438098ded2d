"""The features of the cluster: ApiVersions."""

from __future__ import annotations

from tests.oracle.script import Ask, Scenario

_SOFTWARE = {"client_software_name": "oracle", "client_software_version": "1.0"}

SCENARIOS = [
    Scenario(
        "features",
        "ApiVersions",
        [Ask("ApiVersions", _SOFTWARE, ignore=("api_keys", "finalized_features_epoch"))],
    ),
]
