"""Format the mutants, with the seeds that caught them, as lines for a terminal and as a table in a
document.

`python -m tests.sim --mutants --table FILE` runs the mutants and replaces the table in a document,
between the lines `<!-- mutants -->` and `<!-- end of mutants -->`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.sim.mutants import MUTANTS, SEEDS_MAX, Catch, catch
from tests.sim.mutants.base import Mutant
from tests.sim.workers import in_workers

BEGIN = "<!-- mutants -->"
END = "<!-- end of mutants -->"
#: The length of a checker's message in the document.
_SAID_CHARS = 100


def report_mutants(mutants: Sequence[Mutant]) -> Iterator[tuple[Catch, str]]:
    """Run the mutants on all cores. Yields each result, with its line for the terminal."""
    by_name = {mutant.name: mutant for mutant in mutants}
    for name, found in in_workers(catch, by_name):
        yield found, _line(by_name[name], found)


def _line(mutant: Mutant, found: Catch) -> str:
    if found.seed is None:
        return f"{mutant.name:<62} NOT CAUGHT by {SEEDS_MAX} seeds of {mutant.workload}"
    seed = f"seed {found.seed}"
    if found.seed != mutant.seed:
        seed += f" (not {mutant.seed} any more)"
    return f"{mutant.name:<62} {mutant.workload}, {seed}: {found.violation}"


def table(catches: Iterable[Catch]) -> str:
    """The table in Markdown."""
    lines = ["| defect | workload | seed | caught by |", "|---|---|---|---|"]
    for each in catches:
        seed = "not caught" if each.seed is None else str(each.seed)
        said = each.violation.replace("|", "\\|")
        if len(said) > _SAID_CHARS:
            said = said[:_SAID_CHARS].rpartition(" ")[0] + " ..."
        lines.append(f"| {each.name} | `{MUTANTS[each.name].workload}` | {seed} | {said} |")
    return "\n".join(lines)


def write_table(document: Path, catches: Iterable[Catch]) -> None:
    """Replace the table between its two marker lines. Raises ValueError if they are missing."""
    text = document.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} lacks the lines {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n\n{table(catches)}\n\n{END}{after}", encoding="utf-8")
