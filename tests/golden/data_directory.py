"""A data directory of an earlier broker version, and the answers of that broker about it.

    python -m tests.golden.data_directory           writes both with the broker of this checkout

`data_directory.tar.gz` has the directory twice: `killed`, as a SIGKILL left it, and `stopped`,
after another start and a clean stop. `data_directory.json` has the answers. Write both files only
for a release, and keep the old files under other names: the old files prove that later versions can
read what earlier versions wrote.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import EARLIEST, LATEST, ConfigResource

HERE = Path(__file__).parent
ARCHIVE = HERE / "data_directory.tar.gz"
ANSWERS = HERE / "data_directory.json"
VARIANTS = ("killed", "stopped")
#: Settings with which nothing expires, however old it is.
LASTING = {
    "log.retention.ms": -1,
    "offsets.retention.minutes": 2**31 - 1,
    "transaction.two.phase.commit.enable": True,
}
_TIMES_MS = range(1_700_000_000_000, 1_700_000_009_000, 1_500)
_SOURCES = ("TOPIC", "DYNAMIC_BROKER", "DYNAMIC_DEFAULT_BROKER", "GROUP")
#: A setting that is always described as a cluster-wide setting, even if nobody has set it, as in
#: Kafka 4.1.
_ALWAYS_TOLD = "min.insync.replicas"
#: Files that are no part of the data.
_LEFT_OUT = (".lock",)


def unpack(folder: Path) -> dict[str, Path]:
    """Unpack the archive; returns the directory of each variant."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return {name: folder / name for name in VARIANTS}


def expected() -> dict[str, Any]:
    """The answers of the broker that wrote the directory."""
    found: dict[str, Any] = json.loads(ANSWERS.read_text())
    return found


def broker_on(data: Path, **settings: object) -> SubprocessBroker:
    """A broker on this data directory, not yet started."""
    return SubprocessBroker(data_dir=data, settings={**LASTING, **settings})


def ask(bootstrap: str) -> dict[str, Any]:
    """Everything that clients can see of the data, in a form for JSON."""
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        topics = admin.list_topics(internal=True)
        described = admin.describe_topics(topics)
        places = [(name, part.partition) for name in topics for part in described[name].partitions]
        own = [place for place in places if not place[0].startswith("__")]
        return {
            "cluster": admin.describe_cluster().cluster_id,
            "topics": {name: described[name].topic_id.hex() for name in topics},
            "settings": _settings(admin, topics),
            "offsets": {_name(place): _offsets(admin, place) for place in own},
            "records": {
                f"{isolation} {_name(place)}": _records(bootstrap, place, isolation)
                for isolation in ("read_committed", "read_uncommitted")
                for place in own
            },
            "groups": _groups(admin),
            "transactions": _transactions(admin),
        }


def _name(place: tuple[str, int]) -> str:
    return f"{place[0]}-{place[1]}"


def _settings(admin: sync.Admin, topics: Iterable[str]) -> dict[str, dict[str, str | None]]:
    resources = [
        *map(ConfigResource.topic, topics),
        ConfigResource.broker(None),
        ConfigResource.group("modern"),
    ]
    found = {}
    for resource, entries in admin.describe_configs(resources).items():
        found[f"{resource.type.name} {resource.name}"] = {
            name: entry.value
            for name, entry in entries.items()
            if entry.source.name in _SOURCES and name != _ALWAYS_TOLD
        }
    return found


def _offsets(admin: sync.Admin, place: tuple[str, int]) -> dict[str, list[int] | None]:
    asked = {"earliest": EARLIEST, "latest": LATEST}
    found = {}
    for name, time in [*asked.items(), *((str(at), at) for at in _TIMES_MS)]:
        (answer,) = admin.list_offsets({place: time}).values()
        found[name] = None if answer is None else [answer.offset, answer.timestamp]
    return found


def _records(bootstrap: str, place: tuple[str, int], isolation: Any) -> list[list[Any]]:
    with sync.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        consumer.assign([place])
        (end,) = consumer.end_offsets(place).values()
        found = []
        while consumer.position(place) < end:
            found += [
                [each.offset, each.timestamp, _text(each.key), _text(each.value)]
                + [[name, _text(held)] for name, held in each.headers]
                for each in consumer.poll(100)
            ]
        return found


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _groups(admin: sync.Admin) -> dict[str, Any]:
    names = sorted(each.group_id for each in admin.list_groups())
    described = admin.describe_groups(names)
    found = {}
    for name in names:
        group = described[name]
        offsets = admin.list_group_offsets(name)
        found[name] = {
            "type": group.type,
            "state": group.state,
            "members": len(group.members),
            "offsets": {
                _name(place): None if at is None else [at.offset, at.metadata]
                for place, at in sorted(offsets.items())
            },
        }
    return found


def _transactions(admin: sync.Admin) -> dict[str, Any]:
    """The open transactions. Ended transactions and idle producers are left out, because they
    expire after weeks."""
    listed = admin.list_transactions(states=["Ongoing"])
    names = sorted(each.transactional_id for each in listed)
    found = {}
    for name, each in admin.describe_transactions(names).items():
        partitions = sorted(map(_name, each.partitions))
        found[name] = [each.state, each.producer_id, each.epoch, each.start_ms, *partitions]
    return found


def main() -> None:
    """Write the archive and the answers."""
    sys.path.insert(0, str(HERE.parent / "support"))
    from written_directory import SETTINGS, prepare_a_transaction, write_everything

    with tempfile.TemporaryDirectory() as folder:
        killed, stopped = (Path(folder) / name for name in VARIANTS)
        with broker_on(stopped, **SETTINGS) as broker:
            write_everything(broker)
            prepare_a_transaction(broker)
            broker.kill()
            shutil.copytree(stopped, killed)
            broker.start()
            answers = ask(broker.bootstrap)
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            for path in (killed, stopped):
                archive.add(
                    path,
                    path.name,
                    filter=lambda each: None if each.name.endswith(_LEFT_OUT) else each,
                )
    # Each kind of answer is on its own line.
    lines = [f"{json.dumps(name)}: {json.dumps(answers[name])}" for name in answers]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
