"""Environment variables of the images of Apache and Confluent, as settings of the broker.

KAFKA_NUM_PARTITIONS is num.partitions; two underscores stand for one underscore, three for a
hyphen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_PREFIX = "KAFKA_"
_UNDERSCORES = re.compile("_+")
_STANDS_FOR = {1: ".", 2: "_", 3: "-"}

#: Prefixes of settings whose variables have no effect, because the container sets them itself, with
#: the reasons.
_OWN = {
    "listeners": "the broker listens on a free port of this machine",
    "advertised.": "the broker tells clients the address that it listens on",
    "listener.security.protocol.map": "give listener_name= and security_protocol= instead",
    "inter.broker.listener.name": "there are no other brokers",
    "security.inter.broker.protocol": "there are no other brokers",
    "log.dir": "the data is in a temporary directory",
    "metadata.log.dir": "the data is in a temporary directory",
    "process.roles": "the broker is its own controller",
    "controller.": "the broker is its own controller",
    "zookeeper.": "the broker needs no ZooKeeper",
}
#: Prefixes of variables for Java or the image's scripts.
_FOR_JAVA = (
    "KAFKA_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_LOG4J",
    "KAFKA_TOOLS_LOG4J",
    "KAFKA_JMX",
)


def settings_of(environment: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """The broker's settings, and a sentence for each variable without effect."""
    settings: dict[str, str] = {}
    ignored = []
    for name, value in environment.items():
        if name == "CLUSTER_ID":
            settings["cluster.id"] = str(value)
            continue
        reason = _reason_to_ignore(name)
        if reason:
            ignored.append(f"{name} has no effect: {reason}")
        else:
            settings[_key(name)] = str(value)
    return settings, ignored


def _key(name: str) -> str:
    return _UNDERSCORES.sub(
        lambda found: _STANDS_FOR.get(len(found[0]), found[0]),
        name.removeprefix(_PREFIX).lower(),
    )


def _reason_to_ignore(name: str) -> str | None:
    if not name.startswith(_PREFIX):
        return "only variables that begin with KAFKA_, and CLUSTER_ID, are settings of the broker"
    if name.startswith(_FOR_JAVA):
        return "the broker runs without Java"
    key = _key(name)
    return next((reason for beginning, reason in _OWN.items() if key.startswith(beginning)), None)


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a file with a NAME=VALUE in each line. Raises ValueError for another
    line."""
    found = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{path}:{number}: {line!r} must be NAME=VALUE")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name.strip()] = value
    return found
