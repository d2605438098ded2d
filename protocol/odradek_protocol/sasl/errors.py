"""Errors of SASL messages."""

from __future__ import annotations


class SaslMessageError(ValueError):
    """A message that is not valid in the mechanism. The text quotes no part of the message."""
