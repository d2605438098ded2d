"""The options that several commands of `odradek mirror` share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from odradek_cli.commands import fail
from odradek_cli.options import option
from odradek_cli.topic_patterns import pattern_of

if TYPE_CHECKING:
    from odradek_mirror.plan import Mode, TopicSelection

#: The options for bootstrap_servers, as errors name them.
SIDES = "--from or --to"
From = Annotated[str, option("--from HOST:PORT,...", "Brokers of the source.")]
To = Annotated[str, option("--to HOST:PORT,...", "Brokers of the target.")]
Topics = Annotated[list[str] | None, option("--topics PATTERN", "Only these topics; repeatable.")]
Exclude = Annotated[
    list[str] | None, option("--exclude PATTERN", "Leave out these topics; repeatable.")
]
Groups = Annotated[list[str] | None, option("--groups PATTERN", "Only these groups; repeatable.")]
ModeName = Annotated[str, option("--mode MODE", "same-offsets or exactly-once.")]
Name = Annotated[str, option("--name NAME", "The name of the mirror, if there are several.")]
FromConfig = Annotated[
    list[str] | None,
    option("--from-config KEY=VALUE|FILE", "A setting for the source; repeatable."),
]
ToConfig = Annotated[
    list[str] | None, option("--to-config KEY=VALUE|FILE", "A setting for the target; repeatable.")
]


def selection_of(
    topics: list[str] | None, exclude: list[str] | None, groups: list[str] | None
) -> TopicSelection:
    """The topics and groups that the options select."""
    from odradek_mirror.plan import TopicSelection

    return TopicSelection(_compiled(topics), _compiled(exclude), _compiled(groups))


def _compiled(words: list[str] | None) -> re.Pattern[str] | None:
    return re.compile(pattern_of(words)) if words else None


def mode_of(word: str) -> Mode | None:
    """The mode that --mode names; None if the option is missing. Ends the program for an unknown
    mode."""
    from odradek_mirror.plan import Mode

    if word not in ("", *Mode):
        fail(f"--mode {word!r} must be {' or '.join(Mode)}", 2)
    return Mode(word) if word else None
