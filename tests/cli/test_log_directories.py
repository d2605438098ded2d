"""`odradek serve`, `log dump` and `log verify` on several data directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli_runner import Commands
from odradek import NewTopic, sync
from odradek.broker import SubprocessBroker

ODRADEK = Commands("127.0.0.1:1")


def _names(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()}


def _fill(folder: Path) -> None:
    """Create topic t, with one partition in each of the directories a and b in `folder`."""
    data_dirs = f"{folder / 'a'},{folder / 'b'}"
    with SubprocessBroker(settings={"log.dirs": data_dirs}) as broker:
        with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 2)])
        with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for partition in (0, 1):
                producer.send("t", b"v", partition=partition)
            producer.flush()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    _fill(folder)
    return folder


@pytest.fixture
def dirs(written: Path, tmp_path: Path) -> tuple[Path, Path]:
    shutil.copytree(written, tmp_path / "copy")
    return tmp_path / "copy" / "a", tmp_path / "copy" / "b"


def _verify(*arguments: object, code: int) -> list[dict[str, Any]]:
    printed = ODRADEK.run("log", "verify", "--json", *map(str, arguments), code=code)
    return [json.loads(line) for line in printed.splitlines()]


def _settings(folder: Path, a: Path, b: Path) -> Path:
    path = folder / "server.properties"
    path.write_text(f"log.dirs={a},{b}\n")
    return path


def test_l41_all_data_directories_together_are_sound(
    dirs: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = dirs
    assert {"t-0", "__cluster_metadata-0", "meta.properties"} <= _names(a)
    assert {"t-1", "meta.properties", ".kafka_cleanshutdown"} <= _names(b)
    assert _verify(a, b, code=0) == []
    assert _verify("--config", _settings(tmp_path, a, b), code=0) == []


def test_l43_log_verify_misses_a_data_directory_that_is_not_given(dirs: tuple[Path, Path]) -> None:
    (found,) = _verify(dirs[0], code=2)
    assert found["file"].endswith("a/meta.properties")
    assert found["problem"].startswith(
        "1 partitions are nowhere, and the directory with directory.id"
    )
    assert any("__cluster_metadata-0" in each["file"] for each in _verify(dirs[1], code=2))


def test_l41_log_verify_finds_duplicate_partitions_and_directory_ids(
    dirs: tuple[Path, Path],
) -> None:
    a, b = dirs
    shutil.copytree(a / "t-0", b / "t-0")
    (found,) = [each for each in _verify(a, b, code=2) if each["severity"] == "damaged"]
    assert (found["file"], found["problem"]) == (str(b / "t-0"), f"is in {a} too")
    shutil.rmtree(b / "t-0")
    text = (b / "meta.properties").read_text()
    (b / "meta.properties").write_text(text.replace("node.id=1", "node.id=2"))
    (found,) = _verify(a, b, code=2)
    assert found["problem"] == f"has node.id 2, {a} has 1"
    shutil.copy(a / "meta.properties", b / "meta.properties")
    (found,) = _verify(a, b, code=2)
    assert found["problem"] == f"has the directory.id of {a}: one is a copy of the other"


def test_log_dump_takes_the_settings_file(dirs: tuple[Path, Path], tmp_path: Path) -> None:
    path = _settings(tmp_path, *dirs)
    rows = ODRADEK.rows("log", "dump", "--only", "log", "--config", str(path))
    files = {Path(row["file"]).parent.name for row in rows}
    assert {"t-0", "t-1"} <= files
    assert rows == ODRADEK.rows("log", "dump", "--only", "log", *map(str, dirs))


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_data_directories_and_a_settings_file_exclude_each_other(
    command: str, dirs: tuple[Path, Path], tmp_path: Path
) -> None:
    ODRADEK.run("log", command, code=2)
    ODRADEK.run("log", command, "--config", str(_settings(tmp_path, *dirs)), str(dirs[0]), code=2)
