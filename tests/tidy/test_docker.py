"""Each image copies all files that it needs; the tests check this without a container engine."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from odradek_broker.config.broker import parse_assignments, parse_config
from odradek_cli.broker.serving import parse_plain

IMAGES = ("docker/Dockerfile", "docker/spark.Dockerfile")
#: Files of a checkout that would be slow or wrong in an image.
_UNWANTED = (
    ".git/config",
    ".venv/bin/python",
    "tests/conftest.py",
    "protocol/odradek_protocol/records/_native.abi3.so",
    "broker/odradek_broker/__pycache__/node.cpython-313.pyc",
)


def copied(text: str) -> set[str]:
    """The sources of COPY instructions that are in the checkout."""
    found: set[str] = set()
    for line in text.splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            found.update(line.split()[1:-1])
    return found


def is_ignored(path: str, patterns: list[str]) -> bool:
    """True if Docker ignores the path: the last pattern that matches the path or a parent folder
    decides."""
    parts = path.split("/")
    folders = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    ignored = False
    for pattern in patterns:
        plain = pattern.removeprefix("!").removeprefix("**/")
        anywhere = "**/" in pattern
        names = parts if anywhere else folders
        if any(fnmatch(each, plain) and ("/" in plain or anywhere or each == folders[0])
               for each in names):  # fmt: skip
            ignored = not pattern.startswith("!")
    return ignored


@pytest.fixture
def patterns(repository: Path) -> list[str]:
    lines = (repository / ".dockerignore").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_all_sources_of_the_wheel(
    image: str, repository: Path, patterns: list[str]
) -> None:
    text = (repository / image).read_text("utf-8")
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    needed = {"pyproject.toml", "hatch_build.py", project["project"]["readme"]}
    needed.update(project["project"]["license-files"])
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed.update(package.split("/")[0] for package in wheel["packages"])
    assert needed <= copied(text), f"{image} does not copy {needed - copied(text)}"
    for path in copied(text):
        assert (repository / path).exists()
        assert not is_ignored(path, patterns), f"{path} is in .dockerignore"


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_needs_the_compiled_codec(image: str, repository: Path) -> None:
    text = (repository / image).read_text("utf-8")
    build, run = re.split(r"^FROM .*$", text, flags=re.MULTILINE)[1:]
    assert "gcc" in build and "_native.abi3.so" in build
    assert "gcc" not in run and 'grep -q "record codec: compiled"' in run


def test_generated_files_do_not_go_into_an_image(patterns: list[str]) -> None:
    for path in _UNWANTED:
        assert is_ignored(path, patterns), path
    assert not is_ignored("protocol/odradek_protocol/records/_native.c", patterns)


def _arguments(repository: Path) -> list[str]:
    """The broker's arguments in compose.yaml, after `odradek serve`."""
    entry = (repository / "docker/Dockerfile").read_text("utf-8").rpartition("ENTRYPOINT ")[2]
    shell = json.loads(entry)[2].replace("$ODRADEK_ADVERTISED", "localhost:9092")
    arguments = shlex.split(shell.removeprefix("exec odradek serve "))
    assert arguments.pop() == "$@"
    compose = (repository / "docker/compose.yaml").read_text("utf-8")
    command = re.search(r"    command:\n((?:      - .*\n)+)", compose)
    assert command is not None
    return arguments + [line.strip().removeprefix("- ") for line in command[1].splitlines()]


def test_n12_containers_and_the_host_get_reachable_addresses(
    repository: Path,
) -> None:
    options = parse_plain(_arguments(repository), {})
    assert options is not None and options.insecure and options.listen is None
    given = parse_assignments(options.settings) | {"insecure.listeners": "true"}
    config, notices = parse_config(given)
    assert notices == []
    ports = {each.name: each.port for each in config.broker_listeners}
    told = config.advertised_addresses
    assert told == {"INTERNAL": ("broker", ports["INTERNAL"]), "HOST": ("localhost", ports["HOST"])}
    compose = (repository / "docker/compose.yaml").read_text("utf-8")
    assert f"ODRADEK_BOOTSTRAP: broker:{ports['INTERNAL']}\n" in compose
    published = re.findall(r'^      - "(.*)"$', compose, re.MULTILINE)
    assert f"127.0.0.1:{ports['HOST']}:{ports['HOST']}" in published
    assert all(each.startswith("127.0.0.1:") for each in published)
    assert not any(each.endswith(f":{ports['INTERNAL']}") for each in published)
