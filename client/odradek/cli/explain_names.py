"""Short names of the members of a group, for sentences that people read.

The id of a member is its client id with 36 or 22 random characters, and a sentence names up to three.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Details of an event or state that are the id of a member.
_MEMBERS = ("member", "fenced_member")
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
#: The id that a classic member has: whoever is named in a list has one too.
_CLASSIC_ID = re.compile(rf"[^\s,]*{_UUID}")
_UUID_END = re.compile(rf"-?{_UUID}$")
_SHORT = 12
_NAME_MAX = 24


def _visible(text: str) -> str:
    from odradek_broker.explain.sentences import visible

    return visible(text)


class MemberNames:
    """Gives each member the client id as its name, and `#2`, `#3` to others with the same one.

    A name stays: it depends only on the members that were seen before.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._clients: dict[str, str] = {}
        self._taken: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def see(self, text: str, details: Mapping[str, str]) -> list[str]:
        """Take note of the members of an event or state; the ids that were not known."""
        found = [_visible(details[key]) for key in _MEMBERS if len(details.get(key, "")) > _SHORT]
        client = _visible(details.get("client", ""))
        if client and "member" in details:
            self._clients.setdefault(_visible(details["member"]), client)
        found += _CLASSIC_ID.findall(text)
        new = [each for each in dict.fromkeys(found) if each not in self._names]
        for member_id in new:
            self._names[member_id] = self._new_name(member_id)
        if new:
            longest_first = sorted(self._names, key=len, reverse=True)
            ids = "|".join(map(re.escape, longest_first))
            self._pattern = re.compile(rf"(?<![\w-])(?:{ids})(?![\w-])")
        return new

    def short(self, text: str, details: Mapping[str, str]) -> str:
        """The sentence with names in place of ids, and without the client that the name stands for."""
        if self._pattern is None:
            return text
        client = _visible(details.get("client", ""))
        if client and _visible(details.get("member", "")) in self._names:
            text = text.replace(f" of {client}", "", 1)
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def legend(self, member_ids: list[str]) -> list[tuple[str, str]]:
        """(name, what it stands for) of each."""
        return [(self._names[each], self._meaning(each)) for each in member_ids]

    def _meaning(self, member_id: str) -> str:
        client_id, host = self._client(member_id)
        if not host:
            return member_id
        # A classic member's id begins with its client id.
        named = "" if member_id.startswith(f"{client_id}-") else f", client {client_id}"
        return f"{member_id}{named} at {host}"

    def _client(self, member_id: str) -> tuple[str, str]:
        """(client id, host); empty if they are not known."""
        client_id, _, host = self._clients.get(member_id, "").rpartition(" at ")
        return client_id.removeprefix("client "), host

    def _new_name(self, member_id: str) -> str:
        client, _ = self._client(member_id)
        if not client or client == "(no id)":
            client = _UUID_END.sub("", member_id) if _UUID_END.search(member_id) else ""
        base = "".join("_" if each.isspace() else each for each in client) or "member"
        if len(base) > _NAME_MAX:
            base = base[: _NAME_MAX - 1] + "…"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}#{number}"
        self._taken.add(name)
        return name
