"""Fixtures: the command line against a running broker."""

from __future__ import annotations

import pytest

from cli_runner import Shell


@pytest.fixture
def shell(live_bootstrap: str) -> Shell:
    """Runs `odradek` with a new process for each command."""
    return Shell(live_bootstrap)
