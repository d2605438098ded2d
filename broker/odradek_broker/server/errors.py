"""Errors that keep a broker from starting, or from going on."""

from __future__ import annotations


class StartError(Exception):
    """The broker cannot start, or cannot go on; the text is one line that says why and what to
    do."""
