"""Kafka's own Java clients with our SASL listener, by every mechanism."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kafka_cluster
from odradek.broker import SubprocessBroker
from odradek_broker.security.passwords import hash_password

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker]

PROGRAM = Path(__file__).parent / "java" / "Sasl.java"
PASSWORD = "alice, = secret"
DEADLINE_S = 170
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_a43_n28_java_authenticates_and_re_authenticates(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"alice:{hash_password(PASSWORD, bytes(range(16)))}\n")
    (tmp_path / "password").write_text(PASSWORD)
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.plain.users.file": tmp_path / "users",
        "sasl.scram.initial.users": f"alice=file:{tmp_path / 'password'}",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f'{OAUTH} required unsecuredLoginStringClaim_sub="x";'
        ),
        "connections.max.reauth.ms": 2000,
        "log.durability": "page-cache",
    }
    with SubprocessBroker(settings=settings) as broker:
        arguments = [broker.bootstrap, PASSWORD, "5"]
        done = subprocess.run(
            [kafka_cluster.java(), "-cp", kafka_cluster.class_path(), str(PROGRAM), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "11 of 11 steps", done.stdout
