"""`odradek generate`: files for the tools around a broker. Alerts and the dashboard use the metrics
of docs/operate/monitoring.md."""

from __future__ import annotations

import getpass
import shutil
import sys
from pathlib import Path
from typing import Annotated

from odradek_cli.commands import fail
from odradek_cli.options import Commands, option
from odradek_cli.say import say

app = Commands(rich_markup_mode=None)

# --- A systemd unit -------------------------------------------------------------------------------

_UNIT = """\
[Unit]
Description=Odradek, a Kafka broker
After=network-online.target
Wants=network-online.target

[Service]
User={user}
ExecStart={command}
StateDirectory=odradek
StateDirectoryMode=0700
Restart=on-failure
TimeoutStopSec=120
LimitNOFILE=100000

[Install]
WantedBy=multi-user.target
"""
#: systemd splits command lines at these characters, and expands % and $.
_SPECIAL = " \t\"'\\%$;"


@app.command("systemd-unit")
def systemd_unit(
    config: Annotated[
        Path | None, option("--config FILE", "The settings file of the broker.")
    ] = None,
    data_dir: Annotated[Path, option("--data-dir DIR", "The data directory.")] = Path(
        "/var/lib/odradek"
    ),
    user: Annotated[str, option("--user NAME", "The user that the broker runs as.")] = "odradek",
) -> None:
    """Print a unit of systemd that runs this installation.

    Write it to /etc/systemd/system/odradek.service, then: systemctl enable --now odradek.
    """
    if not user or any(character in user for character in " \t\n/:"):
        fail(f"--user {user!r} is no name of a user; you are {getpass.getuser()}", 2)
    command = [shutil.which("odradek") or f"{sys.executable} -m odradek", "serve"]
    if config is not None:
        command += ["--config", _plain("--config", config)]
    command += ["--data-dir", _plain("--data-dir", data_dir)]
    say(*_UNIT.format(user=user, command=" ".join(command)).splitlines())


def _plain(option: str, path: Path) -> str:
    text = str(path.absolute())
    if any(character in text for character in _SPECIAL) or not text.isprintable():
        fail(f"{option} {text!r}: choose a path without blanks, quotes, % and $", 2)
    return text


# --- Files that are printed as they are -----------------------------------------------------------


@app.command("prometheus-alerts")
def prometheus_alerts() -> None:
    """Print rules of alerts for Prometheus (`rule_files`).

    The job of the broker in scrape_configs must be called odradek.
    """
    _print("prometheus-alerts.yml")


@app.command("grafana-dashboard")
def grafana_dashboard() -> None:
    """Print a dashboard for Grafana, to import as JSON.

    Grafana asks for a Prometheus data source, and for the instances to show.
    """
    _print("grafana-dashboard.json")


def _print(file: str) -> None:
    say(*Path(__file__).with_name(file).read_text("utf-8").splitlines())
