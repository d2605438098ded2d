"""Completion in real shells (bash, zsh and fish), with the scripts that `--install-completion`
writes.

Each shell runs on its own terminal, from which the test reads what the Tab key inserts.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from cli_runner import PATIENCE_S
from odradek import NewTopic, sync

_READY = "ready> "
_ESCAPE = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]|.\x08|\x07")
#: For each shell its command and the startup lines: the prompt, and the completion script.
_START = {
    "bash": (
        ["bash", "--noprofile", "--norc", "-i"],
        "PS1='{ready}'; bind 'set enable-bracketed-paste off'; . {script}\n",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "PS1='{ready}'; zstyle ':completion:*' insert-tab false; autoload -Uz compinit; compinit -u -D; . {script}\n",
    ),
}


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: `apt-get install {name}`")
    return name


@pytest.fixture
def environment(tmp_path: Path, live_bootstrap: str) -> dict[str, str]:
    """An environment whose PATH has `odradek`, as after an installation."""
    program = tmp_path / "bin" / "odradek"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m odradek "$@"\n')
    program.chmod(0o755)
    return os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "COLUMNS": "200",
        "ODRADEK_BOOTSTRAP": live_bootstrap,
        "ODRADEK_COMPLETION_TIMEOUT_MS": "30000",
    }


@pytest.fixture
def names(live_bootstrap: str, unique_topic: str) -> tuple[str, str]:
    """A topic, and a group with a committed offset in it."""
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.create_topics([NewTopic(unique_topic, 1)])
        group = f"{unique_topic}-readers"
        admin.alter_group_offsets(group, {(unique_topic, 0): 0})
    return unique_topic, group


@pytest.fixture
def complete(
    shell: str, environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[[str, str], None]]:
    """Yields a function that completes a line in the shell, and fails unless the last word becomes
    the wanted word."""
    script = tmp_path / f"completion.{shell}"
    script.write_text(_script(shell, environment))
    if shell == "fish":

        def ask(line: str, wanted: str) -> None:
            assert _in_fish(line, script, environment) == [wanted]

        yield ask
        return
    with _Terminal(shell, script, environment) as terminal:
        yield terminal.complete


def _script(shell: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["odradek"],
        env=environment | {"_ODRADEK_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout


def _in_fish(line: str, script: Path, environment: dict[str, str]) -> list[str]:
    """The words that fish offers for the end of the line, without their descriptions."""
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C $argv[1]", line],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return [each.partition("\t")[0] for each in done.stdout.splitlines()]


class _Terminal:
    """An interactive shell on a terminal."""

    def __init__(self, shell: str, script: Path, environment: dict[str, str]) -> None:
        self._command, start = _START[shell]
        self._start = start.format(ready=_READY, script=script)
        self._environment = environment

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            self._command,
            stdin=theirs, stdout=theirs, stderr=theirs,
            env=self._environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._send(self._start)
        # The first occurrence is the echo of the line that sets the prompt.
        self._until(lambda text: text.count(_READY) >= 2)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def complete(self, line: str, wanted: str) -> None:
        """Type a line and the Tab key; wait until the last word is the wanted word."""
        self._send(f"{line}\t")
        # The shell adds a space after a complete word.
        self._until(lambda text: f"{wanted} " in _ESCAPE.sub("", text))
        # Delete the line, and wait for the next prompt.
        self._send("\x15\n")
        self._until(lambda text: _READY in text)

    def _send(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def _until(self, there: Callable[[str], bool]) -> str:
        text = ""
        deadline_s = time.monotonic() + PATIENCE_S
        while not there(text):
            assert time.monotonic() < deadline_s, text
            if select.select([self._ours], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):
                    text += os.read(self._ours, 65_536).decode("utf-8", "replace")
        return text


@pytest.mark.full
def test_shells_complete_commands_options_topics_and_groups(
    complete: Callable[[str, str], None], names: tuple[str, str]
) -> None:
    topic, group = names
    complete("odradek topi", "topic")
    complete("odradek topic descr", "describe")
    complete("odradek consume --read-comm", "--read-committed")
    complete(f"odradek topic describe {topic[:-2]}", topic)
    complete(f"odradek consume {topic} --group {group[:-3]}", group)
    complete(f"odradek explain partition {topic}-", f"{topic}-0")


def test_names_with_shell_syntax_are_not_offered(
    complete: Callable[[str, str], None], live_bootstrap: str, unique_topic: str, tmp_path: Path
) -> None:
    """Clients choose the names of groups, and a hostile name is left out. If it were offered
    together with the harmless name, no shell would complete the word."""
    mark = tmp_path / "run"
    hostile = [
        f"{unique_topic}-{each}"
        for each in (
            f"$(touch {mark})", f"`touch {mark}`", f"';touch {mark};'", f'";touch {mark};"',
            f"\n touch {mark}", "*", "a b", "\\", "|x", ">x", "&x", "(x)", "~", "!x", "#x",
        )
    ]  # fmt: skip
    harmless = f"{unique_topic}-readers"
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.create_topics([NewTopic(unique_topic, 1)])
        for group in (*hostile, harmless):
            admin.alter_group_offsets(group, {(unique_topic, 0): 0})
        complete(f"odradek group describe {unique_topic}-", harmless)
        admin.delete_groups([*hostile, harmless])
    assert not mark.exists()
