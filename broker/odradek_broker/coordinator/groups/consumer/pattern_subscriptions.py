"""The topics that the regular expressions of a group match (rules G-117, G-146, G-147, A-67).

A match may take long, so it is done in slices of the event loop's time before the group decides
about a heartbeat, and the heartbeat brings the result along.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import field

from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata, Visible
from odradek_broker.patterns import Pattern, PatternError, compile_pattern
from odradek_protocol.constants import JOIN_EPOCH
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: The number of topics whose visibility is decided at once, and the steps that one of them takes.
_TOPICS_AT_ONCE = 20
_TOPIC_STEPS = 500
#: The most steps of the matches for one heartbeat, about ten seconds.
MATCH_STEPS_MAX = 3_000_000_000
#: The steps that it takes to compile an expression.
_COMPILE_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Matches:
    """The topics that regular expressions match, by expression.

    `topics_version`: the version of the cluster's topics when the matching began; None: nothing was
    matched.
    """

    topics_version: int | None = None
    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)


NO_MATCHES = Matches()


def unmatched(
    group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest, topics: CoordinatorMetadata
) -> frozenset[str]:
    """The expressions to match before the group decides about a heartbeat: the member's own
    expression if the group does not have it yet, and all expressions of the group if the topics of
    the cluster have changed."""
    if request.member_epoch < JOIN_EPOCH:
        return frozenset()
    own = {request.subscribed_topic_regex} if request.subscribed_topic_regex else set()
    if group is None:
        return frozenset(own)
    if group.topics_version == topics.topics_version:
        return frozenset(own - group.patterns.keys())
    return frozenset(own | group.pattern_uses.keys())


def match(
    texts: frozenset[str],
    known: Mapping[str, frozenset[str]],
    topics: CoordinatorMetadata,
    visible: Visible,
) -> Generator[int, None, Matches]:
    """Match topics with expressions. Only topics that the user may see are matched. An expression
    that this version of the broker cannot read, but an earlier one could, matches nothing.

    After MATCH_STEPS_MAX steps, expressions of the group keep the topics that they match so far,
    `known`, and PatternError is raised for another one.
    """
    version, steps_left = topics.topics_version, MATCH_STEPS_MAX
    patterns: dict[str, Pattern] = {}
    found: dict[str, set[str]] = {text: set() for text in texts}
    for text in texts:
        try:
            patterns[text] = compile_pattern(text)
        except PatternError:
            continue
        yield _COMPILE_STEPS
    names = list(topics.topic_names()) if patterns else []
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        several = visible(frozenset(names[start : start + _TOPICS_AT_ONCE]))
        yield _TOPICS_AT_ONCE * _TOPIC_STEPS
        for name in several:
            for text, pattern in patterns.items():
                if pattern.matches(name):
                    found[text].add(name)
                steps = pattern.steps(name)
                steps_left -= steps
                yield steps
        if steps_left < 0:
            if not texts <= known.keys():
                raise PatternError(f"its match with {len(names)} topics takes too long")
            return Matches(version, {text: known[text] for text in texts})
    return Matches(version, {text: frozenset(matched) for text, matched in found.items()})
