"""The GitHub action: the test runs its steps, with an installed odradek."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek import sync
from odradek.faults import Faults

ACTION: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())
DEADLINE_S = 120

pytestmark = pytest.mark.own_broker


class Runner:
    """Runs the shell steps of the action as a GitHub runner does."""

    def __init__(self, folder: Path, inputs: dict[str, str]) -> None:
        self.folder = folder
        self.inputs = {name: each["default"] for name, each in ACTION["inputs"].items()} | inputs
        self.installed = folder / "installed"
        python = folder / "python"
        python.write_text(f"""#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" > {self.installed}\\n' > "$3/bin/pip"
printf '#!/bin/sh\\nexec {sys.executable} -m odradek "$@"\\n' > "$3/bin/odradek"
chmod 755 "$3/bin/pip" "$3/bin/odradek"
""")
        python.chmod(0o755)
        self.values = {"steps.python.outputs.python-path": str(python)}
        self.values |= {f"inputs.{name}": value for name, value in self.inputs.items()}

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the steps until one fails; returns the result of the last step that ran."""
        for step in ACTION["runs"]["steps"]:
            if "run" in step:
                done = self._run(step)
                if done.returncode != 0:
                    break
        return done

    def _run(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        assert "${{" not in step["run"], "an input inside of a script can be a command"
        given = {name: self._value(text) for name, text in step["env"].items()}
        files = {name: str(self.folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_ENV")}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**os.environ, **files, "RUNNER_TEMP": str(self.folder), **given},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def _value(self, text: str) -> str:
        return self.values[text.removeprefix("${{ ").removesuffix(" }}")]

    def written(self, name: str) -> dict[str, str]:
        """The values that the steps have written to the file with that name."""
        lines = (self.folder / name).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def stop(self) -> None:
        command = [sys.executable, "-m", "odradek", "stop", "--data-dir"]
        subprocess.run(
            [*command, str(self.folder / "odradek-data")], check=True, timeout=DEADLINE_S
        )


@pytest.mark.full
def test_the_steps_start_a_broker_with_faults_and_settings(tmp_path: Path) -> None:
    settings = "num.partitions=3\n\nlog.retention.ms=-1\n"
    runner = Runner(tmp_path, {"version": "0.1.0", "port": "0", "settings": settings})
    done = runner.run()
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        assert runner.installed.read_text().split() == ["install", "--quiet", "odradek==0.1.0"]
        given = runner.written("GITHUB_OUTPUT")
        assert set(given) == set(ACTION["outputs"])
        assert runner.written("GITHUB_ENV") == {
            f"ODRADEK_{name.upper()}": value for name, value in given.items()
        }
        with sync.Producer(bootstrap_servers=given["bootstrap"]) as producer:
            faults = Faults.at(given["faults"])
            faults.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders")
            producer.send_and_wait("orders", b"4 apples")
            assert faults.list()[0].met == 1
        with sync.Admin(bootstrap_servers=given["bootstrap"]) as admin:
            (topic,) = admin.describe_topics(["orders"]).values()
            assert len(topic.partitions) == 3
    finally:
        runner.stop()


@pytest.mark.full
def test_a_bad_setting_fails_the_job_with_its_name(tmp_path: Path) -> None:
    runner = Runner(tmp_path, {"port": "0", "settings": "num.partitions=many"})
    done = runner.run()
    assert done.returncode == 2
    assert "num.partitions" in done.stdout + done.stderr
    assert runner.installed.read_text().split() == ["install", "--quiet", "odradek"]


def test_each_output_of_the_action_is_that_of_a_step() -> None:
    steps = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    for name, output in ACTION["outputs"].items():
        assert output["value"] == f"${{{{ steps.start.outputs.{name} }}}}"
    assert {"python", "start"} <= steps
    assert all(step["shell"] == "bash" for step in ACTION["runs"]["steps"] if "run" in step)
