"""A distributed worker of Kafka Connect, which copies a file into a topic, and the topic into
another file."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import kafka_cluster
from waiting import wait_until

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
DEADLINE_S = 120.0
_REQUEST_S = 30.0


class Worker:
    """A worker process. It keeps its state in the cluster's topics connect-configs, connect-offsets
    and connect-status."""

    def __init__(self, address: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (port,) = kafka_cluster.free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._log = folder / "connect.log"
        properties = {
            "bootstrap.servers": address,
            "group.id": "connect-cluster",
            "key.converter": _STRINGS,
            "value.converter": _STRINGS,
            "listeners": self._url,
            "plugin.discovery": "service_load",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.flush.interval.ms": "1000",
        }
        for kind, name in (("config", "configs"), ("offset", "offsets"), ("status", "status")):
            properties[f"{kind}.storage.topic"] = f"connect-{name}"
            properties[f"{kind}.storage.replication.factor"] = "-1"
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [
            kafka_cluster.java(),
            *kafka_cluster.SHORT_LIVED,
            "-cp",
            kafka_cluster.streams_class_path(),
        ]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, _MAIN, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until_up(self) -> None:
        """Wait until the worker answers with its connectors."""
        wait_until(lambda: self.connectors() is not None, "Connect is up", DEADLINE_S)

    def connectors(self) -> list[str] | None:
        """The names of the connectors that the worker knows; None if it does not answer yet."""
        assert self._process.poll() is None, self.log[-4000:]
        try:
            with urllib.request.urlopen(f"{self._url}/connectors", timeout=_REQUEST_S) as answer:
                found: list[str] = json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None
        return found

    def add(self, name: str, config: Mapping[str, str]) -> None:
        request = urllib.request.Request(
            f"{self._url}/connectors",
            json.dumps({"name": name, "config": dict(config)}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_REQUEST_S):
            pass

    def close(self) -> None:
        """End the worker cleanly: it commits the positions of its tasks."""
        self._process.terminate()
        self._process.wait(DEADLINE_S)


class CopiedFile:
    """A file that Connect copies into another file, through the topic `connect-lines`."""

    def __init__(self, folder: Path) -> None:
        self.given, self.copied = folder / "given", folder / "copied"
        self.given.write_text("")
        self._lines = 0

    def add_connectors(self, worker: Worker) -> None:
        """Create the two connectors."""
        prefix = "org.apache.kafka.connect.file.FileStream"
        source = {"connector.class": f"{prefix}SourceConnector", "file": str(self.given)}
        sink = {"connector.class": f"{prefix}SinkConnector", "file": str(self.copied)}
        worker.add("file-source", source | {"topic": "connect-lines"})
        worker.add("file-sink", sink | {"topics": "connect-lines"})

    def write(self, count: int) -> None:
        """Append `count` more lines to the file."""
        with self.given.open("a") as file:
            for number in range(self._lines, self._lines + count):
                file.write(f"line {number}\n")
        self._lines += count

    def check(self, worker: Worker) -> None:
        """Wait until all lines are copied; each must be in the copy once and in order."""
        wait_until(
            lambda: (
                self.copied.is_file()
                and len(self.copied.read_bytes()) >= len(self.given.read_bytes())
            ),
            "Connect has copied the file",
            DEADLINE_S,
        )
        assert self.copied.read_text() == self.given.read_text(), worker.log[-4000:]
