"""The completion of topics, groups and partitions, as a shell requests it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

import budget
from cli_runner import PATIENCE_S, Commands
from odradek import sync
from odradek_cli import completion
from odradek_cli.completion import words_of_line

NOBODY = "127.0.0.1:1"


def complete(bootstrap: str, *words: str, shell: str = "bash", **more: str) -> list[str]:
    """The completions of the last word of the line `odradek WORDS`; stderr must stay empty."""
    line = ["odradek", *words]
    environment = {**os.environ, "ODRADEK_BOOTSTRAP": bootstrap, **more}
    environment["_ODRADEK_COMPLETE"] = f"complete_{shell}"
    environment |= {"COMP_WORDS": "\n".join(line), "COMP_CWORD": str(len(line) - 1)}
    if shell != "bash":
        environment |= {"COMP_WORDS": "", "_TYPER_COMPLETE_ARGS": " ".join(line)}
        environment |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "odradek"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.split("\n") if line]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the completion wait longer, for a broker on a busy machine."""
    monkeypatch.setenv("ODRADEK_COMPLETION_TIMEOUT_MS", "30000")


@pytest.fixture
def names(live_bootstrap: str, unique_topic: str) -> tuple[str, str]:
    """A topic of two partitions, and a group that has read it."""
    odradek = Commands(live_bootstrap)
    odradek.run("topic", "create", unique_topic, "--partitions", "2")
    group = f"{unique_topic}-readers"
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.alter_group_offsets(group, {(unique_topic, 0): 0})
    return unique_topic, group


@pytest.mark.full
def test_topics_groups_and_partitions_are_completed(
    live_bootstrap: str, names: tuple[str, str]
) -> None:
    topic, group = names
    assert complete(live_bootstrap, "topic", "describe", topic[:-2]) == [topic]
    assert complete(live_bootstrap, "consume", topic, "--group", group[:-2]) == [group]
    assert complete(live_bootstrap, "explain", "partition", topic) == [f"{topic}-0", f"{topic}-1"]
    assert complete(live_bootstrap, "config", "describe", "topic", topic) == [topic]
    assert group in complete(live_bootstrap, "config", "describe", "group", "")
    # The name of a new topic is not completed.
    assert complete(live_bootstrap, "topic", "create", topic) == []
    assert not any(each.startswith("__") for each in complete(live_bootstrap, "produce", ""))
    assert "__consumer_offsets" in complete(live_bootstrap, "topic", "describe", "__")


@pytest.mark.full
@pytest.mark.parametrize("shell", budget.of_which(["zsh", "fish"], ["zsh"]))
def test_zsh_and_fish_get_completions_too(
    live_bootstrap: str, names: tuple[str, str], shell: str
) -> None:
    topic, _ = names
    found = complete(live_bootstrap, "topic", "describe", topic, shell=shell)
    assert any(topic in each for each in found)


@pytest.mark.full
def test_completion_uses_the_broker_and_settings_of_the_line(
    live_bootstrap: str, names: tuple[str, str]
) -> None:
    topic, group = names
    host, _, port = live_bootstrap.partition(":")
    # the words of the line, as bash splits them
    asked = ("topic", "describe", "-b", host, ":", port, topic)
    assert complete(NOBODY, *asked) == [topic]
    # Settings that may concern TLS or SASL are passed to the client.
    assert complete(live_bootstrap, "topic", "describe", "-X", "client.id", "=", "x", topic) == [
        topic
    ]
    assert complete(live_bootstrap, "group", "describe", "-X", "client.id=x", group) == [group]


_UNANSWERABLE = [
    ("topic", "describe", ""),
    ("topic", "describe", "-X", "nonsense", ""),
    ("topic", "describe", "-X", "no.such.setting=1", ""),
    ("topic", "describe", "-X", "sasl.username=a", ""),
    ("consume", "-g", ""),
]


@pytest.mark.parametrize(
    ("words",), budget.of_which([(each,) for each in _UNANSWERABLE], [(_UNANSWERABLE[1],)])
)
def test_no_completions_are_printed_without_a_broker(words: tuple[str, ...]) -> None:
    assert complete(NOBODY, *words, ODRADEK_COMPLETION_TIMEOUT_MS="500") == []


@pytest.mark.full
def test_completion_gives_up_on_a_silent_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        assert complete(where, "topic", "describe", "", ODRADEK_COMPLETION_TIMEOUT_MS="300") == []


def test_commands_are_completed_without_a_broker() -> None:
    assert complete(NOBODY, "to") == ["top", "token", "topic"]
    assert complete(NOBODY, "topic", "des") == ["describe"]


def test_words_that_bash_splits_are_joined_again() -> None:
    environment = {
        "COMP_WORDS": "odradek\ntopic\n-b\nh\n:\n1\n-X\na\n=\nb\nor\n:\nx",
        "COMP_CWORD": "10",
    }
    assert words_of_line(environment) == ["topic", "-b", "h:1", "-X", "a=b", "or", ":", "x"]
    assert environment["COMP_CWORD"] == "6"
    assert words_of_line({"_TYPER_COMPLETE_ARGS": "odradek topic d"}) == ["topic", "d"]
    assert words_of_line({}) == []


def test_completion_does_not_wait_for_a_hung_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    gate = threading.Event()

    def hang(*_: object) -> None:
        gate.wait()
        raise OSError("nobody answers")

    monkeypatch.setattr(socket, "create_connection", hang)
    monkeypatch.setenv("ODRADEK_COMPLETION_TIMEOUT_MS", "50")
    assert completion.topic_names(_Context(), "") == []  # type: ignore[arg-type]
    gate.set()


@pytest.mark.filterwarnings("error")  # pytest reports the exception of a thread as a warning
@pytest.mark.parametrize(
    "bootstrap",
    [
        ",",
        "h",
        "h:port",
        "h:",
        "h:-1",
        "h:65536",
        "127.0.0.1:99999999999",
        "\0:1",
        f"{'a' * 300}:1",
    ],
)
def test_an_invalid_address_or_setting_gives_no_completions(bootstrap: str) -> None:
    for settings in ([], ["no.such=1"], ["no sign"]):
        context = _Context(bootstrap, settings)
        assert completion.topic_names(context, "") == []  # type: ignore[arg-type]


class _Context:
    def __init__(self, bootstrap: str = NOBODY, settings: Sequence[str] = ()) -> None:
        self.params = {"bootstrap": bootstrap, "setting": settings}
