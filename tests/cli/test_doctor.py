"""`odradek doctor` finds each trouble and its remedy, and none on a sound machine."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

import sasl_brokers
from certificates import Authority
from cli_runner import Commands
from odradek.broker import SubprocessBroker
from odradek_cli.broker import doctor_checks
from odradek_cli.broker.doctor_cluster import look_at_brokers
from odradek_client.admin import Admin
from odradek_client.admin.broker import Problem
from odradek_client.admin.cluster import LogDir
from odradek_client.admin.history import CurrentState, Subject
from odradek_client.admin.results import Results
from odradek_client.admin.topics import PartitionDescription, TopicDescription
from odradek_client.errors import ClusterAuthorizationFailed

CA = Authority()
LOOPBACK = "127.0.0.1:0"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the real machine by one without troubles, because real machines differ in memory,
    limits and disk."""
    monkeypatch.setattr(doctor_checks, "_machine_memory_bytes", lambda: 4 << 30)
    monkeypatch.setattr(doctor_checks, "_container_memory_bytes", lambda: 0)
    monkeypatch.setattr(doctor_checks, "_clock_is_adrift", lambda: False)
    monkeypatch.setattr(doctor_checks, "_file_system", lambda _: "ext4")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 100_000))
    usage = Usage(100 << 30, 50 << 30, 50 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def doctor(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    found = Commands("127.0.0.1:1").run("doctor", *arguments, "--json", code=code)
    return [json.loads(line) for line in found.splitlines()]


def troubles(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(level, check, text) of all findings that are not OK, each of which must have a remedy."""
    kept = [each for each in found if each["level"] != "ok"]
    assert all(each["remedy"] for each in kept)
    return [(each["level"], each["check"], each["text"]) for each in kept]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return path


def look(data_dir: Path, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    return doctor("--data-dir", str(data_dir), "--listen", LOOPBACK, *arguments, code=code)


def only_trouble(data_dir: Path, *arguments: str, code: int = 0) -> tuple[str, str, str]:
    (trouble,) = troubles(look(data_dir, *arguments, code=code))
    return trouble


def test_a_sound_machine_has_no_findings(data_dir: Path) -> None:
    found = look(data_dir, "--strict")
    assert not troubles(found)
    checks = [each["check"] for each in found]
    assert checks == [
        "python",
        "memory",
        "settings",
        "open files",
        "clock",
        f"disk of {data_dir}",
        f"disk of {data_dir}",
        "broker",
        "listener PLAINTEXT",
    ]
    assert not list(data_dir.iterdir()), "the scratch file of the flushes is removed"


def test_the_text_output_ends_with_the_counts(data_dir: Path) -> None:
    arguments = ["doctor", "--data-dir", str(data_dir), "--listen", LOOPBACK]
    text = Commands("").run(*arguments, "--set", "log.durability=page-cache")
    assert "-> log.durability=fsync, unless another copy exists" in text
    assert text.splitlines()[-1] == "0 errors, 1 warning, 8 ok"


def test_warnings_are_errors_with_strict(data_dir: Path) -> None:
    page_cache = ["--set", "log.durability=page-cache"]
    level, check, text = only_trouble(data_dir, *page_cache)
    assert (level, check) == ("warning", "settings")
    assert "a power cut may lose acknowledged records" in text
    look(data_dir, *page_cache, "--strict", code=1)


def test_a_bad_setting_is_an_error_and_names_it(data_dir: Path) -> None:
    level, check, text = only_trouble(data_dir, "--set", "log.durability=never", code=1)
    assert (level, check) == ("error", "settings") and "log.durability" in text


def test_an_unknown_setting_is_a_warning(data_dir: Path) -> None:
    level, check, text = only_trouble(data_dir, "--set", "log.durabilty=fsync")
    assert (level, check) == ("warning", "settings")
    assert "log.durability" in text


@pytest.mark.parametrize(("limit", "level", "code"), [(1024, "warning", 0), (64, "error", 1)])
def test_a_low_limit_of_open_files_is_found(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, limit: int, level: str, code: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert only_trouble(data_dir, code=code)[:2] == (level, "open files")


@pytest.mark.full
def test_the_needed_limit_of_open_files_grows_with_partitions(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10_000, 10_000))
    assert not troubles(look(data_dir))
    for number in range(4_000):
        (data_dir / f"topic-{number}").mkdir()
    level, check, text = only_trouble(data_dir)
    assert (level, check) == ("warning", "open files") and "4,000 partitions" in text


def test_little_memory_is_a_warning(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_container_memory_bytes", lambda: 100 << 20)
    assert only_trouble(data_dir) == ("warning", "memory", "100 MiB available")


def test_a_clock_behind_the_data_is_an_error(data_dir: Path) -> None:
    stored = data_dir / "orders-0"
    stored.mkdir()
    os.utime(stored, (0, time.time() + 3600))
    level, check, text = only_trouble(data_dir, code=1)
    assert (level, check) == ("error", "clock") and "a file of the data was written at" in text


def test_an_unsynchronized_clock_is_a_warning(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "_clock_is_adrift", lambda: True)
    assert only_trouble(data_dir)[:2] == ("warning", "clock")


def test_the_kernel_is_asked_about_the_clock() -> None:
    assert doctor_checks._clock_is_adrift() in (True, False)


@pytest.mark.parametrize(
    ("free", "level", "code"), [(50 << 20, "error", 1), (500 << 20, "warning", 0)]
)
def test_little_room_on_the_disk_is_found(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str, code: int
) -> None:
    usage = Usage(100 << 30, (100 << 30) - free, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert only_trouble(data_dir, code=code)[:2] == (level, f"disk of {data_dir}")


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4", "fuse.sshfs"])
def test_a_file_system_that_may_lose_data_is_a_warning(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(doctor_checks, "_file_system", lambda _: kind)
    level, _, text = only_trouble(data_dir)
    assert level == "warning" and kind in text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kinds are read from /proc")
def test_the_kind_of_a_file_system_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert doctor_checks._file_system(Path("/proc/self")) == "proc"


def test_a_slow_flush_is_a_warning(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_flush_times_ms", lambda _: [25.0] * 3)
    level, _, text = only_trouble(data_dir)
    assert level == "warning" and "25.00 ms" in text


def test_a_disk_that_refuses_to_flush_is_an_error(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> list[float]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(doctor_checks, "_flush_times_ms", fail)
    level, _, text = only_trouble(data_dir, code=1)
    assert level == "error" and "Input/output error" in text


def test_a_data_directory_below_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = troubles(look(tmp_path / "file" / "data", code=1))
    assert ("error", f"disk of {tmp_path}/file/data") in [each[:2] for each in found]


def test_a_missing_data_directory_is_not_created(tmp_path: Path) -> None:
    assert not troubles(look(tmp_path / "some" / "data"))
    assert not (tmp_path / "some").exists()


def test_a_data_directory_open_to_others_is_a_warning(data_dir: Path) -> None:
    data_dir.chmod(0o755)
    level, _, text = only_trouble(data_dir)
    assert level == "warning" and "0755" in text


def test_a_port_in_use_is_an_error(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = doctor(
            "--data-dir", str(data_dir), "--set", f"listeners=PLAINTEXT://127.0.0.1:{port}", code=1
        )
    ((level, check, text),) = troubles(found)
    assert (level, check) == ("error", "listener PLAINTEXT")
    assert f"127.0.0.1:{port} cannot be opened" in text


def test_an_advertised_name_without_an_address_is_an_error(data_dir: Path) -> None:
    advertised = ["--set", "advertised.listeners=PLAINTEXT://no-such-host.invalid:9092"]
    level, check, text = only_trouble(data_dir, *advertised, code=1)
    assert (level, check) == ("error", "listener PLAINTEXT")
    assert "no-such-host.invalid has no address here" in text


def test_an_advertised_localhost_on_all_interfaces_is_a_warning(data_dir: Path) -> None:
    listeners = ["--set", "listeners=PLAINTEXT://0.0.0.0:0", "--set", "insecure.listeners=true"]
    advertised = ["--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
    found = doctor("--data-dir", str(data_dir), *listeners, *advertised)
    ((level, check, text),) = troubles(found)
    assert (level, check) == ("warning", "listener PLAINTEXT")
    assert "connects to its own machine" in text


# --- Certificates ---------------------------------------------------------------------------------


def tls(folder: Path, days: tuple[float, float], host: str = "127.0.0.1") -> list[str]:
    CA.issue(days=days).write(folder / "broker.pem", "secret")
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "advertised.listeners": f"SSL://{host}:9093",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "ssl.key.password": "secret",
    }
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


@pytest.mark.parametrize(
    ("days", "level", "text"),
    [
        ((-20, -2), "error", "it expired on "),
        ((-1, 5), "warning", "in 4 days"),
        ((-1, 1.5), "warning", "in 1 day"),
    ],
)
def test_a_certificate_outside_its_validity_is_found(
    tmp_path: Path, data_dir: Path, days: tuple[float, float], level: str, text: str
) -> None:
    code = int(level == "error")
    found = doctor("--data-dir", str(data_dir), *tls(tmp_path, days), code=code)
    (trouble,) = troubles(found)
    assert trouble[:2] == (level, "certificate of SSL") and text in trouble[2]


def test_a_certificate_for_another_name_is_a_warning(tmp_path: Path, data_dir: Path) -> None:
    found = doctor("--data-dir", str(data_dir), *tls(tmp_path, (-1, 300), "127.0.0.2"))
    ((level, check, text),) = troubles(found)
    assert (level, check) == ("warning", "certificate of SSL")
    assert "clients connect to 127.0.0.2" in text and "DNS:localhost" in text


def test_a_missing_keystore_is_an_error(tmp_path: Path, data_dir: Path) -> None:
    settings = tls(tmp_path, (-1, 300))
    (tmp_path / "broker.pem").unlink()
    found = doctor("--data-dir", str(data_dir), *settings, code=1)
    assert ("error", "certificate of SSL") in [each[:2] for each in troubles(found)]


# --- A running broker -----------------------------------------------------------------------------


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A port without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_running_broker_answers_at_its_advertised_address(data_dir: Path) -> None:
    with SubprocessBroker(data_dir=data_dir) as broker:
        listeners = ["--set", f"listeners=PLAINTEXT://{broker.bootstrap}"]
        found = doctor("--data-dir", str(data_dir), *listeners)
        assert not troubles(found)
        texts = {each["check"]: each["text"] for each in found}
        assert texts["broker"] == f"pid {broker.pid} serves {data_dir} on {broker.bootstrap}"
        assert texts["listener PLAINTEXT"].endswith(", where it answers")
        seen = doctor("-b", broker.bootstrap)
        of_broker = [
            "cluster", "broker 1", "disk of broker 1", "partitions", "groups", "broker 1"
        ]  # fmt: skip
        assert [each["check"] for each in seen] == of_broker
        assert not troubles(seen)
        # The broker is asked for its listeners, and nothing is said of those of a start.
        asked = doctor("--data-dir", str(data_dir))
        assert [each["check"] for each in asked][-7:] == ["broker", *of_broker]
        assert not troubles(asked)


def test_an_advertised_address_of_a_running_broker_that_is_unreachable_is_found(
    data_dir: Path, nowhere: int
) -> None:
    advertised = f"PLAINTEXT://127.0.0.1:{nowhere}"
    with SubprocessBroker(data_dir=data_dir, settings={"advertised.listeners": advertised}) as b:
        port = b.bootstrap.rpartition(":")[2]
        found = doctor(
            *("--data-dir", str(data_dir), "--set", f"advertised.listeners={advertised}"),
            *("--set", f"listeners=PLAINTEXT://127.0.0.1:{port}"),
            code=1,
        )
        ((level, check, text),) = troubles(found)
        assert (level, check) == ("error", "listener PLAINTEXT")
        assert f"127.0.0.1:{nowhere}, where nobody answers" in text
        commands = Commands("")
        commands.run("doctor", "-b", b.bootstrap, code=2)
        assert "advertised.listeners" in commands.stderr


def test_a_broker_that_cannot_be_asked_is_no_good_news(nowhere: int, data_dir: Path) -> None:
    commands = Commands("")
    commands.run("doctor", "-b", f"127.0.0.1:{nowhere}", code=2)
    assert "127.0.0.1" in commands.stderr
    with SubprocessBroker(data_dir=data_dir, settings=sasl_brokers.LISTENER):
        found = doctor("--data-dir", str(data_dir), code=2)
        ((level, check, text),) = troubles(found)
        assert (level, check) == ("warning", "broker") and "could not be asked" in text


class _Admin:
    """An admin client of a cluster with every trouble."""

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(
            cluster_id="c", brokers=[SimpleNamespace(node_id=1, host="h", port=1)]
        )

    async def describe_log_dirs(self) -> Any:
        broken = ClusterAuthorizationFailed("no right")
        return {1: [LogDir("/a", None, 100, 5, {}), LogDir("/b", broken, None, None, {})]}

    async def list_topics(self, *, internal: bool) -> list[str]:
        return ["orders"]

    async def describe_topics(self, names: list[str], *, raise_errors: bool) -> Any:
        parts = [
            PartitionDescription(0, None, 0, [1], [], []),
            PartitionDescription(1, 1, 0, [1, 2], [1], []),
        ]
        topics: Results[str, TopicDescription] = Results()
        topics["orders"] = TopicDescription("orders", b"", False, parts)
        return topics

    async def list_groups(self) -> Any:
        return [SimpleNamespace(group_id=name) for name in ("late", "o'stopped", "well")]

    async def describe_history(self, _kind: Any, name: str, *, limit: int) -> Any:
        verdict = "STOPPED" if name == "o'stopped" else "OK"
        states = [CurrentState("now_verdict", f"{verdict}: so it is", {"verdict": verdict})]
        if name == "late":
            states.append(CurrentState("now_lag", "", {"age_ms": "1200000"}))
        return [SimpleNamespace(states=states)]

    async def describe_broker_status(self, *_: Any, node_id: int) -> Any:
        return SimpleNamespace(
            problems=[
                Problem("partition_offline", "orders-0 is offline", Subject.PARTITION, "orders-0"),
                Problem("transaction_open", "t has been open", Subject.TRANSACTIONAL_ID, "t"),
                Problem("log_directory_failed", "the directory has failed", None, ""),
                Problem("group_behind", "group 'stopped' is STOPPED", Subject.GROUP, "stopped"),
            ]
        )


async def test_every_trouble_of_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "connect", lambda *_: "")
    found = await look_at_brokers(cast("Admin", _Admin()), "h:1")
    assert [
        (each.level.value, each.check, each.text, each.remedy) for each in found if each.remedy
    ] == [
        ("warning", "disk of broker 1", "/a has 5% free", found[2].remedy),
        ("error", "disk of broker 1", "/b: no right", found[3].remedy),
        ("error", "partitions", "1 partition without a leader", found[4].remedy),
        ("warning", "partitions", "2 partitions without all replicas in sync", found[5].remedy),
        (
            "warning",
            "groups",
            "late has not read a record that is 20 min old",
            "odradek explain group late",
        ),
        (
            "error",
            "groups",
            "o'stopped is STOPPED: so it is",
            "odradek explain group 'o'\"'\"'stopped'",
        ),
        ("error", "broker 1", "orders-0 is offline", "odradek explain partition orders-0"),
        ("warning", "broker 1", "t has been open", "odradek explain txn t"),
        ("error", "broker 1", "the directory has failed", "the broker's log has more about it"),
    ]


async def test_a_check_without_the_right_is_not_taken_for_good_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        raise ClusterAuthorizationFailed("no right")

    monkeypatch.setattr(doctor_checks, "connect", lambda *_: "")
    monkeypatch.setattr(_Admin, "list_groups", refused)
    found = await look_at_brokers(cast("Admin", _Admin()), "h:1")
    (unseen,) = [each for each in found if not each.looked]
    assert unseen.text == "they could not be looked at: no right"
