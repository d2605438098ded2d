"""Public names of `odradek_testkit.clusters`."""

from odradek_testkit.clusters import (
    ASK_VARIABLE,
    CLUSTERS_VARIABLE,
    AddressServer,
    Cluster,
    ClusterRefused,
    Clusters,
    close_shared,
    shared,
)

__all__ = [
    "ASK_VARIABLE",
    "CLUSTERS_VARIABLE",
    "AddressServer",
    "Cluster",
    "ClusterRefused",
    "Clusters",
    "close_shared",
    "shared",
]
