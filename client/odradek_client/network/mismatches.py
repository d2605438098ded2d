"""The errors for a listener with another security protocol than the client's, with the cause and
the setting to change."""

from __future__ import annotations

from collections.abc import Sequence


def speaks_tls(*, sasl: bool) -> str:
    """The error of a plaintext client at a listener with TLS. `sasl`: the client authenticates."""
    protocol, plain = ("SASL_SSL", "SASL_PLAINTEXT") if sasl else ("SSL", "PLAINTEXT")
    return f"it speaks TLS there: set security.protocol={protocol}, or use a {plain} listener"


def speaks_plaintext(*, sasl: bool) -> str:
    """The error of a client with TLS at a plaintext listener."""
    protocol, plain = ("SASL_SSL", "SASL_PLAINTEXT") if sasl else ("SSL", "PLAINTEXT")
    return (
        f"it does not use TLS there: that is a {plain} listener; use one of {protocol}, or set"
        f" security.protocol={plain}"
    )


def wants_sasl(mechanisms: Sequence[str], *, tls: bool) -> str:
    """The error of a client without authentication at a listener with SASL."""
    return (
        "it requires authentication by SASL there: set"
        f" security.protocol={'SASL_SSL' if tls else 'SASL_PLAINTEXT'} and sasl.mechanism"
        f" ({names(mechanisms)})"
    )


def wants_no_sasl(*, tls: bool) -> str:
    """The error of a client with authentication at a listener without SASL."""
    return (
        "it takes no authentication by SASL there: set"
        f" security.protocol={'SSL' if tls else 'PLAINTEXT'}, or use a listener of SASL"
    )


def names(mechanisms: Sequence[str]) -> str:
    """The part of a message that lists the SASL mechanisms of a broker."""
    return f"the broker has {', '.join(mechanisms)}" if mechanisms else "the broker has none"
