"""Plans, settings, offsets of groups and progress, without clusters."""

from __future__ import annotations

import re
from dataclasses import replace

from odradek_client.admin.acls import AclBinding
from odradek_client.admin.configs import ConfigEntry, ConfigSource
from odradek_client.admin.groups import GroupListing
from odradek_client.admin.quotas import QuotaEntity, QuotaName
from odradek_client.admin.topics import PartitionDescription, TopicDescription
from odradek_client.structs import OffsetAndMetadata, TopicPartition
from odradek_mirror.group_offsets import marks, verdict
from odradek_mirror.plan import (
    ClusterFacts,
    MirrorOptions,
    Mode,
    TopicAction,
    TopicSelection,
    make_plan,
    mirror_source,
)
from odradek_mirror.progress import Progress, RateLimit
from odradek_mirror.settings import acls_to_copy, changed_settings, copied_settings, quotas_to_copy
from odradek_protocol.acls import AclOperation, AclResourceType, PatternType

TP = TopicPartition("orders", 0)
ID = bytes(range(16))


def _entry(name: str, value: str, source: ConfigSource = ConfigSource.TOPIC) -> ConfigEntry:
    return ConfigEntry(name, value, source, source is ConfigSource.DEFAULT, False, False)


def _side(
    cluster: str, partitions: int = 0, end: int = 0, mirror_of: str = "", *, able: bool = True
) -> ClusterFacts:
    parts = [PartitionDescription(n, 1, 0, [1], [1], []) for n in range(partitions)]
    topics = {"orders": TopicDescription("orders", ID, False, parts)} if partitions else {}
    settings = {"orders": {"mirror.source": _entry("mirror.source", mirror_of)}}
    return ClusterFacts(
        cluster,
        1,
        able,
        topics,
        settings if mirror_of else {},
        {TP: (0, end)} if partitions else {},
    )


def test_a_plan_creates_extends_and_continues() -> None:
    source = _side("A", 2, 10)
    ours = mirror_source("A", ID)
    for target, action in (
        (_side("B"), TopicAction.CREATE),
        (_side("B", 1, 4, ours), TopicAction.EXTEND),
        (_side("B", 2, 4, ours), TopicAction.CONTINUE),
    ):
        plan = make_plan(source, target, MirrorOptions())
        assert (plan.mode, plan.problems) == (Mode.SAME_OFFSETS, ())
        assert [each.action for each in plan.topics] == [action]
        assert plan.topics[0].settings["mirror.source"] == ours


def test_a_plan_names_the_problems_of_a_target() -> None:
    source = _side("A", 2, 10)
    ours = mirror_source("A", ID)
    for target, words in (
        (_side("A"), "the same cluster"),
        (_side("B", 2, 4), "is no mirror"),
        (_side("B", 2, 4, "A:other"), "mirror of another topic"),
        (_side("B", 3, 4, ours), "has 3 partitions"),
        (_side("B", 2, 11, ours), "has lost records"),
    ):
        (problem,) = make_plan(source, target, MirrorOptions()).problems
        assert words in problem
    unable = _side("B", able=False)
    assert make_plan(source, unable, MirrorOptions()).mode is Mode.EXACTLY_ONCE
    (problem,) = make_plan(source, unable, MirrorOptions(mode=Mode.SAME_OFFSETS)).problems
    assert "needs an Odradek" in problem


def test_a_selection_that_matches_no_group_is_noted() -> None:
    source, options = (
        _side("A", 2, 10),
        MirrorOptions(TopicSelection(groups=re.compile("billing-*"))),
    )
    (note,) = make_plan(source, _side("B"), options).notes
    assert "no group of the source is selected" in note
    assert make_plan(source, _side("B"), MirrorOptions()).notes == ()
    found = replace(source, groups=(GroupListing("billing-", "", "Empty", "classic", 1),))
    assert make_plan(found, _side("B"), options).notes == ()


def test_internal_topics_are_left_out_with_a_reason_if_selected_by_name() -> None:
    for name, reason in (("__mine", "begin with __"), ("odradek-mirror-x", "belong to mirrors")):
        named = TopicSelection(topics=re.compile(f"orders|{name}"))
        assert not named.has_topic(name)
        source = replace(_side("A", 1, 10), left_out={name: named.left_out(name) or ""})
        (note,) = make_plan(source, _side("B"), MirrorOptions(named)).notes
        assert repr(name) in note
        assert reason in note
        assert TopicSelection().left_out(name) is None
        assert TopicSelection(topics=re.compile("orders")).left_out(name) is None


def test_timestamps_that_the_target_replaces_are_reported() -> None:
    def side(cluster: str, partitions: int, kind: str) -> ClusterFacts:
        entry = _entry("message.timestamp.type", kind)
        settings = {"orders": {entry.name: entry}}
        return replace(_side(cluster, partitions, 10, able=False), settings=settings)

    append = side("A", 2, "LogAppendTime")
    for target, told in (
        (_side("B", able=False), True),
        (side("B", 2, "LogAppendTime"), True),
        (side("B", 2, "CreateTime"), False),
    ):
        notes = make_plan(append, target, MirrorOptions()).notes
        assert [("the time of the copy" in note) for note in notes] == [True] * told
    assert make_plan(append, _side("B"), MirrorOptions()).notes == ()


def test_settings_unfit_for_the_target_are_left_out_with_a_reason() -> None:
    entries = {
        each.name: each
        for each in (
            _entry("min.insync.replicas", "2"),
            _entry("cleanup.policy", "compact"),
            _entry("retention.ms", "5", ConfigSource.STATIC_BROKER),
            _entry("segment.bytes", "5", ConfigSource.STATIC_BROKER),
            _entry("local.retention.ms", "5"),
        )
    }
    copied, left_out = copied_settings(entries, 1)
    assert copied == {"cleanup.policy": "compact", "retention.ms": "5"}
    assert [name for name, _ in left_out] == ["local.retention.ms", "min.insync.replicas"]
    assert "min.insync.replicas" in copied_settings(entries, 3)[0]


def test_a_setting_changed_at_the_target_is_kept() -> None:
    before, after = {"retention.ms": "1", "segment.ms": "1"}, {"retention.ms": "2"}
    there = {"retention.ms": _entry("retention.ms", "7"), "segment.ms": _entry("segment.ms", "1")}
    followed, kept = changed_settings(before, after, there)
    assert followed == {"segment.ms": None}
    assert [name for name, _ in kept] == ["retention.ms"]


def test_i42_an_offset_committed_by_another_client_is_not_overwritten() -> None:
    wanted = OffsetAndMetadata(10)
    noted = marks({TP: OffsetAndMetadata(8, "5")})[TP]
    assert verdict(wanted, None, frozenset()) == "write"
    assert verdict(wanted, OffsetAndMetadata(8), noted) == "write"
    # A kill between the two commits leaves the earlier offset.
    assert verdict(wanted, OffsetAndMetadata(5), noted) == "write"
    assert verdict(wanted, OffsetAndMetadata(7), noted) == "theirs"
    assert verdict(wanted, OffsetAndMetadata(12), frozenset()) == "theirs"
    assert verdict(wanted, OffsetAndMetadata(10), frozenset()) == "equal"


def test_lag_is_never_negative_and_failures_are_in_every_line() -> None:
    progress = Progress(0.0)
    progress.begin(TP, 5, 10)
    progress.seen(TP, 10, 10)
    progress.copied(TP, 8, records=3, size_bytes=3_000, timestamp_ms=1_000)
    shown = progress.snapshot(1.0, 3_000)
    assert (shown.lag, shown.lag_s, shown.records_per_s) == (2, 2.0, 3.0)
    progress.copied(TP, 12, records=4, size_bytes=1)
    progress.failed(TP, "the topic was deleted")
    shown = progress.snapshot(2.0, 3_000)
    assert shown.lag == 0
    assert "FAILED: orders-0: the topic was deleted" in shown.line()


def test_a_rate_spends_one_second_at_most_in_advance() -> None:
    rate = RateLimit(100)
    assert rate.wait_s(0.0) == 0.0
    rate.spend(300, 0.0)
    assert rate.wait_s(0.0) == 2.0
    assert rate.wait_s(1.0) == 1.0
    assert rate.wait_s(100.0) == 0.0
    rate.spend(200, 100.0)
    assert rate.wait_s(100.0) == 1.0


def test_acls_of_copied_topics_groups_and_transactional_ids_are_copied() -> None:
    def acl(
        kind: AclResourceType, name: str, pattern: PatternType = PatternType.LITERAL
    ) -> AclBinding:
        return AclBinding("User:alice", AclOperation.WRITE, kind, name, pattern)

    copied = [
        acl(AclResourceType.TOPIC, "orders"),
        acl(AclResourceType.TOPIC, "*"),
        acl(AclResourceType.TOPIC, "inv", PatternType.PREFIXED),
        acl(AclResourceType.GROUP, "billing"),
        acl(AclResourceType.TRANSACTIONAL_ID, "payments"),
    ]
    others = [acl(AclResourceType.TOPIC, "flights"), acl(AclResourceType.CLUSTER, "kafka-cluster")]
    names = TopicSelection(topics=re.compile("orders"))
    assert acls_to_copy([*copied, *others], names) == copied


def test_quotas_of_the_target_are_kept() -> None:
    alice, everybody = QuotaEntity(user="alice"), QuotaEntity(client_id=QuotaName.DEFAULT)
    source = {
        alice: {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0},
        everybody: {"x": 1.0},
    }
    changes, kept = quotas_to_copy(
        source, {alice: {"producer_byte_rate": 5.0}, everybody: {"x": 1}}
    )
    assert changes == {alice: {"consumer_byte_rate": 20.0}}
    (line,) = kept
    assert line == (
        "quota producer_byte_rate of user 'alice' is 5 at the target and 10 at the source; it stays"
        " as it is"
    )
