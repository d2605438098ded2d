"""The output of `odradek ... --help`, compared with the texts in the sources."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "words", [["produce"], ["consume"], ["topic", "create"], ["acl", "add"]], ids=" ".join
)
def test_help_has_each_example_on_its_own_line(words: list[str]) -> None:
    lines = CliRunner().invoke(build_app(), [*words, "--help"]).stdout.splitlines()
    commands = [line.partition(" | ")[2] or line.strip() for line in lines]
    assert sum(each.startswith(f"odradek {' '.join(words)} ") for each in commands) >= 3
