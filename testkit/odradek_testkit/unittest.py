"""Clusters for tests of the standard library's unittest.

    class OrdersTest(ClusterTestCase):
        def test_orders(self):
            with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
                producer.send_and_wait("orders", b"...")

For other base classes, such as IsolatedAsyncioTestCase: `class OrdersTest(ClusterMixin, Base)`.
"""

from __future__ import annotations

import unittest
from collections.abc import Mapping
from typing import ClassVar

from odradek_testkit.clusters import Cluster, shared


class ClusterMixin:
    """A base class with `cluster`, which is created at its first use in a test, and belongs to only
    that test.

    `cluster_settings`: the settings of the cluster, by Kafka's names; a class may set it.
    """

    cluster_settings: ClassVar[Mapping[str, object]] = {}
    _cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, deleted after the test."""
        if self._cluster is None:
            self._cluster = shared().create(self.cluster_settings)
            assert isinstance(self, unittest.TestCase)
            self.addCleanup(self._delete_cluster)
        return self._cluster

    def _delete_cluster(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


class ClusterTestCase(ClusterMixin, unittest.TestCase):
    """A TestCase with `cluster`."""
