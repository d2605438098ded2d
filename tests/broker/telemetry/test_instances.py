"""Client instances: their requests and pushes, and their end."""

from __future__ import annotations

import pytest

import odradek_broker.telemetry.instances as module
from at_once import at_once
from odradek_broker.config.client_metrics_settings import DEFAULT_INTERVAL_MS
from odradek_broker.telemetry.instances import KEPT_MS_MIN, ClientInstance, ClientInstances, Pushed
from odradek_broker.telemetry.subscriptions import (
    MATCHED_CHARACTERS_MAX,
    ClientAttributes,
    MetricsSubscriptions,
    WantedMetrics,
)
from odradek_protocol.errors import ErrorCode

E = ErrorCode
ID = bytes(range(16))
OTHER = bytes(range(1, 17))
CLIENT = ClientAttributes("id", "orders-1", "librdkafka", "2.6.1", "10.0.0.7", "4711")
BYTES_MAX = 1000


class World:
    def __init__(self, interval_ms: int = 1000) -> None:
        self.subscriptions = MetricsSubscriptions()
        self.subscriptions.update("s", {"metrics": "*", "interval.ms": str(interval_ms)})
        self.ended: list[bytes] = []
        self.all = ClientInstances(
            self.subscriptions, lambda instance: self.ended.append(instance.instance_id)
        )
        self.now_ms = 0

    def instance(self, instance_id: bytes = ID, connection: int = 1) -> ClientInstance:
        return at_once(self.all.of(instance_id, lambda: CLIENT, connection, self.now_ms))

    def get(self) -> ErrorCode:
        return self.all.check_get(self.instance(), self.now_ms)

    def push(
        self, *, subscription: int | None = None, codec: int = 0, last: bool = False, size: int = 1
    ) -> ErrorCode:
        instance = self.instance()
        subscription = instance.subscription_id if subscription is None else subscription
        pushed = Pushed(subscription, codec, last, size)
        return self.all.check_push(instance, pushed, BYTES_MAX, self.now_ms)


def test_m06_a_client_gets_its_subscription_once_in_an_interval() -> None:
    world = World()
    assert world.get() is E.NONE
    world.now_ms = 999
    assert world.get() is E.THROTTLING_QUOTA_EXCEEDED
    world.now_ms = 1000
    assert world.get() is E.NONE


def test_m06_a_client_gets_a_changed_subscription_at_once() -> None:
    world = World()
    world.get()
    world.subscriptions.update("s", {"interval.ms": "2000"})
    assert world.get() is E.NONE
    assert world.get() is E.THROTTLING_QUOTA_EXCEEDED
    assert world.push(subscription=1) is E.UNKNOWN_SUBSCRIPTION_ID
    assert world.get() is E.NONE
    assert world.get() is E.THROTTLING_QUOTA_EXCEEDED


def test_m10_a_second_push_before_the_interval_is_throttled() -> None:
    world = World()
    world.get()
    world.now_ms = 1
    assert world.push() is E.NONE
    world.now_ms = 1000
    assert world.push() is E.THROTTLING_QUOTA_EXCEEDED
    world.now_ms = 1001
    assert world.push() is E.NONE
    assert world.all.counts.throttled == 1


def test_m10_a_push_is_checked_for_its_subscription_codec_and_size() -> None:
    world = World()
    assert world.push(subscription=1, codec=9, size=BYTES_MAX + 1) is E.UNKNOWN_SUBSCRIPTION_ID
    world.now_ms += 1000
    assert world.push(codec=9, size=BYTES_MAX + 1) is E.UNSUPPORTED_COMPRESSION_TYPE
    world.now_ms += 1000
    assert world.push(codec=4, size=BYTES_MAX + 1) is E.TELEMETRY_TOO_LARGE
    world.now_ms += 1000
    assert world.push(codec=4, size=BYTES_MAX) is E.NONE
    assert world.all.counts.unknown_subscription == 1


def test_m11_a_terminating_push_may_come_early_and_none_after_it() -> None:
    world = World()
    assert world.push() is E.NONE
    assert world.push(last=True) is E.NONE
    assert world.push() is E.INVALID_REQUEST
    # The refused push does not end the instance, as in Kafka.
    world.now_ms = 1000
    assert world.push() is E.NONE


def test_m14_a_client_instance_ends_with_its_connection() -> None:
    world = World()
    world.instance(ID, connection=1)
    world.instance(OTHER, connection=2)
    world.all.connection_closed(1)
    world.all.connection_closed(3)
    assert world.ended == [ID]
    # An instance belongs to the connection of its last request.
    world.instance(OTHER, connection=4)
    world.all.connection_closed(2)
    assert len(world.all) == 1


@pytest.mark.parametrize(("interval_ms", "kept_ms"), [(1000, KEPT_MS_MIN), (30_000, 90_000)])
def test_m14_a_client_instance_ends_some_time_after_its_last_request(
    interval_ms: int, kept_ms: int
) -> None:
    world = World(interval_ms)
    world.instance()
    world.all.expire(kept_ms - 1)
    assert len(world.all) == 1
    world.all.expire(kept_ms)
    assert world.ended == [ID] and world.all.get(ID) is None


def test_m14_an_ended_client_instance_returns_with_the_same_subscription() -> None:
    world = World()
    before = world.instance().subscription_id
    world.all.connection_closed(1)
    assert world.push(subscription=before) is E.NONE


def test_m15_the_longest_idle_client_instance_is_dropped_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 2)
    world = World()
    third = bytes(range(2, 18))
    for number, instance_id in enumerate((ID, OTHER, ID, third)):
        world.instance(instance_id, connection=number)
    assert world.ended == [OTHER]


def test_m15_the_client_instances_of_a_connection_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "INSTANCES_PER_CONNECTION_MAX", 3)
    world = World()
    world.instance(OTHER, connection=2)
    ids = [bytes([number]) * 16 for number in range(2, 8)]
    for instance_id in ids:
        world.instance(instance_id, connection=1)
    assert world.ended == ids[:3] and world.all.get(OTHER) is not None


def test_m03_matching_subscriptions_are_merged() -> None:
    subscriptions = MetricsSubscriptions()
    assert at_once(subscriptions.of(CLIENT)) == WantedMetrics((), DEFAULT_INTERVAL_MS)
    subscriptions.update("a", {"metrics": "b.,a.", "interval.ms": "5000"})
    subscriptions.update("b", {"metrics": "c."})
    assert at_once(subscriptions.of(CLIENT)) == WantedMetrics(("a.", "b.", "c."), 5000)
    subscriptions.update("c", {"metrics": "*", "match": "client_id=other"})
    assert at_once(subscriptions.of(CLIENT)).metrics == ("a.", "b.", "c.")
    subscriptions.update("c", {"metrics": "*", "match": "client_id=orders-.*"})
    assert at_once(subscriptions.of(CLIENT)) == WantedMetrics(("*",), 5000)
    subscriptions.update("a", {})
    subscriptions.update("c", {})
    assert at_once(subscriptions.of(CLIENT)) == WantedMetrics(("c.",), DEFAULT_INTERVAL_MS)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=orders-1", True),
        ("client_id=orders", False),
        ("client_id=orders-[0-9],client_software_name=lib.*", True),
        ("client_id=orders-[0-9],client_software_name=java", False),
        ("client_software_version=2\\.6\\..*", True),
        ("client_source_address=10\\..*", True),
        ("client_source_port=47..", True),
        ("client_instance_id=id", True),
        (" client_id = orders-1 ", True),
    ],
)
def test_m04_a_match_pattern_must_match_the_whole_attribute(match: str, matches: bool) -> None:
    subscriptions = MetricsSubscriptions()
    subscriptions.update("s", {"metrics": "*", "match": match})
    assert (at_once(subscriptions.of(CLIENT)).metrics == ("*",)) is matches


def test_m04_an_empty_attribute_may_match_and_a_very_long_one_matches_nothing() -> None:
    subscriptions = MetricsSubscriptions()
    subscriptions.update("s", {"metrics": "*", "match": "client_id=.*"})
    for client_id, matches in (
        ("", True),
        ("x" * MATCHED_CHARACTERS_MAX, True),
        ("x" * (MATCHED_CHARACTERS_MAX + 1), False),
    ):
        client = CLIENT._replace(client_id=client_id)
        assert (at_once(subscriptions.of(client)).metrics == ("*",)) is matches


def test_m05_the_subscription_id_depends_on_metrics_interval_and_client() -> None:
    ids = {
        WantedMetrics(metrics, interval_ms).subscription_id(client)
        for metrics in ((), ("*",), ("a.",), ("a.", "b."))
        for interval_ms in (1000, 2000)
        for client in (ID, OTHER)
    }
    assert len(ids) == 16 and all(-(2**31) <= each < 2**31 for each in ids)
