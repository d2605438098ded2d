"""The profiles of other brokers: the served APIs, and the limits on topics and batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from node_world import SoonScheduler
from odradek_broker.config.broker import parse_config
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.deferred import Deferred
from odradek_broker.emulation.profiles import PROFILES
from odradek_broker.emulation.served import served_apis
from odradek_broker.request import RequestContext
from odradek_broker.server.emulated_handlers import _broken_rule, _values_of, emulated_handlers
from odradek_broker.slices import Slices, Work
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, PRIVATE_KEYS, ApiKey
from odradek_protocol.message import Versions
from odradek_protocol.schemas.create_topics import CreatableReplicaAssignment, CreatableTopic
from odradek_protocol.schemas.produce import ProduceRequest, ProduceResponse

#: APIs that a profile has only in versions that Kafka 4.0 removed.
TOO_OLD = {("event-hubs", ApiKey.OFFSET_FOR_LEADER_EPOCH)}
EVERY_PROFILE = pytest.mark.parametrize("name", PROFILES)


@EVERY_PROFILE
def test_every_profile_serves_the_newest_version_that_it_advertises(name: str) -> None:
    served = served_apis(PROFILES[name], two_phase_commit=True)
    assert not PRIVATE_KEYS & served.keys()
    assert {ApiKey.API_VERSIONS, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA} <= served.keys()
    for each in served.values():
        if (name, each.api.key) in TOO_OLD:
            assert not list(each.versions)
            continue
        assert list(each.versions), each.api.name
        assert each.versions.last <= each.api.versions.last
        if each.advertised is not None:
            assert set(each.versions) <= set(each.advertised)
            # Clients choose the newest advertised version, so it must be served.
            assert each.versions.last == each.advertised.last, each.api.name


def test_a_broker_without_a_profile_serves_and_advertises_every_version() -> None:
    served = served_apis(None, two_phase_commit=True)
    assert {key: (each.api, each.versions, each.advertised) for key, each in served.items()} == {
        key: (api, api.versions, api.advertised) for key, api in APIS.items()
    }


def test_two_phase_commit_is_not_advertised_if_it_is_disabled() -> None:
    served = served_apis(None, two_phase_commit=False)[ApiKey.INIT_PRODUCER_ID]
    assert served.advertised == Versions(0, 5)


@EVERY_PROFILE
def test_the_settings_of_a_profile_are_defaults(name: str) -> None:
    given = {"odradek.emulate": name}
    config, notices = parse_config(given)
    for key, value in PROFILES[name].settings.items():
        assert str(getattr(config, key.replace(".", "_"))).lower() == value
        other = {"false": "true", "accept": "reject"}.get(value, "70000")
        again, _ = parse_config(given | {key: other})
        assert str(getattr(again, key.replace(".", "_"))).lower() != value
    assert any(PROFILES[name].title in notice.text for notice in notices)


def test_the_event_hubs_profile_lowers_the_idle_limit_of_connections() -> None:
    given = {"odradek.emulate": "event-hubs"}
    assert parse_config(given)[0].connections_max_idle_ms == 240_000
    assert parse_config({})[0].connections_max_idle_ms == 600_000


def test_the_error_for_an_unknown_profile_lists_the_known_ones() -> None:
    with pytest.raises(BrokerConfigError, match=r"kafka-3\.9.*event-hubs"):
        parse_config({"odradek.emulate": "kafka-0.8"})


@EVERY_PROFILE
def test_every_topic_rule_of_a_profile_has_a_source(name: str) -> None:
    for rule in PROFILES[name].topic_rules:
        assert "." in rule.source and "/" in rule.source


@pytest.mark.parametrize(("count", "refused"), [(32, False), (33, True)])
@pytest.mark.parametrize("assigned", [False, True])
def test_a_limit_of_partitions_also_counts_assigned_partitions(
    count: int, refused: bool, assigned: bool
) -> None:
    topic = CreatableTopic(name="t", num_partitions=-1 if assigned else count)
    if assigned:
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[1])
            for index in range(count)
        ]
    broken = _broken_rule(PROFILES["event-hubs"], _values_of(topic))
    assert (broken is not None and broken[0] is ErrorCode.INVALID_PARTITIONS) == refused


def test_n03_a_changed_answer_that_takes_slices_is_a_work_as_well() -> None:
    """A session begins the next Produce behind every other unfinished answer to a Produce."""
    turns = SoonScheduler()
    node: Any = SimpleNamespace(slices=Slices(lambda: 0, turns))
    checked: Deferred[ProduceResponse] = Deferred()

    async def steps() -> ProduceResponse:
        return await checked

    def handle(*_: object) -> Any:
        return node.slices.run(steps())

    emulated = emulated_handlers(PROFILES["event-hubs"], dict.fromkeys(ApiKey, handle))
    reply = emulated[ApiKey.PRODUCE](node, RequestContext(9, None, "", 1), ProduceRequest())
    assert isinstance(reply, Work)
    checked.resolve(ProduceResponse())
    turns.run()
    assert reply.done
