"""The command line over TLS: settings with -X, and the error if the broker's certificate is not
trusted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from certificates import Authority
from odradek.broker import SubprocessBroker

CA = Authority()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "odradek", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    CA.write(tmp_path / "ca.pem")
    Authority("Other CA").write(tmp_path / "other.pem")
    CA.issue().write(tmp_path / "broker.pem", "secret")
    (tmp_path / "password").write_text("secret\n", "utf-8")
    return tmp_path


@pytest.mark.full
def test_n19_n22_commands_work_over_tls_and_name_missing_trust(folder: Path) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "ssl.key.password": f"${{dir:{folder}:password}}",
    }
    with SubprocessBroker(settings=settings) as broker:
        tls = ["-b", broker.bootstrap, "-X", "security.protocol=SSL"]
        tls += ["-X", "ssl.truststore.type=PEM", "-X"]
        trusted = [*tls, f"ssl.truststore.location={folder}/ca.pem"]
        created = run("topic", "create", "t", *trusted)
        assert created.returncode == 0, created.stderr
        assert "t" in run("topic", "list", *trusted).stdout
        refused = run("topic", "list", *tls, f"ssl.truststore.location={folder}/other.pem")
        assert refused.returncode == 1 and "CA that is trusted here" in refused.stderr
        plain = run("topic", "list", "-b", broker.bootstrap)
        assert plain.returncode == 1 and "set security.protocol=SSL" in plain.stderr
        missing = run("topic", "list", *tls, "ssl.truststore.location=/none.pem")
        assert missing.returncode == 2 and "cannot read /none.pem" in missing.stderr


def test_n18_listening_for_other_machines_needs_the_option_insecure(tmp_path: Path) -> None:
    refused = run("serve", "--listen", "0.0.0.0:0", "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr and "insecure.listeners=true" in refused.stderr
