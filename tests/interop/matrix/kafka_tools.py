"""The command line tools that Kafka ships, each started in the same way as by its script."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.interop.matrix.row import Check, Place, executed

from kafka_cluster import java

_COMMAND_DEADLINE_S = 90.0
#: The time in s after which a tool that does not end is killed.
_ENDLESS_S = 10.0
_KILLED = -9
_RECORDS = 200
_TOOLS = "org.apache.kafka.tools."
#: The commands run only briefly, and the JVM starts fastest with the C1 compiler and the serial
#: collector.
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


class Step(NamedTuple):
    """A command of a tool.

    `tool`: the class that the tool's script starts. `expected`: a pattern of the output. `code`:
    the expected exit code. Names in braces, in the arguments and in the pattern, are replaced by
    the texts of `_names`. If the arguments have no address, --bootstrap-server is added to them.
    """

    name: str
    tool: str
    arguments: str
    expected: str = ""
    stdin: str = ""
    code: int = 0


def _steps(rows: Mapping[tuple[str, str], tuple[str] | tuple[str, str]]) -> tuple[Step, ...]:
    """The steps with these names, tools, arguments and expected texts."""
    return tuple(Step(*key, *row) for key, row in rows.items())


_KEYED = "".join(f"k{number % 7}:v{number}\n" for number in range(_RECORDS))
_TOPICS = "TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_CONSUMER = "consumer.ConsoleConsumer"
_GROUPS = "consumer.group.ConsumerGroupCommand"
_SHARES = "consumer.group.ShareGroupCommand"
_STREAMS = "streams.StreamsGroupCommand"
_REASSIGN = "reassign.ReassignPartitionsCommand"
_TRANSACTIONS = "TransactionsCommand"
_QUORUM = "MetadataQuorumCommand"
_METRICS = "ClientMetricsCommand"
_DUMP = "DumpLogSegments"
_TOKENS = "DelegationTokenCommand"
_PERF = "--topic {topic} --record-size 100 --throughput -1 --num-records 2000"

_RECORD_STEPS = (
    *_steps(
        {
            ("topics: create", _TOPICS): (
                "--create --topic {topic} --partitions 3 --config retention.ms=86400000",
                "Created topic {topic}",
            ),
            ("topics: more partitions", _TOPICS): ("--alter --topic {topic} --partitions 4",),
            ("topics: list", _TOPICS): ("--list", "(?m)^{topic}$"),
            ("topics: describe", _TOPICS): (
                "--describe --topic {topic}",
                r"PartitionCount: 4.*retention.ms=86400000.*Partition: 3.*Isr: \d",
            ),
        }
    ),
    Step(
        "console-producer",
        "ConsoleProducer",
        "--topic {topic} --compression-codec zstd --reader-property parse.key=true "
        "--reader-property key.separator=:",
        stdin=_KEYED,
    ),
    *_steps(
        {
            ("console-consumer", _CONSUMER): (
                (
                    "--topic {topic} --group {group} --from-beginning --max-messages 200 --timeout-ms 30000 "
                    "--formatter-property print.key=true"
                ),
                r"k0\tv0\n.*Processed a total of 200 messages",
            ),
            ("console-consumer: nothing is left", _CONSUMER): (
                "--topic {topic} --group {group} --timeout-ms 6000",
                "Processed a total of 0 messages",
            ),
            ("console-consumer: the consumer protocol", _CONSUMER): (
                (
                    "--topic {topic} --group {group}-k --from-beginning --max-messages 200 --timeout-ms 30000 "
                    "--command-property group.protocol=consumer"
                ),
                "Processed a total of 200 messages",
            ),
            ("get-offsets", "GetOffsetShell"): (
                "--topic {topic} --time latest",
                r"{topic}:0:\d+\n{topic}:1:\d+\n{topic}:2:\d+\n{topic}:3:\d+",
            ),
            ("get-offsets: by the latest time", "GetOffsetShell"): (
                "--topic-partitions {topic}:0 --time max-timestamp",
                r"{topic}:0:\d+",
            ),
            ("verifiable-producer", "VerifiableProducer"): (
                "--topic {topic} --max-messages 200 --acks -1",
                r'"tool_data","sent":200,"acked":200',
            ),
            ("verifiable-consumer", "VerifiableConsumer"): (
                "--topic {topic} --group-id {group}-v --max-messages 400 --reset-policy earliest",
                r'"offsets_committed".*"success":true.*"shutdown_complete"',
            ),
            ("producer-perf-test", "ProducerPerformance"): (_PERF, "(?m)^2000 records sent"),
            ("producer-perf-test: transactions", "ProducerPerformance"): (
                _PERF + " --transactional-id {topic}-id --transaction-duration-ms 50",
                "(?m)^2000 records sent",
            ),
            ("consumer-perf-test", "ConsumerPerformance"): (
                "--topic {topic} --num-records 4400 --timeout 20000 --group {group}-perf",
                ", 4400, ",
            ),
            ("e2e-latency", "EndToEndLatency"): (
                "{address} {topic} 20 all 100",
                r"Percentiles: 50th = \d+",
            ),
        }
    ),
    Step(
        "replica-verification",
        "ReplicaVerificationTool",
        "--broker-list {address} --topics-include {topic} --report-interval-ms 1000",
        r"max lag is 0 for partition {topic}-\d at offset \d+ among 4 partitions",
        code=_KILLED,
    ),
)

_GROUP_STEPS = _steps(
    {
        ("groups: list", "GroupsCommand"): ("--list", "{group} +Classic +consumer"),
        ("consumer-groups: list", _GROUPS): ("--list", "(?m)^{group}$"),
        ("consumer-groups: describe", _GROUPS): (
            "--describe --group {group}",
            r"{group} +{topic} +0 +\d+ +\d+ +\d+",
        ),
        ("consumer-groups: the state", _GROUPS): (
            "--describe --state --group {group}-k",
            "{group}-k .*uniform +Empty +0",
        ),
        ("consumer-groups: members", _GROUPS): (
            "--describe --members --group {group}",
            "has no active members",
        ),
        ("consumer-groups: reset to the earliest", _GROUPS): (
            "--reset-offsets --group {group} --topic {topic} --to-earliest --execute",
            r"{group} +{topic} +3 +0\b",
        ),
        ("consumer-groups: export", _GROUPS): (
            "--reset-offsets --group {group} --topic {topic} --shift-by 2 --export --dry-run",
            r'"?{topic}"?,3,2',
        ),
        ("consumer-groups: reset from a file", _GROUPS): (
            "--reset-offsets --group {group} --from-file {folder}/offsets.csv --execute",
            r"{group} +{topic} +1 +5\b",
        ),
        ("consumer-groups: delete offsets", _GROUPS): (
            "--delete-offsets --group {group} --topic {topic}:0",
            "{topic} +0 +Successful",
        ),
        ("consumer-groups: delete", _GROUPS): (
            "--delete --group {group}",
            r"\('{group}'\) was successful",
        ),
        ("streams-application-reset", "StreamsResetter"): (
            "--application-id {group}-app --input-topics {topic} --force",
            "Topic: {topic} Partition: 3 Offset: 0",
        ),
        ("streams-groups: list", _STREAMS): ("--list",),
        ("configs: a share group", _CONFIGS): (
            "--alter --group {group}-s --add-config share.auto.offset.reset=earliest",
            "Completed updating config",
        ),
        ("console-share-consumer", "consumer.ConsoleShareConsumer"): (
            "--topic {topic} --group {group}-s --max-messages 100 --timeout-ms 20000",
            "Processed a total of 100 messages",
        ),
        ("share-consumer-perf-test", "ShareConsumerPerformance"): (
            "--topic {topic} --group {group}-s --num-records 1000 --timeout 20000",
            r", 1\d\d\d, ",
        ),
        ("verifiable-share-consumer", "VerifiableShareConsumer"): (
            "--topic {topic} --group-id {group}-v2 --max-messages 500 --offset-reset-strategy earliest",
            r'"offsets_acknowledged".*"shutdown_complete"',
        ),
        ("share-groups: list", _SHARES): ("--list", "(?m)^{group}-s$"),
        ("share-groups: describe", _SHARES): (
            "--describe --group {group}-s",
            r"{group}-s +{topic} +0 +\d+",
        ),
        ("share-groups: reset", _SHARES): (
            "--reset-offsets --group {group}-s --topic {topic} --to-earliest --execute",
            r"{group}-s +{topic} +3 +0\b",
        ),
        ("share-groups: delete offsets", _SHARES): (
            "--delete-offsets --group {group}-s --topic {topic}",
            "{topic} +Successful",
        ),
        ("share-groups: delete", _SHARES): (
            "--delete --group {group}-s",
            r"\('{group}-s'\) was successful",
        ),
    }
)

_ADMIN_STEPS = (
    *_steps(
        {
            ("transactions: list", _TRANSACTIONS): (
                "list",
                r"{topic}-id\s+\d+\s+\d+\s+CompleteCommit",
            ),
            ("transactions: describe", _TRANSACTIONS): (
                "describe --transactional-id {topic}-id",
                r"{topic}-id\s+\d+\s+\d+\s+CompleteCommit\s+60000",
            ),
            ("transactions: producers", _TRANSACTIONS): (
                "describe-producers --topic {topic} --partition 0",
                r"CurrentTransactionStartOffset\s*\n.*None",
            ),
            ("transactions: hanging ones", _TRANSACTIONS): (
                "find-hanging --topic {topic}",
                r"Duration\(min\)\s*$",
            ),
            ("transactions: terminate", _TRANSACTIONS): (
                "forceTerminateTransaction --transactionalId {topic}-id",
            ),
            ("configs: a topic", _CONFIGS): (
                "--alter --topic {topic} --add-config segment.ms=3600000,min.insync.replicas=1",
                "Completed updating config",
            ),
            ("configs: describe it", _CONFIGS): (
                "--describe --topic {topic}",
                "segment.ms=3600000.*DYNAMIC_TOPIC_CONFIG",
            ),
            ("configs: a user's password", _CONFIGS): (
                "--alter --user {topic} --add-config SCRAM-SHA-256=[iterations=4096,password=x]",
                "Completed updating config",
            ),
            ("configs: a quota", _CONFIGS): (
                "--alter --user {topic} --add-config producer_byte_rate=1048576",
                "Completed updating config",
            ),
            ("configs: describe a user", _CONFIGS): (
                "--describe --user {topic}",
                "producer_byte_rate=1048576.*SCRAM-SHA-256=iterations=4096",
            ),
            ("configs: the broker", _CONFIGS): (
                "--alter --entity-type brokers --entity-default --add-config log.cleaner.threads=1",
                "Completed updating default config",
            ),
            ("configs: delete one", _CONFIGS): (
                "--alter --topic {topic} --delete-config segment.ms",
                "Completed updating config",
            ),
            ("acls: add", "AclCommand"): (
                "--add --allow-principal User:{topic} --operation read --topic {topic} --group {group}",
                r"principal=User:{topic}, host=\*, operation=READ, permissionType=ALLOW",
            ),
            ("acls: list", "AclCommand"): ("--list --topic {topic}", "User:{topic}.*READ"),
            ("acls: remove", "AclCommand"): ("--remove --force --topic {topic}",),
            ("delete-records", "DeleteRecordsCommand"): (
                "--offset-json-file {folder}/delete.json",
                r"partition: {topic}-0\s+low_watermark: 3",
            ),
            ("leader-election", "LeaderElectionCommand"): (
                "--election-type preferred --topic {topic} --partition 0",
                "Valid replica already elected for partitions {topic}-0",
            ),
            ("reassign-partitions: generate", _REASSIGN): (
                "--generate --topics-to-move-json-file {folder}/move.json --broker-list {node}",
                "Proposed partition reassignment configuration",
            ),
            ("reassign-partitions: execute", _REASSIGN): (
                "--execute --reassignment-json-file {folder}/reassign.json",
                "Successfully started partition reassignment for {topic}-0",
            ),
            ("reassign-partitions: verify", _REASSIGN): (
                "--verify --reassignment-json-file {folder}/reassign.json",
                "Reassignment of partition {topic}-0 is completed",
            ),
            ("reassign-partitions: list", _REASSIGN): (
                "--list",
                "No partition reassignments found",
            ),
            ("log-dirs", "LogDirsCommand"): (
                "--describe --topic-list {topic}",
                r'"partition":"{topic}-0","size":\d+,"offsetLag":0,"isFuture":false',
            ),
            ("broker-api-versions", "BrokerApiVersionsCommand"): (
                "",
                r"Produce\(0\): 0 to 13 \[usable: 13\].*Fetch\(1\): 4 to 18",
            ),
            ("cluster: id", "ClusterTool"): ("cluster-id", r"Cluster ID: \S{{22}}"),
            ("cluster: endpoints", "ClusterTool"): (
                "list-endpoints",
                r"127\.0\.0\.1 +{port} .*broker",
            ),
            ("features: describe", "FeatureCommand"): (
                "describe",
                "Feature: transaction.version.*FinalizedVersionLevel: 2",
            ),
            ("features: upgrade", "FeatureCommand"): (
                "upgrade --release-version 4.3",
                "group.version was upgraded to 1",
            ),
            ("metadata-quorum: status", _QUORUM): (
                "describe --status",
                r"LeaderId: +{node}.*HighWatermark: +\d+",
            ),
            ("metadata-quorum: replication", _QUORUM): (
                "describe --replication",
                r"(?m)^{node}\s.*Leader",
            ),
            ("client-metrics: alter", _METRICS): (
                "--alter --name {topic} --metrics org.apache.kafka.producer. --interval 30000",
                "Altered client metrics config",
            ),
            ("client-metrics: describe", _METRICS): (
                "--describe --name {topic}",
                r"interval.ms=30000.*metrics=org.apache.kafka.producer\.",
            ),
            ("client-metrics: list", _METRICS): ("--list", "(?m)^{topic}$"),
            ("client-metrics: delete", _METRICS): (
                "--delete --name {topic}",
                "Deleted client metrics config",
            ),
        }
    ),
    Step(
        "delegation-tokens: refused without a login",
        _TOKENS,
        "--create --max-life-time-period -1 --renewer-principal User:a "
        "--command-config {folder}/client.properties",
        "UnsupportedByAuthenticationException",
        code=1,
    ),
)

#: Commands that read the files of a broker.
_FILE_STEPS = _steps(
    {
        ("dump-log: records", _DUMP): (
            "--files {records} --print-data-log",
            "isTransactional: true.*payload: ",
        ),
        ("dump-log: the index", _DUMP): (
            "--files {index} --index-sanity-check",
            "passed sanity check",
        ),
        ("dump-log: consumer offsets", _DUMP): (
            "--files {offsets} --offsets-decoder",
            r'"group":"{group}',
        ),
        ("dump-log: transactions", _DUMP): (
            "--files {transactions} --transaction-log-decoder",
            "{topic}-id",
        ),
        ("dump-log: metadata", _DUMP): (
            "--files {metadata} --cluster-metadata-decoder",
            r'"type":"TOPIC_RECORD".*"name":"{topic}"',
        ),
        ("dump-log: share group state", _DUMP): (
            "--files {shares} --share-group-state-decoder",
            "{group}-s",
        ),
    }
)
_LOG_DIRS = Step("log-dirs", "LogDirsCommand", "--describe")
_LAST_STEP = Step("topics: delete", _TOPICS, "--delete --topic {topic}")


def _command(step: Step, names: Mapping[str, str], classes: Path) -> list[str | Path]:
    words = [word.format(**names) for word in shlex.split(step.arguments)]
    address = names["address"]
    if address not in words and step.tool != _DUMP:
        # ClusterTool needs its command before the address; the other tools need the address first.
        at = 1 if step.tool == "ClusterTool" else 0
        words[at:at] = ["--bootstrap-server", address]
    name = step.tool if step.tool.startswith("kafka.") else f"{_TOOLS}{step.tool}"
    return [java(), *_JVM, "-cp", classes, name, *words]


def _tried(step: Step, names: Mapping[str, str], classes: Path, folder: Path) -> Check:
    deadline_s = _ENDLESS_S if step.code == _KILLED else _COMMAND_DEADLINE_S
    command = _command(step, names, classes)
    done = executed(command, folder, stdin=step.stdin, deadline_s=deadline_s)
    printed = done.stdout + done.stderr
    expected = step.expected.format(**names)
    well = done.returncode == step.code and re.search(expected, printed, re.DOTALL) is not None
    return Check(step.name, "" if well else f"ended with {done.returncode}: {printed[-1500:]}")


def _names(place: Place, classes: Path) -> dict[str, str]:
    """The texts that replace names in braces in a `Step`. A tool of Kafka returns the broker's
    id and log directory."""
    names = {
        "address": place.address,
        "port": place.address.rpartition(":")[2],
        "topic": place.name,
        "group": f"{place.name}-group",
        "folder": str(place.folder),
    }
    asked = executed(_command(_LOG_DIRS, names, classes), place.folder)
    found = re.search(r"^\{.*\}$", asked.stdout, re.MULTILINE)
    broker = json.loads(found[0])["brokers"][0] if found is not None else {}
    names["node"] = str(broker.get("broker", ""))
    names["logs"] = str((broker.get("logDirs") or [{"logDir": ""}])[0]["logDir"])
    return names


def _file_names(logs: Path, topic: str) -> dict[str, str]:
    """The files of partitions in a log directory, separated by commas."""
    patterns = {
        "records": f"{topic}-0/*.log",
        # An index has no entries until its segment has 4 KB.
        "index": f"{topic}-*/*.index",
        "offsets": "__consumer_offsets-*/*.log",
        "transactions": "__transaction_state-*/*.log",
        "shares": "__share_group_state-*/*.log",
        "metadata": "__cluster_metadata-0/*.log",
    }
    return {
        name: ",".join(str(file) for file in sorted(logs.glob(pattern)) if file.stat().st_size)
        for name, pattern in patterns.items()
    }


def _write_files(names: Mapping[str, str], folder: Path) -> None:
    """Write the files that the commands read."""
    topic, node = names["topic"], int(names["node"] or 0)
    partition = {"topic": topic, "partition": 0}
    files = {
        "move.json": {"version": 1, "topics": [{"topic": topic}]},
        "delete.json": {"version": 1, "partitions": [{**partition, "offset": 3}]},
        "reassign.json": {"version": 1, "partitions": [{**partition, "replicas": [node]}]},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "offsets.csv").write_text(f"{topic},1,5\n")
    (folder / "client.properties").write_text("security.protocol=PLAINTEXT\n")


def run(classes: Path, place: Place) -> Iterator[Check]:
    """Run the commands for records, groups and administration, and then those that read the
    broker's files."""
    names = _names(place, classes)
    _write_files(names, place.folder)
    for step in (*_RECORD_STEPS, *_GROUP_STEPS, *_ADMIN_STEPS):
        yield _tried(step, names, classes, place.folder)
    names.update(_file_names(Path(names["logs"]), place.name))
    for step in (*_FILE_STEPS, _LAST_STEP):
        yield _tried(step, names, classes, place.folder)
