"""The table of subcommands, and the end of a subcommand with an error.

To add a subcommand, write a module in the folder of its kind, with either a plain function in
typer's style or a `typer.Typer` for a group, and add its row to `COMMANDS`. Conventions: data on
stdout, everything else on stderr, `fail` for errors that a user can mend.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from odradek_protocol.visible import visible


@dataclass(frozen=True)
class CommandRow:
    """A subcommand: `target` is "module:attribute", a function or a `typer.Typer`."""

    name: str
    target: str
    help: str
    panel: str


BROKER = "Broker"
CLUSTER = "Cluster"
DATA = "Topics and records"
TOOLS = "Tools"

COMMANDS: tuple[CommandRow, ...] = (
    CommandRow(
        "serve", "odradek_cli.broker.broker:serve", "Run a broker in the foreground.", BROKER
    ),
    CommandRow(
        "start", "odradek_cli.broker.broker:start", "Run a broker in the background.", BROKER
    ),
    CommandRow("stop", "odradek_cli.broker.broker:stop", "Stop the background broker.", BROKER),
    CommandRow(
        "status", "odradek_cli.broker.broker:status", "Say whether a broker is running.", BROKER
    ),
    CommandRow(
        "doctor", "odradek_cli.broker.doctor:doctor", "Find problems, and say what to do.", BROKER
    ),
    CommandRow(
        "top", "odradek_cli.cluster.top:top", "Watch rates, lag, transactions, live.", CLUSTER
    ),
    CommandRow(
        "cluster", "odradek_cli.cluster.cluster:cluster", "Show nodes, disks, features.", CLUSTER
    ),
    CommandRow(
        "console", "odradek_console.command:console", "Show everything in the browser.", CLUSTER
    ),
    CommandRow(
        "config", "odradek_cli.cluster.configs:app", "Describe, set, delete settings.", CLUSTER
    ),
    CommandRow(
        "user", "odradek_cli.cluster.users:app", "List, create, alter, delete SCRAM users.", CLUSTER
    ),
    CommandRow(
        "token",
        "odradek_cli.cluster.tokens:app",
        "Create, describe, renew, expire delegation tokens.",
        CLUSTER,
    ),
    CommandRow(
        "acl", "odradek_cli.cluster.acls:app", "List, add, delete ACLs: who may do what.", CLUSTER
    ),
    CommandRow("quota", "odradek_cli.cluster.quotas:app", "Describe, set, delete quotas.", CLUSTER),
    CommandRow(
        "client-metrics",
        "odradek_cli.cluster.client_metrics:app",
        "Subscribe to metrics of clients, and show them.",
        CLUSTER,
    ),
    CommandRow(
        "topic", "odradek_cli.topics.topics:app", "List, create, alter, trim, delete topics.", DATA
    ),
    CommandRow("produce", "odradek_cli.records.produce:produce", "Write records from stdin.", DATA),
    CommandRow("consume", "odradek_cli.records.consume:consume", "Write records to stdout.", DATA),
    CommandRow(
        "group",
        "odradek_cli.groups.groups:app",
        "List, describe, reset, delete consumer groups.",
        DATA,
    ),
    CommandRow(
        "share",
        "odradek_cli.groups.share:app",
        "List, describe, consume, reset, delete share groups.",
        DATA,
    ),
    CommandRow(
        "txn", "odradek_cli.cluster.transactions:app", "List, describe, abort transactions.", DATA
    ),
    CommandRow(
        "mirror",
        "odradek_mirror.commands.mirror:app",
        "Copy topics and groups to another cluster.",
        DATA,
    ),
    CommandRow(
        "explain", "odradek_cli.cluster.explain:app", "Explain what happened, in words.", DATA
    ),
    CommandRow(
        "mcp",
        "odradek_cli.tools.mcp_server:mcp",
        "Answer a language model's questions, read-only.",
        TOOLS,
    ),
    CommandRow("log", "odradek_log_tools.commands:app", "Dump and verify files of a log.", TOOLS),
    CommandRow(
        "faults", "odradek_cli.tools.faults:app", "Inject faults into a broker under test.", TOOLS
    ),
    CommandRow(
        "generate",
        "odradek_cli.tools.generate:app",
        "Print systemd units, alerts, dashboards.",
        TOOLS,
    ),
    CommandRow("bench", "odradek_cli.tools.bench:bench", "Measure a broker and a client.", TOOLS),
    CommandRow("demo", "odradek_demo.demo:demo", "Show all features with real data.", TOOLS),
)


#: Options whose value can be omitted, with the default value.
_VALUES = {"--console": "127.0.0.1:8080"}


def with_value(words: Sequence[str]) -> list[str]:
    """The words of a command line, with omitted values filled in."""
    following = [*words[1:], "-"]
    return [
        f"{word}={_VALUES[word]}" if word in _VALUES and after.startswith("-") else word
        for word, after in zip(words, following, strict=False)
    ]


def fail(message: str, exit_code: int = 1) -> NoReturn:
    """End the program with one line on stderr: the problem and its remedy."""
    print("odradek:", visible(message, keep="\n"), file=sys.stderr)
    raise SystemExit(exit_code)
