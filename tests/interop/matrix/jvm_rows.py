"""The rows of tools that run on a Java virtual machine, beside the plain clients."""

from __future__ import annotations

from tests.interop.matrix import kafka_tools, toolchains
from tests.interop.matrix.row import Row

from kafka_cluster import VERSION

JVM_ROWS = (
    Row(
        "kafka-tools",
        "Kafka's command line tools",
        VERSION,
        "topics, records, groups of each kind, transactions, settings, ACLs, quotas, "
        "reassignments, elections, features, metrics of clients, the quorum, measurements, and "
        "what `kafka-dump-log` reads from the broker's files",
        toolchains.kafka(VERSION),
        kafka_tools.run,
    ),
)
