"""Public names of `odradek_testkit.security`."""

from odradek_testkit.security import (
    MECHANISMS,
    CryptographyMissing,
    LoginOptions,
    Secured,
    Security,
    SecurityOptions,
)

__all__ = [
    "MECHANISMS",
    "CryptographyMissing",
    "LoginOptions",
    "Secured",
    "Security",
    "SecurityOptions",
]
