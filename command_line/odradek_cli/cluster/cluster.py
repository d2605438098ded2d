"""`odradek cluster`: nodes, data directories, features and APIs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.common import AsJson, BrokerOptions, cell, end_with, print_table
from odradek_cli.options import option
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin import Admin, BrokerDescription, LogDir

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def cluster(
    brokers: BrokerOptions,
    apis: Annotated[bool, option("--apis", "Show the APIs and versions of each node too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Nodes, controller, data directories and features of a cluster.

    With --json the output is one line, with sizes in bytes. `odradek config describe broker` shows
    settings.
    """
    found, errors = brokers.ask(cluster_row)
    if as_json:
        say(json.dumps(found))
    else:
        _print(found, apis)
    end_with(errors)


async def cluster_row(admin: Admin) -> tuple[dict[str, Any], list[Exception]]:
    """A description of the cluster, and the errors of nodes whose log directories the description
    lacks."""
    described = await admin.describe_cluster()
    directories, errors = await _log_dirs(admin)
    nodes = []
    features: dict[str, dict[str, Any]] = {}
    for broker in described.brokers:
        can = await admin.describe_broker(broker.node_id)
        _note_features(features, can)
        nodes.append(
            {
                "node": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.node_id == described.controller_id,
                "log_dirs": [_directory(each) for each in directories.get(broker.node_id, [])],
                "apis": {name: list(versions) for name, versions in can.apis.items()},
            }
        )
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id,
        "nodes": nodes,
        "features": features,
    }, errors


async def _log_dirs(admin: Admin) -> tuple[dict[int, list[LogDir]], list[Exception]]:
    """The log directories by node. A broker too old for DescribeLogDirs is left out without an
    error."""
    from odradek_client.errors import UnsupportedByBroker

    found = await admin.describe_log_dirs(raise_errors=False)
    errors = [e for e in found.errors.values() if not isinstance(e, UnsupportedByBroker)]
    return dict(found), [*errors]


def _note_features(features: dict[str, dict[str, Any]], can: BrokerDescription) -> None:
    for name, levels in can.supported_features.items():
        features[name] = {"level": can.finalized_features.get(name, 0), "supported": list(levels)}


def _directory(found: LogDir) -> dict[str, Any]:
    return {
        "path": found.path,
        "error": None if found.error is None else str(found.error),
        "partitions": len(found.replicas),
        "size_bytes": found.size_bytes,
        "usable_bytes": found.usable_bytes,
        "total_bytes": found.total_bytes,
    }


def _print(found: dict[str, Any], apis: bool) -> None:
    say(
        f"Cluster: {cell(found['cluster_id'])}  Controller: {cell(found['controller'])}  "
        f"Nodes: {len(found['nodes'])}"
    )
    print_table(
        ["NODE", "HOST", "PORT", "RACK", "LOG-DIR", "PARTITIONS", "SIZE", "FREE", "OF"],
        [
            [
                *(cell(node[name]) for name in ("node", "host", "port", "rack")),
                *_directory_cells(directory),
            ]
            for node in found["nodes"]
            for directory in node["log_dirs"] or [None]
        ],
        drop="RACK PORT SIZE",
        folds="PARTITIONS",  # Or an error of the directory.
    )
    if found["features"]:
        say()
        print_table(
            ["FEATURE", "LEVEL", "SUPPORTED"],
            [
                [name, str(each["level"]), _range(each["supported"])]
                for name, each in sorted(found["features"].items())
            ],
        )
    if apis:
        say()
        names = sorted({name for node in found["nodes"] for name in node["apis"]})
        print_table(
            ["API", *(f"NODE-{node['node']}" for node in found["nodes"])],
            [
                [name, *(_range(node["apis"].get(name)) for node in found["nodes"])]
                for name in names
            ],
        )


def _directory_cells(directory: dict[str, Any] | None) -> list[str]:
    if directory is None:
        return ["-"] * 5
    if directory["error"] is not None:
        return [directory["path"], f"({directory['error']})", "-", "-", "-"]
    return [
        directory["path"],
        str(directory["partitions"]),
        *(size_text(directory[name]) for name in ("size_bytes", "usable_bytes", "total_bytes")),
    ]


def _range(levels: list[int] | None) -> str:
    if levels is None:
        return "-"
    low, high = levels
    return str(low) if low == high else f"{low}-{high}"


def size_text(size_bytes: float | None) -> str:
    """A number of bytes for people: `1.5 GiB`."""
    if size_bytes is None:
        return "-"
    size = size_bytes
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
