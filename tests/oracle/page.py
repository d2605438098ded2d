"""Generates the sections of docs/compatibility.md that come from data of the tests.

A section is between two comments with its name; the text around it is written by hand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from tests.interop.matrix import results
from tests.interop.matrix.table import ROWS
from tests.oracle import differences, tested_clients
from tests.oracle.batches import differences as batch_differences
from tests.oracle.rights import differences as right_differences

from odradek_protocol.keys import APIS, Api, ApiKey

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"


def _rows(*rows: tuple[str, ...]) -> Iterator[str]:
    return (f"| {' | '.join(cells)} |" for cells in rows)


# --- Sections -------------------------------------------------------------------------------------


def clients() -> Iterator[str]:
    """Yield the table of the clients that the default suite tests, with the tested version of
    each."""
    pinned = dict(
        re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    )
    yield from _rows(("client", "version tested", "what"))
    yield "|---|---|---|"
    for client in tested_clients.CLIENTS:
        version = pinned[client.package] if client.package else "this one"
        yield from _rows((client.name, version, client.what))


def interop_runs() -> Iterator[str]:
    """The programs that were run with Apache Kafka and with our broker."""
    yield from _rows(("client", "what", "Kafka", "Odradek"))
    yield "|---|---|--:|--:|"
    before = ""
    for run in tested_clients.RUNS:
        client = "" if run.client == before else run.client
        before = run.client
        yield re.sub(" +", " ", f"| {client} | {run.what} | {run.kafka} | {run.ours} |")


def matrix() -> Iterator[str]:
    """Foreign tools, each with its results with both brokers."""
    return results.table(ROWS)


def apis() -> Iterator[str]:
    """The table of APIs."""
    yield from _rows(("key", "API", "versions", "flexible from"))
    yield "|--:|---|---|--:|"
    for api in APIS.values():
        flexible = next(iter(api.request.flexible), "never")
        versions = f"{api.versions.first}-{api.versions.last}"
        yield from _rows((str(int(api.key)), api.name, versions, str(flexible)))


def _said(api: Api, label: str) -> str | None:
    """The paragraph after a label in the docstring of an API's schema."""
    text = inspect.cleandoc(import_module(api.request.__module__).__doc__ or "")
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(f"{label}: "):
            return " ".join(paragraph.removeprefix(f"{label}: ").split())
    return None


def _of_each(label: str) -> Iterator[str]:
    for api in APIS.values():
        said = _said(api, label)
        if said is not None:
            yield f"- {api.name}: {said}"


def notes() -> Iterator[str]:
    """Notes on versions and answers that may surprise users."""
    return _of_each("Of note")


def left_out() -> Iterator[str]:
    """Features that the served APIs lack, and APIs that are not served."""
    yield from _of_each("Left out")
    names = ["".join(map(str.capitalize, key.name.split("_"))) for key in ApiKey if key not in APIS]
    yield f"- Not served at all: {', '.join(names)}."


def batches() -> Iterator[str]:
    """Batches that our broker refuses and Kafka accepts."""
    return (f"- {row.reason}" for row in batch_differences.DIFFERENCES)


def answers() -> Iterator[str]:
    """Deliberate differences of answers: one item for each reason."""
    reasons = dict.fromkeys(row.reason for row in differences.DIFFERENCES)
    reasons |= dict.fromkeys(row.reason for row in right_differences.DIFFERENCES)
    return (f"- {reason}" for reason in reasons)


SECTIONS: Mapping[str, Callable[[], Iterator[str]]] = {
    "clients": clients,
    "runs": interop_runs,
    "matrix": matrix,
    "apis": apis,
    "notes": notes,
    "left out": left_out,
    "batches": batches,
    "differences": answers,
}


def page(text: str) -> str:
    """Generate the sections of the page again. Raises ValueError if a section is missing."""
    for name, lines in SECTIONS.items():
        begin = f"<!-- {name}, written by: python -m tests.oracle page -->\n"
        end = f"<!-- end of {name} -->\n"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{PAGE.name} needs the lines {begin!r} and {end!r}")
        text = f"{before}{begin}" + "".join(f"{line}\n" for line in lines()) + f"{end}{after}"
    return text
