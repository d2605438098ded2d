"""franz-go and kafkajs with our SASL listener. Go, Node and their package registries are
required."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreign_programs import run
from odradek.broker import SubprocessBroker

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker]

OTHERS = Path(__file__).parent / "others"
PASSWORD = "alice, = secret"
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512")


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "password").write_text(PASSWORD)
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' user_alice="{PASSWORD}";'
        ),
        "sasl.scram.initial.users": f"alice=file:{tmp_path / 'password'}",
        "group.initial.rebalance.delay.ms": 0,
        "log.durability": "page-cache",
    }
    with SubprocessBroker(settings=settings) as broker:
        yield broker.bootstrap


def program(name: str) -> str:
    """The path of a program; skips the test if the program is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def test_a43_kafkajs_authenticates_by_every_mechanism(bootstrap: str, tmp_path: Path) -> None:
    npm, node = program("npm"), program("node")
    run(npm, "install", "--no-save", "--prefix", str(tmp_path), "kafkajs@2.2.4", folder=tmp_path)
    shutil.copy(OTHERS / "sasl.js", tmp_path)
    lines = run(node, "sasl.js", bootstrap, PASSWORD, folder=tmp_path).splitlines()
    told = {f"{each}: sent" for each in MECHANISMS}
    told |= {f"{each}: KafkaJSSASLAuthenticationError" for each in MECHANISMS}
    assert set(lines) == told


def test_a43_franz_go_authenticates_by_every_mechanism(bootstrap: str, tmp_path: Path) -> None:
    go = program("go")
    shutil.copytree(OTHERS / "go", tmp_path / "go")
    run(go, "get", "github.com/twmb/franz-go@v1.19.5", folder=tmp_path / "go")
    lines = run(go, "run", ".", bootstrap, PASSWORD, folder=tmp_path / "go").splitlines()
    assert set(lines) == {f"{each}: {end}" for each in MECHANISMS for end in ("sent", "refused")}
