"""The rows of the matrix."""

from __future__ import annotations

from tests.interop.matrix import bento, commands, toolchains
from tests.interop.matrix.jvm_rows import JVM_ROWS
from tests.interop.matrix.programs import compared, go_tests, java, program, python
from tests.interop.matrix.row import Row

from kafka_cluster import VERSION, streams_class_path

_FRANZ_GO = "1.22.3"

_JAVA_TRANSACTIONS = tuple(("Transactions", "100", how) for how in ("commit", "abort", "both"))
_JAVA_3_PROGRAMS = (
    *_JAVA_TRANSACTIONS,
    ("Groups", "2000", "gzip", "classic"),
    ("Groups", "2000", "zstd", "classic"),
    ("Groups", "2000", "lz4", "consumer"),
)
_JAVA_4_PROGRAMS = (
    *_JAVA_TRANSACTIONS,
    ("Groups", "2000", "none", "classic"),
    ("Groups", "2000", "gzip", "consumer"),
    ("Groups", "2000", "snappy", "classic"),
    ("Groups", "2000", "lz4", "consumer"),
    ("Groups", "2000", "zstd", "classic"),
    ("Groups", "2000", "zstd", "consumer"),
    ("Share", "1000", "3", "implicit"),
    ("Share", "1000", "3", "explicit"),
    ("Shares", "java-shares", "500"),
    ("Quotas",),
    ("Streams", "2000", "classic"),
    ("Streams", "2000", "streams"),
)

_FRANZ_GO_TESTS = (
    "TestTxnEtl$|TestGroup(ETL|Simple)|TestConsume(TopicRetrieval|Regex$)|Test848|TestIssue|"
    "TestPing|TestClient_Produce|TestAddRemove|TestPause|TestPooling|TestDirectPartitionPurge|"
    "TestHookPoll|TestUnknownGroup"
)
_BENTO = tuple(
    f"github.com/warpstreamlabs/bento/public/{part}@v1.10.0"
    for part in ("service", "components/io", "components/kafka", "components/pure")
)
_CLIENT_STORY = (
    "each codec, keys, headers, tombstones; two group members that share partitions; committed "
    "offsets; transactions, committed and aborted; a broker that is killed while an idempotent "
    "producer and a group member run; offsets by time; groups and topics deleted"
)

ROWS = (
    Row(
        "java-3.9",
        "Java clients",
        "3.9.1",
        "transactions in quick succession, committed and aborted; three group members that join and "
        "leave and read each record once, with the classic and the consumer protocol",
        toolchains.kafka("3.9.1"),
        java(*_JAVA_3_PROGRAMS),
    ),
    Row(
        "java-4.3",
        "Java clients",
        VERSION,
        "the same, with every codec; share consumers with each way to acknowledge; a quota; Kafka "
        "Streams with `exactly_once_v2`, stopped and started again halfway, in a classic and a "
        "streams group",
        toolchains.jars(streams_class_path),
        java(*_JAVA_4_PROGRAMS),
    ),
    Row(
        "sarama",
        "sarama",
        "1.61.1",
        "the result of each call of its admin client, an idempotent and a transactional producer, and a "
        "consumer group; a broker that is killed while an idempotent producer runs",
        toolchains.go("sarama", "github.com/IBM/sarama@v1.61.1"),
        compared(),
    ),
    Row(
        "kafka-go",
        "kafka-go",
        "0.4.51",
        "the result of each call of its client, writer and reader",
        toolchains.go("kafka_go", "github.com/segmentio/kafka-go@v0.4.51"),
        compared(),
    ),
    Row(
        "kadm",
        "franz-go with kadm",
        f"{_FRANZ_GO}, 1.20.0",
        "the result of each call of kadm, of transactions, and of groups of both protocols; a broker "
        "that is killed while a producer and a group member run",
        toolchains.go(
            "kadm",
            f"github.com/twmb/franz-go@v{_FRANZ_GO}",
            "github.com/twmb/franz-go/pkg/kadm@v1.20.0",
        ),
        compared(),
        differs="kadm deduces Kafka's version from the APIs, and does not expect version 6 of InitProducerId",
    ),
    Row(
        "franz-go-tests",
        "franz-go's own tests",
        _FRANZ_GO,
        "`TestTxnEtl` (consume, transform and produce in transactions; classic and consumer "
        "protocol, static members) and the other tests that need a broker, except those of share groups",
        toolchains.go_tests(
            "github.com/twmb/franz-go/pkg/kgo", f"github.com/twmb/franz-go@v{_FRANZ_GO}"
        ),
        go_tests(
            _FRANZ_GO_TESTS,
            {"KGO_TEST_RF": "1", "KGO_TEST_UNSAFE": "1", "KGO_TEST_RECORDS": "5000"},
            seeds="KGO_SEEDS",
        ),
    ),
    Row(
        "franz-go-share-tests",
        "franz-go's own tests",
        _FRANZ_GO,
        "the tests of share groups, which also cut connections",
        toolchains.go_tests(
            "github.com/twmb/franz-go/pkg/kgo", f"github.com/twmb/franz-go@v{_FRANZ_GO}"
        ),
        go_tests(
            "Share",
            {"KGO_TEST_RF": "1", "KGO_TEST_CHAOS": "1", "KGO_TEST_RECORDS": "10000"},
            seeds="KGO_SEEDS",
        ),
    ),
    Row(
        "kafkajs",
        "kafkajs",
        "2.2.4",
        "topics, codecs, two members of a group, commits, transactions with offsets, a broker that "
        "is killed while an idempotent producer and a group member run, groups and records deleted",
        toolchains.node("kafkajs", "kafkajs@2.2.4"),
        program("node", "{tool}"),
    ),
    Row(
        "confluent-js",
        "@confluentinc/kafka-javascript (librdkafka)",
        "1.10.1",
        "the same through its API of kafkajs, with every codec",
        toolchains.node("confluent", "@confluentinc/kafka-javascript@1.10.1"),
        program("node", "{tool}"),
    ),
    Row(
        "rdkafka",
        "rdkafka (Rust, librdkafka)",
        "0.39.0",
        f"{_CLIENT_STORY}; not zstd, which its build does not have",
        toolchains.rust(
            "rdkafka_program",
            'rdkafka = { version = "=0.39.0", features = ["cmake-build"] }',
            'tokio = { version = "1", features = ["rt-multi-thread"] }',
        ),
        program(),
    ),
    Row(
        "rskafka",
        "rskafka (Rust)",
        "0.6.0",
        "each codec, keys, headers, tombstones; records and topics deleted; a broker that is killed "
        "while a producer without idempotence runs",
        toolchains.rust(
            "rskafka_program",
            'rskafka = "=0.6.0"',
            'chrono = "0.4"',
            'tokio = { version = "1", features = ["macros", "rt-multi-thread", "time"] }',
        ),
        program(),
    ),
    Row(
        "kcat",
        "kcat",
        "1.7.1",
        "each codec, a tombstone, a group that continues at its committed offsets, offsets by time, metadata",
        toolchains.on_path("kcat"),
        commands.kcat,
    ),
    Row(
        "kaf",
        "kaf",
        "0.2.14",
        "topics and their settings, records, groups and their offsets: 12 commands; two of them use versions of "
        "APIs that Kafka 4 does not have, and three depend on these two",
        toolchains.go_tool("kaf", "github.com/birdayz/kaf/cmd/kaf", "v0.2.14"),
        commands.kaf,
    ),
    Row(
        "kafkactl",
        "kafkactl",
        "5.20.0",
        "topics, records, groups and their offsets, ACLs, deletions: 16 commands",
        toolchains.go_tool("kafkactl", "github.com/deviceinsight/kafkactl/v5", "v5.20.0"),
        commands.kafkactl,
    ),
    Row(
        "kafka_exporter",
        "kafka_exporter",
        "1.9.0",
        "the offsets of a topic, the committed offsets and the lag of a group",
        toolchains.go_tool("kafka_exporter", "github.com/danielqsj/kafka_exporter", "v1.9.0"),
        commands.exporter(
            commands.kafka_exporter_command,
            {
                "brokers": r"^kafka_brokers 1$",
                "the end": r'^kafka_topic_partition_current_offset\{.*topic="TOPIC"\} 10$',
                "the leader": r'^kafka_topic_partition_leader\{.*topic="TOPIC"\} 1$',
                "commits": r'^kafka_consumergroup_current_offset\{consumergroup="GROUP".*\} 4$',
                "lag": r'^kafka_consumergroup_lag\{consumergroup="GROUP".*\} 6$',
            },
        ),
    ),
    Row(
        "kminion",
        "kminion",
        "2.3.5",
        "the same, with committed offsets read from `__consumer_offsets`, and its end-to-end test",
        toolchains.go_tool("kminion", "github.com/cloudhut/kminion/v2", "v2.3.5"),
        commands.exporter(
            commands.kminion_command,
            {
                "cluster": r"^kminion_kafka_cluster_info\{.*broker_count=\"1\"",
                "the end": r'^kminion_kafka_topic_partition_high_water_mark\{.*"TOPIC"\} 10$',
                "lag": r'^kminion_kafka_consumer_group_topic_lag\{.*"GROUP".*\} 6$',
                "commits": r'^kminion_kafka_consumer_group_offset_commits_total\{.*"GROUP"\} 1$',
                "records came back": r"^kminion_end_to_end_messages_received_total(\{.*\})? [1-9]",
                "its group commits": r"^kminion_end_to_end_offset_commit_latency_seconds_count.* [1-9]",
            },
        ),
    ),
    Row(
        "quix",
        "Quix Streams",
        "3.28.1",
        "counts with a state and a changelog topic, exactly once, in two runs of the application",
        toolchains.python("quixstreams", "quixstreams==3.28.1"),
        python("quix"),
    ),
    Row(
        "confluent-kafka",
        "confluent-kafka (librdkafka)",
        "2.16.1",
        _CLIENT_STORY,
        toolchains.python("confluent-kafka", "confluent-kafka==2.16.1"),
        python("confluent_program", "classic"),
    ),
    Row(
        "confluent-kafka-848",
        "confluent-kafka (librdkafka)",
        "2.16.1",
        "the same with the consumer protocol",
        toolchains.python("confluent-kafka", "confluent-kafka==2.16.1"),
        python("confluent_program", "consumer"),
    ),
    Row(
        "aiokafka",
        "aiokafka",
        "0.14.0",
        f"{_CLIENT_STORY} (it cannot delete groups)",
        toolchains.python("aiokafka", "aiokafka[lz4,snappy,zstd]==0.14.0"),
        python("aiokafka_program"),
    ),
    Row(
        "kafka-python",
        "kafka-python",
        "3.0.12",
        _CLIENT_STORY,
        toolchains.python("kafka-python", "kafka-python[crc32c,lz4,snappy,zstd]==3.0.12"),
        python("kafka_python_program"),
    ),
    Row(
        "bento",
        "Bento, a fork of Benthos",
        "1.10.0",
        "a pipeline, configured in YAML, from one topic to another, with each of its Kafka components "
        "(sarama, franz-go): each record, before and after a broker is killed; the committed offsets",
        toolchains.go("bento", *_BENTO, common=False),
        bento.pipelines,
    ),
    Row(
        "faststream",
        "FastStream",
        "0.7.8",
        "subscribers and publishers with headers, batches; two instances that share partitions; a "
        "broker that is killed while messages are published",
        toolchains.python("faststream", "faststream[kafka,confluent]==0.7.8"),
        python("faststream_app"),
    ),
    Row(
        "faust",
        "faust-streaming",
        "0.15.3",
        "an agent counts in a table with a changelog topic, in two runs of the application",
        toolchains.python("faust", "faust-streaming==0.15.3"),
        python("faust_app"),
    ),
    *JVM_ROWS,
)
