"""Public names of `odradek_testkit.testing`."""

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

__all__ = [
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
