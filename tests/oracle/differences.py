"""Deliberate differences between our broker's answers and Apache Kafka's, with their reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from odradek_protocol.message import Versions

#: The maximum number of runs with a deliberate difference.
MOST_RUNS = 95


@dataclass(frozen=True)
class Difference:
    """A deliberate difference.

    `scenario`: a name that may contain `*`. `paths`: the paths that may differ, as `differing`
    yields them; `*` in a path matches anything. `reason`: a sentence for users, which is written
    into docs/compatibility.md.
    """

    scenario: str
    paths: tuple[str, ...]
    reason: str
    versions: str = "0+"

    def covers(self, scenario: str, version: int) -> bool:
        """True if the difference may occur in this run."""
        return fnmatchcase(scenario, self.scenario) and version in Versions.parse(self.versions)


_ONCE = (
    "A name that is repeated in one request to describe groups, transactions, configs or "
    "producers, or to fetch offsets, is in the answer once; in Kafka's answer it is as often as in the "
    "request, so that a small request can have an answer of gigabytes."
)
_STATIC = (
    "If the last member with the consumer protocol is static and changes back to the classic "
    "protocol, it has to join again (REBALANCE_IN_PROGRESS), so that the classic group has a leader "
    "that watches its topics. In Kafka it is a member at once, and partitions that are added later "
    "are assigned only at the next rebalance."
)
_CREATED = (
    "A topic that a Metadata request creates is in the answer to that request; Kafka answers "
    "UNKNOWN_TOPIC_OR_PARTITION until it has created the topic."
)
_DELETED = (
    "ListOffsets for the largest timestamp considers only records that DeleteRecords has not "
    "deleted; Kafka may answer with a deleted record, which cannot be read."
)
_BELOW_ZERO = (
    "A Fetch or ShareFetch with a limit of bytes below zero is answered as one with the limit 0; Kafka "
    "answers UNKNOWN_SERVER_ERROR for the partitions."
)
_FAILING = (
    "Requests with which Kafka fails (UNKNOWN_SERVER_ERROR or CORRUPT_MESSAGE for all that they name, "
    "or a number overflows) are answered as others of their kind: session ids of a Fetch far from "
    "those given out; no partitions, partitions below 0 and an empty group id in "
    "DescribeShareGroupOffsets; batches of 0 records in ShareFetch, and an unknown mode "
    "(INVALID_REQUEST); the longest retention of an OffsetCommit, with which Kafka's offset has expired; the largest number as a cursor of DescribeTopicPartitions; a batch with a wrong "
    "length beside others in Produce."
)
DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "alter-client-metrics-to-a-java-pattern",
        ("*",),
        "The patterns in subscriptions to client metrics have RE2's syntax, which has no back "
        "references and no look-around; in Kafka they have Java's syntax.",
    ),
    Difference(
        "repeated-names",
        (
            *("2.answer.groups", "3.answer.groups", "4.answer.transaction_states"),
            *("5.answer.results", "6.answer.topics.0.partitions", "7.answer.groups*"),
        ),
        _ONCE,
    ),
    Difference(
        "consumer-joins-an-empty-classic-group",
        ("*epoch",),
        "The epochs of an empty classic group that becomes a consumer group continue after its "
        "last generation; in Kafka they start over.",
    ),
    Difference(
        "consumer-static-joins-again",
        ("1.answer.*",),
        "A static member of a consumer group that joins again under its own member id, because the "
        "first answer was lost or its epoch was fenced, joins, as KIP-848 says; Kafka answers "
        "UNRELEASED_INSTANCE_ID until its session has ended.",
    ),
    Difference(
        "classic-comes-back-for-the-only-static-member",
        ("*",),
        _STATIC,
    ),
    Difference(
        "classic-comes-back-for-the-last-consumer-member",
        ("*",),
        _STATIC,
    ),
    Difference(
        "consumer-replaces-a-static-classic-member",
        ("*epoch", "*assignment*", "*members*"),
        "If a classic group has partitions without an owner when it becomes a consumer group, they "
        "are assigned at once; in Kafka they stay without an owner until something else changes.",
    ),
    Difference(
        "metadata-creates-at-once",
        ("*",),
        _CREATED,
    ),
    Difference(
        "create-topics-pipelined-behind-automatic-creation",
        ("0.answer.topics.0.*",),
        _CREATED,
    ),
    Difference(
        "client-quota-of-a-repeated-entity",
        ("*.entries*",),
        "If a request of AlterClientQuotas names an entity twice, none of the entity's changes is made, as "
        "the error INVALID_REQUEST says; Kafka makes the first change, and answers with the same error.",
    ),
    Difference(
        "client-quota-values",
        tuple(f"{step}.answer.entries.0.error_code" for step in (8, 10, 11, 26)),
        "A quota of NaN is refused; Kafka accepts it, and then does not enforce it.",
    ),
    Difference(
        "metadata-without-name-and-id",
        ("*error_code", "*.name"),
        "A Metadata request for a topic with neither name nor id gets UNKNOWN_TOPIC_ID for that "
        "topic; Kafka answers UNKNOWN_SERVER_ERROR for the whole request.",
    ),
    *(
        Difference(
            scenario,
            ("*error_code",),
            "An unknown operation of IncrementalAlterConfigs gets INVALID_REQUEST for every resource, "
            "as for a broker; Kafka answers UNKNOWN_SERVER_ERROR for all others.",
        )
        for scenario in ("alter-unknown-operation", "alter-by-unknown-operations")
    ),
    Difference(
        "timeouts-of-zero",
        ("*",),
        "CreateTopics, CreatePartitions and DeleteTopics with a timeout of 0 are carried out, because "
        "some clients send it although they wait for the answer; ElectLeaders and "
        "AlterPartitionReassignments with any timeout, because they wait for nothing. Kafka answers "
        "REQUEST_TIMED_OUT if the timeout is 0 or less.",
    ),
    Difference(
        "alter-share-offsets-at-the-edges",
        tuple(f"{step}.answer.*" for step in (1, 2, 3)),
        "AlterShareGroupOffsets for a partition below 0 gets UNKNOWN_TOPIC_OR_PARTITION for that "
        "partition; Kafka answers UNKNOWN_SERVER_ERROR for the whole request.",
    ),
    Difference(
        "offsets-of-largest-timestamp-deleted-*",
        ("*.offset", "*.timestamp", "*.leader_epoch"),
        _DELETED,
    ),
    Difference(
        "offsets-of-records-with*-timestamps",
        ("3.*.offset", "15.*.offset"),
        _DELETED,
    ),
    Difference(
        "offsets-by-time-below-a-deleted-segment",
        tuple(f"{step}.*" for step in (1, 2)),
        "ListOffsets for a timestamp finds the first record that DeleteRecords has not deleted; Kafka "
        "finds none while the segment with the deleted records is still on the disk.",
    ),
    Difference(
        "offsets-stable-in-a-deleted-part-of-a-batch",
        ("1.*.offset", "2.*.last_stable_offset"),
        "The last stable offset is never below the log start; in Kafka it may be, after DeleteRecords "
        "up to the middle of a batch of an open transaction.",
    ),
    Difference(
        "fetch-with-limits-below-zero",
        tuple(f"{step}.answer.responses.0.partitions.0.*" for step in (0, 2, 4)),
        _BELOW_ZERO,
    ),
    Difference("share-fetch-with-limits-below-zero", ("0.answer.responses",), _BELOW_ZERO),
    Difference("fetch-session-ids-at-the-edges", ("2.answer.*", "3.answer.*"), _FAILING),
    *(
        Difference(scenario, ("*.answer.*",), _FAILING)
        for scenario in (
            "share-offsets-described-at-the-edges",
            "share-fetch-in-batches-of-nothing",
            "share-fetch-in-an-unknown-mode",
            "describe-topic-partitions-from-the-last",
        )
    ),
    Difference(
        "share-acknowledge-*what-was-aborted",
        ("0.answer.*", "1.answer.*"),
        "A share group passes over records of aborted transactions at once: an acknowledgement of "
        "them is one below its start, without an error, and one of later records gets "
        "INVALID_RECORD_STATE. Kafka answers INVALID_RECORD_STATE and INVALID_REQUEST until it has "
        "moved the start, or UNKNOWN_SERVER_ERROR if the first offset is below the log start; "
        "DescribeShareGroupOffsets shows the new start later.",
    ),
    Difference(
        "produce-a-broken-batch-beside-another",
        ("0.answer.responses.1.partition_responses.0.*",),
        _FAILING,
    ),
    Difference(
        "markers-of-no-producer",
        ("0.answer.*.error_code", "2.answer.*.error_code"),
        "WriteTxnMarkers with any negative producer id or epoch gets UNKNOWN_SERVER_ERROR, and no marker "
        "is written; in Kafka so with -1 only.",
    ),
    Difference(
        "group-id-of-8001",
        ("*.answer.*",),
        "A group id of more than 8,000 characters gets INVALID_GROUP_ID, so that it fits into every record "
        "and text; Kafka accepts it, but answers some requests with UNKNOWN_SERVER_ERROR.",
    ),
    Difference(
        "alter-to-small-segments",
        ("*error_*",),
        "Segments may be smaller than 1 MB (`segment.bytes`, `log.segment.bytes`), as in "
        "Kafka before 4.0, because tests and demonstrations need small segments.",
    ),
    Difference(
        "alter-connections-by-address",
        tuple(f"{at}.answer*.error_*" for at in range(9, 17)),
        "`max.connections.per.ip.overrides` takes IP addresses only, as a peer has them: host names, short "
        "forms (0, 127.1), no address and counts below 0 are refused, because a name that is looked up "
        "once may have another address later. Kafka looks them up (0 is 0.0.0.0, the empty one is the "
        "loopback address). IPv6 addresses may have brackets, which Kafka refuses.",
    ),
    Difference(
        "scram-credentials-of-another-length",
        ("*.error_*",),
        "A salted password that has not the length of its mechanism is refused "
        "(UNACCEPTABLE_CREDENTIAL); Kafka stores it, and nobody can log in with it.",
    ),
    Difference(
        "scram-credentials-with-long-salts",
        ("*.error_*",),
        "A salt of more than 1,024 bytes is refused (UNACCEPTABLE_CREDENTIAL), because it would stay in "
        "memory and in the metadata; Kafka takes any.",
    ),
    Difference(
        "alter-unknown-broker-key",
        ("*error_code",),
        "An unknown setting of a broker is refused, because most often its name is misspelt; Kafka "
        "stores it, because plugins may use it.",
    ),
    Difference(
        "alter-broker-keys-of-plugins",
        ("*error_code",),
        "Changes of a broker's settings that Kafka accepts, or refuses with another code, are refused: a "
        "negative log.retention.ms other than -1; a negative log.flush.interval.ms; metric.reporters, "
        "sasl.enabled.mechanisms and cordoned.log.dirs, which cannot change while the broker runs; appending "
        "to settings that are not served (INVALID_REQUEST).",
    ),
    Difference(
        "describe-quorum*",
        ("*.nodes.0.listeners",),
        "DescribeQuorum lists no listeners of the controller, because the controller is part of the "
        "broker and has no listener of its own.",
        "2",
    ),
    Difference(
        "share-state-write-a-batch-that-ends-before-it-begins",
        ("*.error_code", "*.error_message", "*.state_batches"),
        "WriteShareGroupState refuses a state batch that ends before it begins (INVALID_REQUEST). "
        "Kafka stores it, and its coordinator hangs when another batch contains it.",
    ),
    Difference(
        "features",
        ("*.supported_features", "*.finalized_features"),
        "Two features are missing: eligible.leader.replicas.version, because each partition has one "
        "replica, and kraft.version, because the voters cannot change.",
        "3-4",
    ),
    *(
        Difference(
            scenario,
            ("*.error_code",),
            "A topology of Kafka Streams gets STREAMS_INVALID_TOPOLOGY with the reason if its epoch is "
            "below 0, if two subtopologies have the same id, or if a copartition group names a topic "
            "that its subtopology does not have; Kafka answers UNKNOWN_SERVER_ERROR. A topology of "
            "more than 20,000 tasks gets it too; Kafka has no limit.",
        )
        for scenario in ("streams-topology-broken", "streams-topology-of-a-negative-epoch")
    ),
    Difference(
        "create-partitions-too-many",
        ("*error_code",),
        "A CreatePartitions request for more than 10,000 new partitions gets POLICY_VIOLATION, as "
        "in CreateTopics; Kafka answers UNKNOWN_SERVER_ERROR.",
    ),
    Difference(
        "init-two-phase",
        ("0.answer*",),
        "Version 6 of InitProducerId (two-phase commit, KIP-939) is served; Kafka closes the "
        "connection unless `unstable.api.versions.enable` is set, and even then answers "
        "UNSUPPORTED_VERSION to a producer that keeps its prepared transaction.",
    ),
    Difference(
        "describe-topic-partitions-of-the-empty-name",
        ("0.answer.topics*",),
        "DescribeTopicPartitions with an empty topic name gets INVALID_TOPIC_EXCEPTION for that topic; "
        "Kafka answers UNKNOWN_SERVER_ERROR for every topic of the request.",
    ),
    Difference(
        "share-topic-grows",
        ("2.answer.groups.0.topics.0.partitions.1.*", "2.answer.groups.0.topics.0.partitions.2.*"),
        "A share group reads a partition that was added to a topic of its own from the offset 0, as "
        "Kafka after 4.3 (KAFKA-20742). In Kafka 4.3 it begins by share.auto.offset.reset with the "
        "first fetch, so a group that begins at the end misses what was written before.",
    ),
    Difference(
        "share-fetch-of-two-partitions",
        ("0.answer.responses.0.partitions*", "1.answer.responses*"),
        "The first ShareFetch of a group has records of all its partitions. In Kafka it has those of "
        "the partition whose state is read first, and the next one has the others; librdkafka's own "
        "test 0179 expects that. Later fetches are the same.",
    ),
    Difference(
        "share-fetch-by-duration",
        ("*.answer.responses.0.partitions.0.*",),
        "A share group with share.auto.offset.reset=by_duration starts at the end of a partition that "
        "has no record of that age or newer; in Kafka its members get OFFSET_NOT_AVAILABLE until the "
        "partition has such a record.",
    ),
    Difference(
        "share-fetch-unknown-topic",
        ("*.answer.*",),
        "A ShareFetch that names an unknown topic id is answered for each partition, with "
        "UNKNOWN_TOPIC_ID for those of this topic; Kafka answers UNKNOWN_SERVER_ERROR for the whole request, and "
        "for all later ones of the session.",
    ),
    Difference(
        "produce-in-a-transaction-without-a-producer",
        ("*.partition_responses.0.*",),
        "A transactional batch without a producer id is refused (INVALID_RECORD); Kafka stores it, and "
        "readers get it at once, because no transaction can be found that it belongs to.",
    ),
    Difference("describe-producers-odd", ("2.answer.topics.0.partitions",), _ONCE),
    Difference(
        "offset-fetch-named-twice",
        ("0.answer.groups.0.topics.0.partitions", "1.answer.groups.0.topics"),
        _ONCE,
    ),
    Difference(
        "offset-delete",
        ("4.answer.error_code", "5.answer.error_code", "9.answer.groups.0.*"),
        "A group without members is deleted together with the last of its offsets; Kafka lists it as "
        "Empty until the next check for expired offsets.",
    ),
)

#: Settings of topics and groups that our DescribeConfigs returns and Kafka 4.3 does not: settings
#: of Kafka 4.4 (KIP-1191), and our own. docs/compatibility.md names them.
MORE_SETTINGS = frozenset(
    {
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.group.enable",
        "errors.deadletterqueue.topic.name",
        "mirror.source",
        "share.redelivery.delay.max.ms",
        "share.redelivery.delay.ms",
    }
)

#: Stands for a field that is missing because it has its default; null is a different value.
ABSENT = "<absent>"


def differing(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, Kafka's value, our value) wherever the two answers differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            yield from differing(
                theirs.get(key, ABSENT), ours.get(key, ABSENT), f"{path}.{key}" if path else key
            )
    elif (
        isinstance(theirs, list)
        and isinstance(ours, list)
        and len(theirs) == len(ours := _of_the_same_release(ours))
    ):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differing(one, other, f"{path}.{index}" if path else str(index))
    elif theirs != ours and not _says_more(path, theirs, ours):
        yield path, theirs, ours


def _of_the_same_release(ours: list[Any]) -> list[Any]:
    """Our list without settings that the recorded Kafka does not know."""
    return [
        each for each in ours if not (isinstance(each, dict) and each.get("name") in MORE_SETTINGS)
    ]


def _says_more(path: str, theirs: Any, ours: Any) -> bool:
    """True if only our broker has an error message: the texts of error messages are not compared,
    and an additional message does no harm."""
    has_none = theirs is None or theirs == ABSENT
    says = isinstance(ours, str) and ours not in ("", ABSENT)
    return path.endswith("error_message") and has_none and says


def unexplained(
    scenario: str, version: int, theirs: Any, ours: Any, with_reasons: bool = True
) -> tuple[list[str], set[Difference]]:
    """(differences that no row explains, rows that explain a difference) for one run."""
    rows = [r for r in DIFFERENCES if with_reasons and r.covers(scenario, version)]
    lines: list[str] = []
    used: set[Difference] = set()
    for path, one, other in differing(theirs, ours):
        fitting = [row for row in rows if any(fnmatchcase(path, each) for each in row.paths)]
        if fitting:
            used.add(fitting[0])
        else:
            lines.append(f"{scenario}-v{version} {path}: Kafka {one!r}, ours {other!r}")
    return lines, used
