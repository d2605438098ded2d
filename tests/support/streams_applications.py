"""An application of Kafka Streams: its instances, in separate processes, do a word count and two
joins with exactly-once processing. The expected results are known."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import kafka_cluster
from foreign_programs import run
from foreign_topics import configure_group, create_topic, read_committed, send_records
from waiting import wait_until

PROGRAM = Path(__file__).parents[1] / "interop" / "java" / "StreamsInstance.java"
DEADLINE_S = 180
KEYS, PARTITIONS = 9, 3
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"


class Instance:
    """A process with one instance. The instance ends at the latest when its standard input is
    closed."""

    def __init__(
        self, address: str, application: str, folder: Path, settings: Mapping[str, str]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log"
        self._start = len(self.log)
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(
                        kafka_cluster.java(),
                        *kafka_cluster.SHORT_LIVED,
                        "-cp",
                        kafka_cluster.streams_class_path(),
                    ),
                    *(str(PROGRAM), address, application, str(folder / "state")),
                    *(f"{key}={value}" for key, value in settings.items()),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def is_running(self) -> bool:
        """True if the instance's last state is RUNNING; fails the test if the instance has
        ended."""
        assert self.process.poll() is None and "a thread ended" not in self.log, self.log[-4000:]
        states = self.log[self._start :].split()
        return bool(states) and states[-1] == "RUNNING"

    def kill(self) -> None:
        """Send SIGKILL if the instance still runs."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        """Stop the instance in the normal way."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_S) == 0, self.log[-4000:]


class Application:
    """The topics of an application, the input that was written, and the output.

    `settings`: the settings of its instances. `address` may be changed between two instances.
    """

    def __init__(
        self,
        address: str,
        name: str,
        folder: Path,
        *,
        standbys: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.address, self.name, self._folder = address, name, folder
        self._settings = {"group.protocol": "streams", **(settings or {})}
        self._sent = 0
        for topic in ("lines", "counts", "customers", "cities", "orders", "joined", "located"):
            create_topic(self.address, f"{name}-{topic}", PARTITIONS)
        if self._settings["group.protocol"] == "streams":
            of_group = {
                "streams.num.standby.replicas": str(standbys),
                "streams.initial.rebalance.delay.ms": "0",
            }
            configure_group(self.address, name, of_group)
        self._send("customers", {key: f"customer{key}" for key in range(KEYS)})
        self._send("cities", {key: f"city{key}" for key in range(KEYS)})

    def _send(self, topic: str, values: dict[int, str]) -> None:
        now_ms = int(time.time() * 1000)
        rows: list[tuple[Any, ...]] = [
            (number % KEYS % PARTITIONS, b"k%d" % (number % KEYS), value.encode(), now_ms, [])
            for number, value in values.items()
        ]
        send_records(self.address, f"{self.name}-{topic}", rows)

    def send(self, count: int) -> None:
        """Write `count` more lines and orders."""
        numbers = range(self._sent, self._sent + count)
        self._send("lines", {n: f"{WORDS[n % 7]} {WORDS[n % 5]} {WORDS[n % 3]}" for n in numbers})
        self._send("orders", {n: f"order{n}" for n in numbers})
        self._sent += count

    def instance(self, number: int) -> Instance:
        """Start an instance; each number has its own directory."""
        return Instance(self.address, self.name, self.folder(number), self._settings)

    def folder(self, number: int) -> Path:
        """The directory of an instance, with its log and its state store."""
        return self._folder / f"{self.name}-{number}"

    def read(self, topic: str, wanted: int) -> dict[str, list[str]]:
        """Wait for at least `wanted` committed records of a topic. Returns the values by key."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        full = f"{self.name}-{topic}"
        for key, value in read_committed(self.address, full, PARTITIONS, wanted, DEADLINE_S):
            found[key].append(value)
        return dict(found)

    def check(self) -> None:
        """Wait for the results of all input: each result must be there once and in order."""
        counts: defaultdict[str, int] = defaultdict(int)
        joined: defaultdict[str, list[str]] = defaultdict(list)
        for number in range(self._sent):
            for size in (7, 5, 3):
                counts[WORDS[number % size]] += 1
            key = number % KEYS
            joined[f"k{key}"].append(f"order{number} of customer{key}")
        assert self.read("counts", 3 * self._sent) == {
            word: [str(number + 1) for number in range(count)] for word, count in counts.items()
        }
        assert self.read("joined", self._sent) == joined
        assert self.read("located", KEYS) == {
            f"k{key}": [f"customer{key} in city{key}"] for key in range(KEYS)
        }

    def describe(self, *options: str) -> list[list[str]]:
        """The words of each line that kafka-streams-groups prints about the group."""
        printed = run(
            *(kafka_cluster.java(), "-cp", kafka_cluster.streams_class_path(), STREAMS_GROUPS),
            *("--bootstrap-server", self.address, "--describe", "--group", self.name, *options),
            folder=self._folder,
        )
        return [line.split() for line in printed.splitlines() if line.strip()]


def all_run(instances: list[Instance]) -> None:
    wait_until(lambda: all(each.is_running() for each in instances), "all run", DEADLINE_S)
