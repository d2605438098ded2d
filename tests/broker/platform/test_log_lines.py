"""Log lines for people, log lines for machines, and a log file of limited size."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from odradek_broker.platform import log_lines
from odradek_broker.platform.log_lines import PROCESS_LOG_LEVELS, configure_logging
from odradek_broker.platform.loggers import LOGGERS


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    for handler in handlers:
        root.removeHandler(handler)
    # A client that an earlier test left in a thread still logs failed connections.
    client, ignore = logging.getLogger("odradek.client"), logging.NullHandler()
    client.addHandler(ignore)
    client.propagate = False
    yield
    client.propagate = True
    client.removeHandler(ignore)
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("asyncio").filters.clear()
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    PROCESS_LOG_LEVELS.changeable = False
    structlog.reset_defaults()


def test_the_json_format_writes_a_json_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    log = structlog.get_logger("odradek.test")
    log.info("hello", count=3)
    log.debug("hidden")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    captured = capsys.readouterr()
    assert captured.out == "", "stdout is for data"
    lines = [json.loads(line) for line in captured.err.splitlines()]
    assert [line["event"] for line in lines] == ["hello", "slow callback", "failed"]
    assert (lines[0]["count"], lines[0]["level"], lines[0]["logger"]) == (3, "info", "odradek.test")
    assert lines[0]["timestamp"].endswith("Z")
    assert lines[1]["logger"] == "odradek.asyncio"
    assert "ValueError: broken" in lines[2]["exception"]


def test_lines_of_asyncio_which_peers_cause_are_limited(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    configure_logging("json", "info")
    for number in range(1_000):
        logging.getLogger("asyncio").error("failed on transport %s", number)
    assert len(capsys.readouterr().err.splitlines()) == 60


def test_the_console_format_writes_readable_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("console", "warning")
    log = structlog.get_logger("odradek.test")
    log.info("hidden")
    log.warning("look here", topic="t")
    (line,) = capsys.readouterr().err.splitlines()
    assert "look here" in line and "topic=t" in line
    with pytest.raises(json.JSONDecodeError):
        json.loads(line)


def test_the_auto_format_is_json_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("auto")
    structlog.get_logger("odradek.test").info("hello")
    assert json.loads(capsys.readouterr().err)["event"] == "hello"


def test_a_second_configuration_of_logging_replaces_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("json")
    configure_logging("json")
    structlog.get_logger("odradek.test").info("hello")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_log_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "LOG_FILE_MAX_BYTES", 1000)
    configure_logging("json", log_file=str(tmp_path / "b.log"))
    log = structlog.get_logger("odradek.test")
    for _ in range(200):
        log.info("x" * 100)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["b.log", "b.log.1", "b.log.2", "b.log.3"]
    assert all(file.stat().st_size <= 1000 for file in files)


def test_a79_a_changed_log_level_applies_to_the_next_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("json", "info")
    log, other = structlog.get_logger("odradek.groups"), structlog.get_logger("odradek.tls")

    def written() -> list[str]:
        for each in (log, other):
            each.debug("debug")
            each.warning("warning")
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        return [f"{line['logger']} {line['event']}" for line in lines]

    usual = ["odradek.groups warning", "odradek.tls warning"]
    assert written() == usual
    for level, lines in (
        ("DEBUG", ["odradek.groups debug", *usual]),
        ("TRACE", ["odradek.groups debug", *usual]),
        ("ERROR", usual[1:]),
        (None, usual),
    ):
        PROCESS_LOG_LEVELS.set_level("odradek.groups", level)
        assert written() == lines, level
    PROCESS_LOG_LEVELS.set_level("odradek", "FATAL")
    assert written() == []
    PROCESS_LOG_LEVELS.set_level("odradek", None)
    PROCESS_LOG_LEVELS.set_level("root", "DEBUG")
    assert len(written()) == 4
    with pytest.raises(KeyError):
        PROCESS_LOG_LEVELS.set_level("no.such", "DEBUG")


def test_a79_log_levels_have_kafkas_names() -> None:
    assert not PROCESS_LOG_LEVELS.changeable
    configure_logging("json", "warning")
    assert PROCESS_LOG_LEVELS.changeable
    levels = PROCESS_LOG_LEVELS.levels()
    assert {"root", *LOGGERS} <= levels.keys()
    assert {levels[name] for name in ("root", *LOGGERS)} == {"WARN"}
    for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"):
        PROCESS_LOG_LEVELS.set_level("odradek", name)
        assert PROCESS_LOG_LEVELS.levels()["odradek.server"] == name
    configure_logging("json", "info")
    assert PROCESS_LOG_LEVELS.levels()["odradek"] == "INFO", "a start forgets"


def test_a79_every_logger_of_the_broker_is_in_the_list(repository: Path) -> None:
    named = re.compile(r'get_logger\("([a-z.]+)"\)')
    found = {
        name
        for path in (repository / "broker").rglob("*.py")
        for name in named.findall(path.read_text("utf-8"))
    }
    assert found and found <= set(LOGGERS)
