"""`odradek generate`: files for the tools around a broker. Alerts and the dashboard use the metrics
of docs/operate/monitoring.md."""

from __future__ import annotations

import getpass
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek_cli.commands import fail
from odradek_cli.options import option
from odradek_cli.say import say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

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


# --- Alerts for Prometheus ------------------------------------------------------------------------


@dataclass(frozen=True)
class Alert:
    """An alert, which fires after `expression` (PromQL) was true for `duration`."""

    name: str
    expression: str
    duration: str
    severity: str
    summary: str
    remedy: str


ALERTS = (
    Alert(
        "OdradekDown",
        'up{job="odradek"} == 0',
        "1m",
        "critical",
        "The broker's metrics cannot be read.",
        "Check that it runs: odradek status, journalctl -u odradek.",
    ),
    Alert(
        "OdradekDiskTakesNoWrites",
        "odradek_disk_writable == 0",
        "0m",
        "critical",
        "The data directory cannot be written; Produce requests are refused.",
        "Free space on the disk, or repair it; the broker then continues by itself.",
    ),
    Alert(
        "OdradekDirectoryFailed",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "0m",
        "critical",
        "{{ $value }} data directories have failed; their partitions are offline.",
        "Check the disk, then restart the broker.",
    ),
    Alert(
        "OdradekPartitionOffline",
        "odradek_partition_offline == 1",
        "0m",
        "critical",
        "{{ $labels.topic }}-{{ $labels.partition }} is offline after a disk error.",
        "Check the disk, then restart the broker.",
    ),
    Alert(
        "OdradekDiskFullSoon",
        "predict_linear(odradek_log_directory_usable_bytes[6h], 24 * 3600) < 0",
        "30m",
        "warning",
        "At the present rate, {{ $labels.logDirectory }} is full within a day.",
        "Free space, or reduce retention.ms and retention.bytes of topics.",
    ),
    Alert(
        "OdradekDiskNearlyFull",
        "odradek_log_directory_usable_bytes / odradek_log_directory_total_bytes < 0.05",
        "5m",
        "warning",
        "{{ $labels.logDirectory }} has {{ $value | humanizePercentage }} free space.",
        "Free space, or reduce retention.ms and retention.bytes of topics.",
    ),
    Alert(
        "OdradekJournalNearlyFull",
        "odradek_journal_used_bytes / odradek_journal_max_bytes > 0.9",
        "5m",
        "warning",
        "The commit journal of {{ $labels.logDirectory }} is {{ $value | humanizePercentage }} full.",
        "The disk syncs files too slowly; measure it with odradek doctor, or raise "
        "log.journal.max.bytes.",
    ),
    Alert(
        "OdradekLoopLate",
        "histogram_quantile(0.99, sum by (le, instance) (rate(odradek_event_loop_delay_seconds_bucket[5m])))"
        " > 0.1",
        "10m",
        "warning",
        "All requests wait: the broker's event loop has delays of {{ $value | humanizeDuration }}.",
        "Check for a busy processor, for swapping, and for very large requests.",
    ),
    Alert(
        "OdradekCertificateExpires",
        "odradek_certificate_expiry_seconds < 14 * 86400",
        "1h",
        "warning",
        "The certificate of {{ $labels.listener }} expires in {{ $value | humanizeDuration }}.",
        "Replace the file with a new certificate; the broker uses it without a restart.",
    ),
    Alert(
        "OdradekFlushesSlow",
        "histogram_quantile(0.99, sum by (le, instance)"
        " (rate(odradek_flush_duration_seconds_bucket[5m]))) > 0.1",
        "15m",
        "warning",
        "One flush in a hundred takes {{ $value | humanizeDuration }}, and acknowledgements wait.",
        "Check for other programs that write to the disk; measure it with odradek doctor.",
    ),
    Alert(
        "OdradekStorageErrors",
        'rate(odradek_request_errors_total{error=~"KAFKA_STORAGE_ERROR|CORRUPT_MESSAGE"}[5m]) > 0',
        "5m",
        "critical",
        "{{ $labels.api }} is answered with {{ $labels.error }}.",
        "Check the disk and the broker's log; odradek log verify checks the files.",
    ),
    Alert(
        "OdradekConsumerGroupBehind",
        "deriv(kafka_consumergroup_lag_sum[15m]) > 0 and kafka_consumergroup_lag_sum > 10000",
        "30m",
        "warning",
        "{{ $labels.consumergroup }} has a lag of {{ $value }} records in {{ $labels.topic }}, "
        "and the lag grows.",
        "Find the cause: odradek explain group {{ $labels.consumergroup }}.",
    ),
    Alert(
        "OdradekConsumerGroupStopped",
        'kafka_consumergroup_status{status="STOPPED"} == 1',
        "5m",
        "warning",
        "{{ $labels.consumergroup }} has records to read, but has stopped committing offsets.",
        "Find the cause: odradek group describe {{ $labels.consumergroup }}.",
    ),
    Alert(
        "OdradekConsumerGroupStalled",
        'kafka_consumergroup_status{status="STALLED"} == 1',
        "5m",
        "warning",
        "{{ $labels.consumergroup }} has records to read, but commits the same offset repeatedly.",
        "Check the members' logs; odradek group describe {{ $labels.consumergroup }} names the "
        "partitions.",
    ),
    Alert(
        "OdradekConsumerGroupLate",
        "kafka_consumergroup_group_max_lag_seconds > 900",
        "10m",
        "warning",
        "{{ $labels.group }} has not read a record that is {{ $value | humanizeDuration }} old.",
        "Add members or partitions, or make the members faster; set the limit of this alert to "
        "what you need.",
    ),
    Alert(
        "OdradekRebalanceStorm",
        "changes(odradek_consumergroup_generation[10m]) > 10",
        "5m",
        "warning",
        "{{ $labels.consumergroup }} has rebalanced {{ $value }} times in ten minutes.",
        "See which members join and leave: odradek explain group {{ $labels.consumergroup }}.",
    ),
    Alert(
        "OdradekReadCommittedHeldBack",
        "odradek_partition_unstable_records > 0 and (kafka_topic_partition_current_offset"
        " - odradek_partition_unstable_records) == (kafka_topic_partition_current_offset offset 15m"
        " - odradek_partition_unstable_records offset 15m)",
        "5m",
        "warning",
        "{{ $value }} records of {{ $labels.topic }}-{{ $labels.partition }} wait for a transaction to end.",
        "Find the transaction: odradek explain partition {{ $labels.topic }}-{{ "
        "$labels.partition }}.",
    ),
    Alert(
        "OdradekShareGroupBehind",
        "deriv(kafka_sharegroup_lag_sum[15m]) > 0 and kafka_sharegroup_lag_sum > 10000",
        "30m",
        "warning",
        "{{ $labels.sharegroup }} has a lag of {{ $value }} records in {{ $labels.topic }}, "
        "and the lag grows.",
        "Find the cause: odradek explain share {{ $labels.sharegroup }}.",
    ),
    Alert(
        "OdradekShareGroupGivesUp",
        'increase(odradek_sharegroup_archived_records_total{reason="delivery_count"}[10m]) > 0',
        "0m",
        "warning",
        "{{ $labels.sharegroup }} gave up records of {{ $labels.topic }} that no member could "
        "process.",
        "Check the members' errors; a dead letter topic keeps such records.",
    ),
    Alert(
        "OdradekDeadLettersGrow",
        "increase(odradek_sharegroup_dead_letters_total[10m]) > 0",
        "0m",
        "warning",
        "{{ $labels.sharegroup }} has written {{ $value }} records of {{ $labels.topic }} to a "
        "dead letter topic.",
        "List them with odradek share dead-letters; redeliver them when the members can "
        "process them.",
    ),
    Alert(
        "OdradekDeadLettersMissing",
        "increase(odradek_sharegroup_missing_dead_letters_total[10m]) > 0",
        "0m",
        "critical",
        "{{ $labels.sharegroup }} gave up records of {{ $labels.topic }} without a dead letter.",
        "The broker's log has the reason; check the dead letter topic.",
    ),
    Alert(
        "OdradekShareGroupLocksUsedUp",
        'increase(odradek_sharegroup_empty_fetches_total{reason="record_locks"}[10m]) > 0',
        "30m",
        "warning",
        "Members of {{ $labels.sharegroup }} have the maximum number of records of {{ "
        "$labels.topic }} in flight.",
        "Add members, make them faster, or raise share.partition.max.record.locks.",
    ),
    Alert(
        "OdradekMirrorSilent",
        "odradek_mirror_told_seconds > 120",
        "5m",
        "warning",
        "The mirror of {{ $labels.topic }} has sent no report for {{ $value | humanizeDuration }}.",
        "Check that odradek mirror runs and reaches its source; odradek explain mirror {{ "
        "$labels.topic }} shows the lag.",
    ),
    Alert(
        "OdradekTransactionHangs",
        "odradek_transaction_overdue_seconds > 60",
        "1m",
        "warning",
        "The transaction of {{ $labels.transactional_id }} is {{ $value | humanizeDuration }} beyond its timeout;"
        " read_committed consumers wait.",
        "See which partitions it blocks: odradek explain txn {{ $labels.transactional_id }}.",
    ),
    Alert(
        "OdradekPreparedTransactionWaits",
        'odradek_transaction_open_seconds{timeout="none"} > 3600',
        "5m",
        "warning",
        "{{ $labels.transactional_id }} has a prepared transaction that has not been completed.",
        "Let its program complete it, or abort it: odradek txn --help.",
    ),
    Alert(
        "OdradekUncleanablePartitions",
        "kafka_log_logcleanermanager_uncleanable_partitions_count > 0",
        "5m",
        "warning",
        "{{ $value }} partitions are not compacted because of damaged batches.",
        "odradek log verify names them.",
    ),
)


@app.command("prometheus-alerts")
def prometheus_alerts() -> None:
    """Print rules of alerts for Prometheus (`rule_files`).

    The job of the broker in scrape_configs must be called odradek.
    """
    say(*alert_rules().splitlines())


def alert_rules() -> str:
    """The rules as YAML."""
    lines = ["groups:", "  - name: odradek", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_quoted(alert.expression)}",
            f"        for: {alert.duration}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_quoted(alert.summary)}",
            f"          description: {_quoted(alert.remedy)}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """The text as a string of JSON, which is also valid YAML."""
    return json.dumps(text, ensure_ascii=False)


# --- A dashboard for Grafana ----------------------------------------------------------------------

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HERE = 'instance=~"$instance"'
_WIDTH, _PANEL_WIDTH, _PANEL_HEIGHT = 24, 8, 7
_PLUGIN_SCHEMA = 39


@dataclass(frozen=True)
class Panel:
    """A chart over time. `lines`: expressions in PromQL, each with its legend. `unit`: a unit of
    Grafana."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DashboardRow:
    """A row of the dashboard, with its panels."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str, labels: str = "") -> str:
    inside = ",".join(filter(None, (_HERE, labels)))
    return f"sum by ({by}) (rate({metric}{{{inside}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str = "", labels: str = "") -> str:
    groups = ", ".join(filter(None, ("le", by)))
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', groups, labels)})"


def _now(metric: str, by: str = "", labels: str = "") -> str:
    inside = ",".join(filter(None, (_HERE, labels)))
    found = f"{metric}{{{inside}}}"
    return f"sum by ({by}) ({found})" if by else found


SECTIONS = (
    DashboardRow(
        "Broker",
        (
            Panel(
                "Bytes",
                "Bps",
                (
                    (_rate("odradek_appended_bytes_total", "instance"), "produced"),
                    (_rate("odradek_fetched_bytes_total", "instance"), "fetched"),
                ),
            ),
            Panel("Requests", "reqps", ((_rate("odradek_requests_total", "api"), "{{api}}"),)),
            Panel(
                "Errors in answers",
                "cps",
                ((_rate("odradek_request_errors_total", "api, error"), "{{api}} {{error}}"),),
            ),
            Panel(
                "Produce, time from request to response",
                "s",
                tuple(
                    (
                        _quantile(share, "odradek_request_duration_seconds", "", 'api="Produce"'),
                        f"p{share * 100:g}",
                    )
                    for share in (0.5, 0.99)
                ),
            ),
            Panel(
                "Flushes to disk",
                "s",
                tuple(
                    (_quantile(share, "odradek_flush_duration_seconds"), f"p{share * 100:g}")
                    for share in (0.5, 0.99)
                ),
            ),
            Panel(
                "Delay of the event loop",
                "s",
                tuple(
                    (_quantile(share, "odradek_event_loop_delay_seconds"), f"p{share * 100:g}")
                    for share in (0.5, 0.99)
                ),
            ),
            Panel(
                "Connections",
                "none",
                (
                    (_now("odradek_connections"), "open"),
                    (_rate("odradek_connections_refused_total", "instance"), "refused a second"),
                ),
            ),
        ),
    ),
    DashboardRow(
        "Disk",
        (
            Panel(
                "Free space",
                "bytes",
                ((_now("odradek_log_directory_usable_bytes"), "{{logDirectory}}"),),
            ),
            Panel(
                "Size of topics",
                "bytes",
                ((f"topk(10, {_now('odradek_partition_log_bytes', 'topic')})", "{{topic}}"),),
            ),
            Panel(
                "Commit journal",
                "percentunit",
                (
                    (
                        f"{_now('odradek_journal_used_bytes')} / {_now('odradek_journal_max_bytes')}",
                        "{{logDirectory}}",
                    ),
                ),
            ),
            Panel(
                "Writes to the journal",
                "s",
                tuple(
                    (
                        _quantile(share, "odradek_journal_write_duration_seconds"),
                        f"p{share * 100:g}",
                    )
                    for share in (0.5, 0.99)
                ),
            ),
            Panel(
                "Bytes to be compacted",
                "bytes",
                ((_now("odradek_compaction_dirty_bytes"), "{{instance}}"),),
            ),
            Panel(
                "Problems",
                "none",
                (
                    (f"1 - {_now('odradek_disk_writable')}", "no writes"),
                    (_now("odradek_partition_offline", "instance"), "partitions offline"),
                    (_now("kafka_log_logmanager_offlinelogdirectorycount"), "directories failed"),
                ),
            ),
        ),
    ),
    DashboardRow(
        "Groups",
        (
            Panel(
                "Lag",
                "short",
                (
                    (
                        f"topk(10, {_now('kafka_consumergroup_lag_sum', 'consumergroup, topic')})",
                        "{{consumergroup}} {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Oldest unread record",
                "s",
                (
                    (
                        f"topk(10, {_now('kafka_consumergroup_group_max_lag_seconds')})",
                        "{{group}}",
                    ),
                ),
            ),
            Panel(
                "Status of groups",
                "none",
                ((_now("kafka_consumergroup_status", "status"), "{{status}}"),),
            ),
            Panel(
                "Rebalances",
                "none",
                (
                    (
                        f"changes({_now('odradek_consumergroup_generation')}[10m])",
                        "{{consumergroup}}",
                    ),
                ),
            ),
            Panel(
                "Members",
                "none",
                ((_now("kafka_consumergroup_members"), "{{consumergroup}}"),),
            ),
            Panel(
                "States",
                "none",
                ((_now("odradek_consumergroup_state", "state"), "{{state}}"),),
            ),
        ),
    ),
    DashboardRow(
        "Share groups",
        (
            Panel(
                "Lag of share groups",
                "short",
                ((_now("kafka_sharegroup_lag_sum"), "{{sharegroup}} {{topic}}"),),
            ),
            Panel(
                "Records in flight",
                "short",
                (
                    (
                        _now("odradek_sharegroup_records_in_flight", "sharegroup, state"),
                        "{{sharegroup}} {{state}}",
                    ),
                ),
            ),
            Panel(
                "Records given up",
                "cps",
                (
                    (
                        _rate("odradek_sharegroup_archived_records_total", "sharegroup, reason"),
                        "{{sharegroup}} {{reason}}",
                    ),
                ),
            ),
        ),
    ),
    DashboardRow(
        "Transactions and quotas",
        (
            Panel(
                "Open transactions",
                "s",
                ((_now("odradek_transaction_open_seconds"), "{{transactional_id}}"),),
            ),
            Panel(
                "Records that read_committed consumers wait for",
                "short",
                (
                    (
                        f"{_now('odradek_partition_unstable_records')} > 0",
                        "{{topic}}-{{partition}}",
                    ),
                ),
            ),
            Panel(
                "Requests throttled by quotas",
                "reqps",
                ((_rate("odradek_throttled_requests_total", "quota"), "{{quota}}"),),
            ),
        ),
    ),
)


@app.command("grafana-dashboard")
def grafana_dashboard() -> None:
    """Print a dashboard for Grafana, to import as JSON.

    Grafana asks for a Prometheus data source, and for the instances to show.
    """
    say(*json.dumps(dashboard(), indent=2).splitlines())


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    top = 0
    for section in SECTIONS:
        panels.append(
            {
                "type": "row",
                "title": section.title,
                "collapsed": False,
                "panels": [],
                "id": len(panels) + 1,
                "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1},
            }
        )
        top += 1
        for number, panel in enumerate(section.panels):
            row, column = divmod(number, _WIDTH // _PANEL_WIDTH)
            position = {
                "x": column * _PANEL_WIDTH,
                "y": top + row * _PANEL_HEIGHT,
                "w": _PANEL_WIDTH,
                "h": _PANEL_HEIGHT,
            }
            panels.append({**_chart(panel), "id": len(panels) + 1, "gridPos": position})
        top += -(-len(section.panels) * _PANEL_WIDTH // _WIDTH) * _PANEL_HEIGHT
    return {
        "title": "Odradek",
        "uid": "odradek",
        "tags": ["kafka", "odradek"],
        "schemaVersion": _PLUGIN_SCHEMA,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _chart(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.lines)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            "name": "instance",
            "type": "query",
            "label": "Broker",
            "datasource": _SOURCE,
            "query": "label_values(odradek_connections, instance)",
            "includeAll": True,
            "multi": True,
            "refresh": 2,
            "current": {"text": "All", "value": "$__all"},
        },
    ]
