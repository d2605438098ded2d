"""Public names of `odradek_testkit.testing`, and the types of its fixtures."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from odradek_testkit.testing import (
    assert_exactly_once,
    make_unique_topic,
    odradek_broker,
    odradek_broker_session,
    odradek_broker_settings,
    odradek_cluster,
    odradek_clusters,
    odradek_faulty_broker,
    odradek_spark,
    pytest_configure,
    pytest_configure_node,
    pytest_pyfunc_call,
    pytest_runtest_makereport,
    pytest_unconfigure,
    simulated_cluster,
    unique_topic,
)

if TYPE_CHECKING:
    from odradek_testkit.broker import SubprocessBroker
    from odradek_testkit.clusters import Cluster, Clusters
    from odradek_testkit.simulation.cluster import SimulatedCluster
    from odradek_testkit.spark_testing import ExactlyOnceCheck

#: The types are imported when they are asked for, because every run of pytest loads this module.
_HOMES = {
    "Cluster": "odradek_testkit.clusters",
    "Clusters": "odradek_testkit.clusters",
    "ExactlyOnceCheck": "odradek_testkit.spark_testing",
    "SimulatedCluster": "odradek_testkit.simulation.cluster",
    "SubprocessBroker": "odradek_testkit.broker",
}

__all__ = [
    "Cluster",
    "Clusters",
    "ExactlyOnceCheck",
    "SimulatedCluster",
    "SubprocessBroker",
    "assert_exactly_once",
    "make_unique_topic",
    "odradek_broker",
    "odradek_broker_session",
    "odradek_broker_settings",
    "odradek_cluster",
    "odradek_clusters",
    "odradek_faulty_broker",
    "odradek_spark",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_pyfunc_call",
    "pytest_runtest_makereport",
    "pytest_unconfigure",
    "simulated_cluster",
    "unique_topic",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'odradek.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
