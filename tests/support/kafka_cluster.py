"""Apache Kafka from its published jars, for comparison: one node or several, in KRaft mode.

Java 17 or newer is required; Maven fetches the jars once, into `~/.cache/odradek`.
`ODRADEK_KAFKA_JARS` names another folder; if it is set, that folder must have the jars. The
settings are those of the server.properties that Kafka ships, except for ports and directories.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

VERSION = "4.3.0"
JARS_VARIABLE = "ODRADEK_KAFKA_JARS"
START_DEADLINE_S = 300.0
STOP_DEADLINE_S = 30.0
_FETCH_DEADLINE_S = 600.0

#: Further jars for the programs in tests/interop/java.
_MORE_ARTIFACTS = (
    ("org.apache.kafka", "kafka-streams", VERSION),
    ("org.apache.kafka", "connect-file", VERSION),
)
#: config/server.properties of Kafka's distribution, without paths and addresses.
SHIPPED_SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "group.initial.rebalance.delay.ms": "0",
}
#: The JVM options for memory of the distribution's scripts (kafka-server-start.sh,
#: kafka-run-class.sh).
SHIPPED_HEAP = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
#: A heap that is large enough for tests.
_SMALL_HEAP = ("-Xms256m", "-Xmx768m", "-XX:+UseG1GC")
#: Options of programs that run only for seconds: the C2 compiler would cost more time than it
#: saves.
SHORT_LIVED = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: The newest published version of Spark's `kafka` format; it works with the Spark of the tests.
SPARK_KAFKA_VERSION = "4.2.0"
_SPARK_FORMAT = ("spark-*-kafka-*.jar", "kafka-clients-*.jar", "commons-pool2-*.jar")
#: The settings of Log4j with which a node writes its log to standard output.
LOG_SETTINGS = """\
<Configuration status="OFF"><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="%d %p %m (%c)%n%ex"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


class KafkaUnavailable(Exception):
    """Java, Maven or the jars are missing; the message says which."""


def java() -> str:
    """The path of the Java program to use. Raises KafkaUnavailable."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise KafkaUnavailable("Apache Kafka wants Java 17 or newer, and there is no `java` here")
    return found


def class_path(version: str = VERSION) -> str:
    """The class path of a release of Kafka; Maven fetches missing jars. Raises KafkaUnavailable."""
    named = os.environ.get(JARS_VARIABLE) if version == VERSION else None
    folder = Path(named) if named else Path.home() / ".cache" / "odradek" / f"kafka-{version}"
    if not any(folder.glob(f"kafka_2.13-{version}.jar")):
        if named:
            raise KafkaUnavailable(f"{JARS_VARIABLE}={folder} holds no kafka_2.13-{version}.jar")
        fetch_jars(folder, _artifacts(version))
        # The jars of Kafka 3 bring another binding of SLF4J, with which a node would write no log.
        for jar in folder.glob("slf4j-reload4j-*.jar"):
            jar.unlink()
    return str(folder / "*")


def _artifacts(version: str) -> list[tuple[str, str, str]]:
    """The jars of a broker, and for the default release also those of the tools."""
    tools = [("org.apache.kafka", "kafka-tools", version)] if version == VERSION else []
    return [
        ("org.apache.kafka", "kafka_2.13", version),
        *tools,
        # A node writes its log with this binding; a test reads the log after an unexpected
        # response.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ]


def compiled(source: Path, folder: Path) -> Path:
    """Compile a Java file into a folder. Returns the folder; raises KafkaUnavailable."""
    compiler = shutil.which("javac", path=str(Path(java()).parent)) or shutil.which("javac")
    if compiler is None:
        raise KafkaUnavailable(f"{source.name} has to be compiled, and there is no `javac` here")
    subprocess.run(
        [
            compiler,
            "-nowarn",
            "-Xlint:-removal",
            "-cp",
            class_path(),
            "-d",
            str(folder),
            str(source),
        ],
        check=True,
        timeout=START_DEADLINE_S,
    )
    return folder


def streams_class_path() -> str:
    """The class path with Kafka Streams and the file connectors; Maven fetches missing jars."""
    folder = Path.home() / ".cache" / "odradek" / f"kafka-streams-{VERSION}"
    if not any(folder.glob(f"kafka-streams-{VERSION}.jar")):
        fetch_jars(folder, _MORE_ARTIFACTS)
    return os.pathsep.join((class_path(), str(folder / "*")))


def mirror_class_path() -> str:
    """The class path with MirrorMaker 2; Maven fetches missing jars. Raises KafkaUnavailable."""
    folder = Path.home() / ".cache" / "odradek" / f"kafka-mirror-{VERSION}"
    if not any(folder.glob(f"connect-mirror-{VERSION}.jar")):
        fetch_jars(folder, [("org.apache.kafka", "connect-mirror", VERSION)])
    return os.pathsep.join((class_path(), str(folder / "*")))


def spark_jars() -> Path:
    """The folder with the jars of Spark's `kafka` format; Maven fetches missing jars. Raises
    KafkaUnavailable."""
    folder = Path.home() / ".cache" / "odradek" / f"spark-kafka-{SPARK_KAFKA_VERSION}"
    if not any(folder.glob("spark-sql-kafka-*.jar")):
        artifact = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_KAFKA_VERSION)
        fetch_jars(folder, [artifact])
    return folder


def spark_format_jars(folder: Path) -> list[Path]:
    """The jars of a folder that Spark's `kafka` format needs in addition to the jars of Spark."""
    return [jar for name in _SPARK_FORMAT for jar in sorted(folder.glob(name))]


def fetch_jars(folder: Path, artifacts: Sequence[tuple[str, str, str]]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(
            f"Maven fetches Kafka's jars, and there is no `mvn` (see {__name__})"
        )
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts
    )
    pom = folder / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>odradek</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    done = subprocess.run(
        [
            *(maven, "-q", "-B", "-f", str(pom)),
            *("dependency:copy-dependencies", f"-DoutputDirectory={folder}"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=_FETCH_DEADLINE_S,
    )
    if done.returncode != 0:
        raise KafkaUnavailable(f"Maven could not fetch Kafka's jars:\n{done.stdout[-2000:]}")


def free_ports(count: int) -> list[int]:
    """Find `count` ports that are free at present."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class KafkaNode:
    """A node that is both broker and controller; `kill`, `suspend` and `start` may be repeated."""

    def __init__(
        self,
        node_id: int,
        folder: Path,
        properties: Mapping[str, str],
        port: int,
        heap: Sequence[str] = _SMALL_HEAP,
        plugins: Path | None = None,
        version: str = VERSION,
    ) -> None:
        self._version = version
        self.node_id, self.port, self._folder, self._heap = node_id, port, folder, heap
        self._plugins = plugins
        self._properties = folder / "server.properties"
        self._log = folder / "kafka.log"
        folder.mkdir(parents=True)
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        (folder / "log4j2.xml").write_text(LOG_SETTINGS)
        self._log_at_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The pid of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def add_listener(self, name: str, port: int, protocol: str = "") -> None:
        """Add a listener on 127.0.0.1, before the node is started.

        `protocol`: the listener's security protocol, by default the one named `name`.
        """
        properties = self._properties.read_text("utf-8")
        for key in ("listeners", "advertised.listeners"):
            before = re.search(rf"^{re.escape(key)}=.*$", properties, re.MULTILINE)
            assert before is not None
            properties = properties.replace(
                f"{before[0]}\n", f"{before[0]},{name}://127.0.0.1:{port}\n"
            )
        key = "listener.security.protocol.map="
        properties = properties.replace(key, f"{key}{name}:{protocol or name},")
        self._properties.write_text(properties, "utf-8")

    @property
    def data_dir(self) -> Path:
        """The only log directory."""
        return self._folder / "data"

    @property
    def log(self) -> str:
        """The text of the node's log file."""
        return self._log.read_text(errors="replace")

    def _java(self, main: str, *arguments: str) -> list[str]:
        classes = class_path(self._version)
        if self._plugins is not None:
            classes = os.pathsep.join((str(self._plugins), classes))
        return [
            *(java(), *self._heap),
            *("-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={self._folder}/log4j2.xml"),
            *("-cp", classes, main, *arguments),
        ]

    def format(self, cluster_id: str) -> None:
        """Format the node's directory, as `kafka-storage format` does."""
        arguments = ("format", "-t", cluster_id, "-c", str(self._properties))
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments),
            check=False,
            capture_output=True,
            text=True,
            timeout=START_DEADLINE_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kafka-storage format failed:\n{done.stdout}\n{done.stderr}")

    def start(self) -> None:
        """Start the process and return without waiting; `wait_until_up` waits."""
        self._log_at_start = len(self.log) if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_up(self) -> None:
        """Wait until the log says that the node has started. Raises TimeoutError, or RuntimeError
        if the node has ended."""
        end = time.monotonic() + START_DEADLINE_S
        while "Kafka Server started" not in self.log[self._log_at_start :]:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"Kafka ended at its start:\n{self.log[-4000:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"not up after {START_DEADLINE_S} s:\n{self.log[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)

    def suspend(self) -> None:
        """Send SIGSTOP: the process stays alive, but does not respond."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after a timeout."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()


class KafkaCluster:
    """A cluster of `nodes` brokers below `folder`; all are up when `start` (or `with`) returns.

    `settings` override the shipped settings. With several nodes, topics have three replicas (two in
    a cluster of two nodes) unless a setting says otherwise. `heap`: options of the JVM for memory.
    `plugins`: a folder with compiled classes that settings name. `version`: the release of Kafka.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        heap: Sequence[str] = _SMALL_HEAP,
        plugins: Path | None = None,
        version: str = VERSION,
    ) -> None:
        self._version = version
        ports = free_ports(2 * nodes)
        voters = ",".join(f"{i + 1}@127.0.0.1:{ports[2 * i + 1]}" for i in range(nodes))
        many = {}
        if nodes > 1:
            many = {
                "default.replication.factor": str(min(nodes, 3)),
                "offsets.topic.replication.factor": str(min(nodes, 3)),
                "transaction.state.log.replication.factor": str(min(nodes, 3)),
                "transaction.state.log.min.isr": "2",
                "min.insync.replicas": "1",
            }
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if self.cluster_id.startswith("-"):
            self.cluster_id = "A" + self.cluster_id[1:]
        self.nodes = [
            KafkaNode(
                i + 1,
                folder / f"node-{i + 1}",
                {
                    **SHIPPED_SETTINGS,
                    "node.id": str(i + 1),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://127.0.0.1:{ports[2 * i]},"
                    f"CONTROLLER://127.0.0.1:{ports[2 * i + 1]}",
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[2 * i]}",
                    "log.dirs": str(folder / f"node-{i + 1}" / "data"),
                    **many,
                    **(settings or {}),
                },
                ports[2 * i],
                heap,
                plugins,
                version,
            )
            for i in range(nodes)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Format and start all nodes, and wait for them."""
        class_path(self._version)
        self._on_all(lambda node: node.format(self.cluster_id))
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_up()

    def stop(self) -> None:
        self._on_all(KafkaNode.stop)

    def _on_all(self, action: Callable[[KafkaNode], None]) -> None:
        failures: list[BaseException] = []

        def run(node: KafkaNode) -> None:
            try:
                action(node)
            except BaseException as error:  # noqa: BLE001  raised again below
                failures.append(error)

        threads = [threading.Thread(target=run, args=(node,)) for node in self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
