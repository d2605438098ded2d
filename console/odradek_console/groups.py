"""Groups of all kinds: the list with state, members, topics and lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from odradek_client.admin import GroupListing
from odradek_console.answers import Column, Json, page_of
from odradek_console.asked import Asked, View
from odradek_console.group_figures import GroupFigures, figures_of, figures_of_all, list_groups

_NOTHING = GroupFigures()
_LAG_MAX = 2**63 - 1
_BY_FIGURES = ("lag", "members", "topics")


async def groups(asked: Asked) -> Json:
    """A page of the groups with their figures.

    An answer that is sorted or filtered by figures has only the groups whose figures are known yet:
    `known` is their number. The query may have `state`, `type` and `lag_min`.
    """
    query = asked.query
    listed = await list_groups(asked.session)
    state, kind = query.text("state", ""), query.text("type", "")
    rows = [
        group
        for group in listed
        if (not state or group.state == state) and (not kind or group.type == kind)
    ]
    lag_min = query.whole("lag_min", 0, most=_LAG_MAX)
    known: Mapping[str, GroupFigures] = {}
    by_figures = query.text("sort", "").removeprefix("-") in _BY_FIGURES or lag_min > 0
    answered = None
    if by_figures:
        every = await figures_of_all(asked.session, listed)
        known, answered = every.known, len(every.known)
    if lag_min:
        rows = [group for group in rows if (_of(known, group).lag or 0) >= lag_min]
    page, about = page_of(
        rows, query, _columns(known), name=lambda group: group.group_id, sort="group"
    )
    figures = await figures_of(asked.session, page)
    return {
        **about,
        "known": answered,
        "listed": len(listed),
        "states": dict(sorted(Counter(group.state or "Unknown" for group in listed).items())),
        "types": dict(sorted(Counter(group.type for group in listed).items())),
        "rows": [_row(group, _of(figures, group)) for group in page],
    }


def _of(figures: Mapping[str, GroupFigures], group: GroupListing) -> GroupFigures:
    return figures.get(group.group_id, _NOTHING)


def _columns(known: Mapping[str, GroupFigures]) -> dict[str, Column]:
    return {
        "group": Column(lambda group: group.group_id),
        "state": Column(lambda group: group.state),
        "type": Column(lambda group: group.type),
        "coordinator": Column(lambda group: group.coordinator),
        "members": Column(lambda group: _of(known, group).members),
        "topics": Column(lambda group: _of(known, group).topics),
        "lag": Column(lambda group: _of(known, group).lag),
    }


def _row(group: GroupListing, figures: GroupFigures) -> Json:
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "state": group.state,
        "coordinator": group.coordinator,
        "members": figures.members,
        "topics": figures.topics,
        "lag": figures.lag,
        "lag_ms": figures.lag_ms,
        "lag_at_least": figures.lag_at_least,
        "verdict": figures.verdict,
        "missing": figures.missing,
    }


VIEWS: dict[str, View] = {"/groups": groups}
