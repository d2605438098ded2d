"""The output of `odradek ... --help`, compared with the texts in the sources."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from many_cases import looped
from odradek_cli.app import build_app
from odradek_cli.commands import COMMANDS


def command_lines() -> Iterator[list[str]]:
    """The words of all commands and subcommands."""

    def below(command: Any, words: list[str]) -> Iterator[list[str]]:
        yield words
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, [*words, name])

    yield from below(typer.main.get_command(build_app()), [])


@looped("words", [*command_lines()], ids=" ".join)
def test_help_shows_flags_as_flags_and_has_no_boxes(words: list[str]) -> None:
    done = CliRunner().invoke(build_app(words[:1]), [*words, "--help"], prog_name="odradek")
    assert done.exit_code == 0
    for mark in ("<bool>", "<list[int]>", "range>", "2147483647", "╭", "\x1b"):
        assert mark not in done.stdout
    assert f"Usage: odradek {' '.join(words)}".rstrip() in done.stdout


def test_help_keeps_square_brackets() -> None:
    done = CliRunner().invoke(build_app(["demo"]), ["demo", "--help"])
    assert "pip install 'odradek[demo]'" in done.stdout


def test_the_main_help_has_each_command_under_its_heading() -> None:
    lines = CliRunner().invoke(build_app(["--help"]), ["--help"]).stdout.splitlines()
    for row in COMMANDS:
        heading = lines.index(f"{row.panel}:")
        assert any(line.split() == [row.name, *row.help.split()] for line in lines[heading:])


def test_help_of_a_group_has_the_whole_summary_of_each_command() -> None:
    for words in command_lines():
        shown = CliRunner().invoke(build_app(words[:1]), [*words, "--help"]).stdout
        assert "..." not in shown.partition("\nCommands:")[2], words
    shown = CliRunner().invoke(build_app(["group"]), ["group", "--help"]).stdout
    assert "their members must have stopped." in " ".join(shown.split())


@pytest.mark.parametrize(
    "words", [["produce"], ["consume"], ["topic", "create"], ["acl", "add"]], ids=" ".join
)
def test_help_has_each_example_on_its_own_line(words: list[str]) -> None:
    lines = CliRunner().invoke(build_app(), [*words, "--help"]).stdout.splitlines()
    commands = [line.partition(" | ")[2] or line.strip() for line in lines]
    assert sum(each.startswith(f"odradek {' '.join(words)} ") for each in commands) >= 3


_WITHOUT_A_ROOM = """
import sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "{package}" else found(name, *more)
sys.argv = ["odradek", *{words}]
from odradek_cli import main
main()
"""


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("odradek_console", "console"),
        ("odradek_demo", "demo"),
        ("odradek_log_tools", "log"),
        ("odradek_mirror", "mirror"),
    ],
)
def test_a_room_that_was_carried_out_takes_its_command_with_it(package: str, command: str) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        program = _WITHOUT_A_ROOM.format(package=package, words=list(words))
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )

    shown = run("--help")
    assert shown.returncode == 0, shown.stderr
    names = {line.split()[0] for line in shown.stdout.splitlines() if line.startswith("  ")}
    assert command not in names and {"serve", "topic", "consume"} <= names
    refused = run(command, "--help")
    assert refused.returncode == 2 and f"No such command '{command}'" in refused.stderr
