"""Public names of `odradek_testkit.unittest`."""

from odradek_testkit.unittest import (
    ClusterMixin,
    ClusterTestCase,
)

__all__ = ["ClusterMixin", "ClusterTestCase"]
