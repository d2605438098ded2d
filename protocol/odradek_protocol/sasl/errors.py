"""Errors of SASL messages."""

from __future__ import annotations


class SaslMessageError(ValueError):
    """A message that the mechanism does not know. The text holds nothing of its content."""
