"""The metrics of share groups, after records that a share consumer has handled."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from broker_in_loop import RunningBroker, StartBroker
from fake_node import FakeNode
from node_world import SoonScheduler
from odradek import Admin, ConfigResource, NewTopic, Producer, ShareConsumer
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.metrics.exposition import Exposition
from odradek_broker.share.events import LocksExpired, SessionEnd
from odradek_broker.share_state import ShareKey, StateBatch
from odradek_broker.slices import Slices

DEADLINE_S = 100.0
GROUP = "workers"
WHERE = {"topic": "jobs", "partition": "0"}
KAFKA, OWN = {"group": GROUP, **WHERE}, {"sharegroup": GROUP, **WHERE}


class Jobs:
    """A broker with 20 records in the only partition of "jobs"; each record is delivered at most
    twice."""

    def __init__(self, broker: RunningBroker) -> None:
        self.node = broker.node
        self.bootstrap = f"{broker.host}:{broker.port}"

    async def prepare(self) -> None:
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            await admin.create_topics([NewTopic("jobs", 1)])
            settings = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2"}
            await admin.alter_configs({ConfigResource.group(GROUP): settings})
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(20):
                await producer.send("jobs", b"%d" % number)

    def member(self, **settings: Any) -> ShareConsumer:
        given = {"group_id": GROUP, "share_acknowledgement_mode": "explicit", **settings}
        return ShareConsumer("jobs", bootstrap_servers=self.bootstrap, **given)

    def value(self, name: str, **labels: str) -> float | None:
        """The current value of a sample; None if there is no such sample."""
        text = Exposition(self.node.metrics, self.node).render().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        return None


def fetches_of(node: Any) -> list[Sample]:
    """The samples of ShareFetch requests."""
    text = Exposition(BrokerMetrics(lambda: 0), node).render().decode()
    return [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "totalsharefetch" in sample.name
    ]


async def polled(consumer: ShareConsumer, count: int) -> list[Any]:
    """Poll until `count` records have come."""
    records: list[Any] = []
    while len(records) < count:
        records += await consumer.poll(1_000)
    assert len(records) == count
    return records


@pytest.mark.full
async def test_h250_h252_h253_acquired_and_acknowledged_records_are_metrics(
    start_broker: StartBroker,
) -> None:
    jobs = Jobs(await start_broker())
    value = jobs.value
    in_flight = "kafka_server_sharepartitionmetrics_inflightmessagecount"
    acknowledgements = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    archived = "odradek_sharegroup_archived_records_total"
    async with asyncio.timeout(DEADLINE_S):
        await jobs.prepare()
        async with jobs.member() as consumer:
            records = await polled(consumer, 20)
            assert value(in_flight, **KAFKA) == 20
            states = "odradek_sharegroup_records_in_flight"
            assert value(states, **OWN, state="acquired") == 20
            for record in records[10:]:
                record.accept()
            for record in records[5:10]:
                record.reject()
            for record in records[1:5]:
                record.release()
            await consumer.commit()
            assert value("kafka_sharegroup_members", sharegroup=GROUP) == 1
            assert value("kafka_consumergroup_members", consumergroup=GROUP) is None
            assert value("kafka_sharegroup_start_offset", **OWN) == 0
            assert value("kafka_sharegroup_lag", **OWN) == 5
            assert value("kafka_sharegroup_lag_sum", sharegroup=GROUP, topic="jobs") == 5
            for kind, count in {"Accept": 10, "Release": 4, "Reject": 5, "Renew": 0}.items():
                assert value(acknowledgements, ackType=kind) == count
            assert value(archived, **OWN, reason="rejected") == 5
            assert value(states, **OWN, state="available") == 4

            for record in await polled(consumer, 4):
                record.release()
            await consumer.commit()
            assert value(archived, **OWN, reason="delivery_count") == 4
            assert value("kafka_sharegroup_lag", **OWN) == 1
            assert value(in_flight, **KAFKA) == 20, "the first record is not answered yet"
            records[0].accept()
            await consumer.commit()
            assert value(in_flight, **KAFKA) == 0


@pytest.mark.full
async def test_h250_share_requests_loads_and_batches_are_metrics(start_broker: StartBroker) -> None:
    jobs = Jobs(await start_broker())
    value = jobs.value
    requests = "kafka_server_brokertopicmetrics_{}requests_total"
    async with asyncio.timeout(DEADLINE_S):
        await jobs.prepare()
        async with jobs.member() as consumer:
            for record in await polled(consumer, 20):
                record.accept()
            await consumer.commit()
            assert (value(requests.format("totalsharefetch"), topic="jobs") or 0) >= 1
            assert (value(requests.format("totalshareacknowledgement"), topic="jobs") or 0) >= 1
            for name in ("failedsharefetch", "failedshareacknowledgement"):
                assert value(requests.format(name), topic="jobs") == 0
            batches = "kafka_server_sharepartitionmetrics_inflightbatchmessagecount"
            assert value(f"{batches}_sum", **KAFKA) == 20
            of_group = "kafka_server_sharegroupmetrics_{}"
            assert value(of_group.format("partitionloadtimems_count")) == 1
            ratio = of_group.format("requesttopicpartitionsfetchratio")
            fetches = value(f"{ratio}_count", group=GROUP) or 0
            assert fetches >= 1 and value(f"{ratio}_sum", group=GROUP) == 100 * fetches
            waited = of_group.format("topicpartitionsacquiretimems_count")
            assert value(waited, group=GROUP) == fetches


@pytest.mark.full
async def test_h241_empty_fetches_because_of_other_members_locks_are_counted(
    start_broker: StartBroker,
) -> None:
    jobs = Jobs(await start_broker())
    async with asyncio.timeout(DEADLINE_S):
        await jobs.prepare()
        async with jobs.member() as consumer, jobs.member() as other:
            await polled(consumer, 20)
            empty = "odradek_sharegroup_empty_fetches_total"
            while not jobs.value(empty, **OWN, reason="locked"):
                assert await other.poll(300) == []


@pytest.mark.full
async def test_h250_refused_acknowledgements_count_as_failed_requests(
    start_broker: StartBroker,
) -> None:
    jobs = Jobs(await start_broker())
    failed = "kafka_server_brokertopicmetrics_failedshareacknowledgementrequests_total"
    async with asyncio.timeout(DEADLINE_S):
        await jobs.prepare()
        async with jobs.member() as consumer:
            (first, *_) = await polled(consumer, 20)
            (led,) = jobs.node.share_partitions.loaded()
            member_id = led.state.in_flight.batches[0].runs[0].member_id
            jobs.node.share_partitions.release(member_id, [led.key], SessionEnd.CLOSED)
            first.accept()
            results = await consumer.commit()
            assert all(results.values()), "the broker refuses what the member does not have"
            assert (jobs.value(failed, topic="jobs") or 0) >= 1


def test_h250_h253_expired_locks_count_only_for_existing_groups_and_topics() -> None:
    node: Any = FakeNode()
    listed = SimpleNamespace(
        group_id=GROUP, protocol_type="share", members=0, state=None, offsets=0
    )
    node.groups = SimpleNamespace(groups=list)
    topic_id = node.create("jobs")
    statistics = node.share_partitions.statistics
    for group, each in ((GROUP, topic_id), (GROUP, b"g" * 16), ("deleted", topic_id)):
        stored = [StateBatch(0, 4, 0, 1), StateBatch(5, 6, 4, 5)]
        expired = LocksExpired(ShareKey(group, each, 0), stored, delivery_count_limit=5)
        statistics.count(expired)
    Slices(lambda: 0, SoonScheduler()).run(statistics.fetched(["jobs", "deleted"], []))
    shown = {(each.name, each.labels["topic"]) for each in fetches_of(node)}
    assert shown == {("kafka_server_brokertopicmetrics_totalsharefetchrequests_total", "jobs")}
    listed.state = GroupState.EMPTY
    node.groups = SimpleNamespace(groups=lambda: [listed], committed=lambda group: {})
    text = Exposition(BrokerMetrics(lambda: 0), node).render().decode()
    found = {
        (sample.name, sample.labels["topic"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "acquisitionlocktimeout" in sample.name or "archived_records" in sample.name
        if sample.labels.get("group", GROUP) == sample.labels.get("sharegroup", GROUP) == GROUP
        or pytest.fail(f"{sample} is of a deleted group")
    }
    assert found == {
        ("kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", "jobs"): 7,
        ("odradek_sharegroup_archived_records_total", "jobs"): 2,
    }
