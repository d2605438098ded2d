"""Compares our broker's answers with Kafka's recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.oracle import recordings
from tests.oracle.differences import DIFFERENCES, Difference, unexplained
from tests.oracle.play import Answers
from tests.oracle.scenarios import chosen

from kafka_cluster import SHIPPED_SETTINGS

#: Settings in Kafka's shipped server.properties that our broker does not have.
_KRAFT_ONLY = (
    *("process.roles", "controller.listener.names", "listener.security.protocol.map"),
    *("inter.broker.listener.name", "num.network.threads", "num.io.threads"),
    *("num.recovery.threads.per.data.dir", "socket.send.buffer.bytes"),
    "socket.receive.buffer.bytes",
)
OUR_SETTINGS = [
    *(f"{key}={value}" for key, value in SHIPPED_SETTINGS.items() if key not in _KRAFT_ONLY),
    "node.id=1",
    "log.durability=page-cache",
]


@dataclass
class Verdict:
    """The result of a comparison. `lines`: one for each difference without a reason, and one for
    each row that explains no difference."""

    runs: int = 0
    explained_runs: int = 0
    unexplained_runs: int = 0
    lines: list[str] = field(default_factory=list)


def compare(
    played: Mapping[tuple[str, int], Answers | str],
    pattern: str = "*",
    with_reasons: bool = True,
    newest_only: bool = False,
) -> Verdict:
    """Compare all runs of the scenarios that match the pattern with their recordings.

    `with_reasons`: accept the differences in `differences.py`; otherwise no difference is accepted.
    `newest_only`: compare only the newest version of each scenario; unused rows are then accepted.
    """
    verdict, used = Verdict(), set[Difference]()
    for module, scenario in chosen(pattern):
        recorded = recordings.load(module, scenario.name)
        for version in scenario.runs()[-1:] if newest_only else scenario.runs():
            verdict.runs += 1
            ours = played[scenario.name, version]
            name = f"{scenario.name}-v{version}"
            if version not in recorded:
                lines, rows = [f"{name} is not recorded"], set[Difference]()
            elif isinstance(ours, str):
                lines, rows = [f"{name} broke: {ours}"], set()
            else:
                lines, rows = unexplained(
                    scenario.name, version, recorded[version], ours, with_reasons
                )
            verdict.lines += lines
            verdict.unexplained_runs += bool(lines)
            verdict.explained_runs += bool(rows)
            used |= rows
    if pattern == "*" and with_reasons and not newest_only:
        idle = [row for row in DIFFERENCES if row not in used]
        verdict.lines += [f"no run needs the difference {r.scenario!r} {r.paths}" for r in idle]
    return verdict
