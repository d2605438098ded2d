"""The refusals of requests about groups: error codes with readable messages."""

from __future__ import annotations

from odradek_protocol.errors import CodedError, ErrorCode

_E = ErrorCode


class Refusal(CodedError):
    """The error of a request that changes no state. `message` is the readable text of the
    answer.
    """


def invalid_request(message: str) -> Refusal:
    """The refusal of a request that no member may send."""
    return Refusal(_E.INVALID_REQUEST, message)


def check_not_empty(*fields: tuple[str, str | None]) -> None:
    """Refuse an empty text. `fields`: (name, text), with None for a field that is absent."""
    for name, text in fields:
        if text is not None and not text.strip():
            raise invalid_request(f"{name} can't be empty.")


def missing_group(group_id: str, group_type: str, *, exists: bool) -> str:
    """The message about an id without a group of this type; `exists`: True if a group of another
    type has the id."""
    if exists:
        return f"Group {group_id} is not a {group_type} group."
    return f"Group {group_id} not found."


def group_full(group_type: str, size_max: int) -> Refusal:
    """The refusal of a new member of a full group (G-112, H-11)."""
    return Refusal(
        _E.GROUP_MAX_SIZE_REACHED,
        f"The {group_type} group has reached its maximum capacity of {size_max} members.",
    )


def unknown_member(member_id: str, group_id: str) -> Refusal:
    """The refusal of a member that the group does not have (G-113, H-12, J-13)."""
    return Refusal(_E.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def fenced_epoch(group_type: str, known: int, epoch: int, detail: str = "") -> Refusal:
    """The refusal of a member that sends another epoch than its present one (G-114, H-13, J-14)."""
    compared = "greater" if epoch > known else "smaller"
    return Refusal(
        _E.FENCED_MEMBER_EPOCH,
        f"The {group_type} group member has a {compared} member epoch ({epoch}) than the one known"
        f" by the group coordinator ({known}){detail}. The member must abandon all its partitions"
        " and rejoin.",
    )
