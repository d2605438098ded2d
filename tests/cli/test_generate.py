"""`odradek generate`: its files are valid, and name only metrics and labels that a broker has."""

from __future__ import annotations

import asyncio
import configparser
import json
import re
import shutil
import socket
import subprocess
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import odradek
from cli_runner import Commands
from odradek.broker import SubprocessBroker
from odradek_cli.tools import generate
from odradek_client.admin import NewTopic

OPERATE = Path(__file__).parents[2] / "docs" / "operate"
#: Labels that Prometheus adds to all samples.
ADDED = {"instance", "job"}
#: The metric that Prometheus adds: 1 if it could read the broker's metrics.
OF_PROMETHEUS = {"up"}
TOOLS = Path(generate.__file__).parent
ALERTS = yaml.safe_load((TOOLS / "prometheus-alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
PANELS = json.loads((TOOLS / "grafana-dashboard.json").read_text("utf-8"))["panels"]
ALERT_EXPRESSIONS = [alert["expr"] for alert in ALERTS]
#: The expressions of the charts, each with its legend.
LINES = [
    (target["expr"], target["legendFormat"])
    for panel in PANELS
    for target in panel.get("targets", ())
]


def generated(*arguments: str, code: int = 0) -> str:
    return Commands("").run("generate", *arguments, code=code)


# --- The metrics that expressions ask for ---------------------------------------------------------


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """(metric, labels) of each selector, including the labels of `by` clauses."""
    plain = expression.replace("$__rate_interval", "5m")
    promql_parser.parse(plain)  # raises ValueError if the expression is not PromQL
    grouped = {
        label.strip()
        for found in re.findall(r"\bby \(([^)]*)\)", plain)
        for label in found.split(",")
    }
    for metric, inside in re.findall(
        r"([a-z_]+(?:_[a-z]+)*)\s*(?:\{([^}]*)\})?(?=[\[\s)<>=]|$)", plain
    ):
        if ("_" in metric and metric.startswith(("odradek", "kafka"))) or metric in OF_PROMETHEUS:
            yield metric, grouped | set(re.findall(r"(\w+)\s*[=!]", inside or ""))


@pytest.fixture(scope="module")
def labels_of() -> dict[str, set[str]]:
    """Metric name -> its labels, at a broker with a topic, a group and a transaction.

    A metric without samples has no labels.
    """

    async def use(bootstrap: str) -> None:
        async with odradek.Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1)])
        async with odradek.Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_and_wait("t", b"1")
        settings: Any = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
        async with odradek.Consumer("t", group_id="g", **settings) as consumer:
            await consumer.getone()
            await consumer.commit()

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with SubprocessBroker(settings={"http.listen": address}) as broker:
        asyncio.run(use(broker.bootstrap))
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    found: dict[str, set[str]] = defaultdict(set)
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    for family in text_string_to_metric_families(text):
        for suffix in suffixes.get(family.type, [""]):
            found[family.name + suffix] |= set()
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def labels_on_the_page(metric: str) -> set[str]:
    """The labels of a metric according to the page on monitoring."""
    page = (OPERATE / "monitoring.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [line.split(" | ") for line in lines if f"`{metric}`" in line]
    return {label.strip() for label in rows[0][1].split(",")} if rows else set()


@pytest.mark.parametrize("expression", [*ALERT_EXPRESSIONS, *(line[0] for line in LINES)])
def test_expressions_use_metrics_and_labels_of_the_broker(
    expression: str, labels_of: dict[str, set[str]]
) -> None:
    asked = list(selectors(expression))
    assert asked
    for metric, labels in asked:
        if metric in OF_PROMETHEUS:
            continue
        assert metric in labels_of, f"the broker has no metric {metric}"
        unknown = labels - ADDED - {"le"} - labels_of[metric] - labels_on_the_page(metric)
        assert not unknown, f"{metric} has no label {unknown}"


@pytest.mark.parametrize("expression", ["rate(odradek_nothing[5m]", "sum by (a (b)"])
def test_an_invalid_expression_is_found(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(selectors(expression))


def test_legends_and_texts_name_labels_of_their_expression(
    labels_of: dict[str, set[str]],
) -> None:
    texts = [(alert["expr"], " ".join(alert["annotations"].values())) for alert in ALERTS]
    for expression, text in [*texts, *LINES]:
        named = set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text))
        grouped = re.search(r"\bby \(([^)]*)\)", expression)
        if grouped:
            has = {label.strip() for label in grouped.group(1).split(",")}
        else:
            metrics = [metric for metric, _ in selectors(expression)]
            has = {
                label
                for metric in metrics
                for label in labels_of[metric] | labels_on_the_page(metric)
            }
        assert named <= has | ADDED, f"{text!r} names {named - has}, which {expression} has not"


# --- The files ------------------------------------------------------------------------------------


def test_alerts_have_the_form_of_prometheus_rules() -> None:
    (group,) = yaml.safe_load(generated("prometheus-alerts"))["groups"]
    assert (group["name"], group["rules"]) == ("odradek", ALERTS)
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smhd]", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert all(rule["annotations"].values())
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)


def test_every_metric_to_alert_on_has_an_alert() -> None:
    """The page on monitoring has a table of the metrics to alert on."""
    page = (OPERATE / "monitoring.md").read_text("utf-8")
    table = page.split("## What to alert on")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    wanted = {re.findall(r"`([a-z_]+)", row)[0] for row in rows}
    assert len(wanted) > 8
    used = {metric for expression in ALERT_EXPRESSIONS for metric, _ in selectors(expression)}
    missing = [each for each in wanted if not any(metric.startswith(each) for metric in used)]
    assert not missing


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells
    assert json.loads(generated("grafana-dashboard"))["panels"] == PANELS


# --- The unit -------------------------------------------------------------------------------------


def test_the_systemd_unit_runs_this_installation(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    text = generated("systemd-unit", "--config", str(config), "--user", "kafka")
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    service = unit["Service"]
    assert service["User"] == "kafka"
    program, *arguments = service["ExecStart"].split()
    assert Path(program).is_absolute()
    assert arguments[-5:] == ["serve", "--config", str(config), "--data-dir", "/var/lib/odradek"]


def test_the_page_on_services_shows_the_systemd_unit() -> None:
    page = (OPERATE / "service.md").read_text("utf-8")
    shown = page.split("```text\n[Unit]")[1].split("```")[0]
    made = generated("systemd-unit", "--config", "/etc/odradek/server.properties")
    made = re.sub(r"ExecStart=.* serve", "ExecStart=/opt/odradek/bin/odradek serve", made)
    assert made == "[Unit]" + shown


@pytest.mark.parametrize(
    "arguments", [["--user", "two words"], ["--data-dir", "/a b"], ["--config", "/50%/x"]]
)
def test_a_unit_that_systemd_would_misread_is_refused(arguments: list[str]) -> None:
    commands = Commands("")
    assert not commands.run("generate", "systemd-unit", *arguments, code=2)
    assert arguments[0] in commands.stderr


@pytest.mark.full
def test_promtool_accepts_the_alerts(tmp_path: Path) -> None:
    """The checker of Prometheus, promtool, has to be installed for this test."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool here, which comes with Prometheus")
    rules = tmp_path / "alerts.yml"
    rules.write_text(generated("prometheus-alerts"))
    checked = subprocess.run(
        [promtool, "check", "rules", str(rules)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout
