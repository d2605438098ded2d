"""The version of this software."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from subprocess import run

from odradek_protocol.version import VERSION


def test_the_version_is_that_of_the_distribution() -> None:
    assert version("odradek") == VERSION


def test_n07_brokers_accept_the_version_in_a_handshake() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9.-]+", VERSION)


def test_n57_no_request_searches_the_installed_distributions() -> None:
    """The search takes 20 ms."""
    program = """
import sys
from odradek_broker.metrics.exposition import Exposition
from odradek_broker.handlers import describe_broker
from odradek_client.network.handshake import versions_request
versions_request()
from odradek import __version__
assert __version__ and "importlib.metadata" not in sys.modules
"""
    run([sys.executable, "-c", program], check=True)
