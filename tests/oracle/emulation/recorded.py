"""The releases whose answers are recorded, and the recordings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.oracle.play import Answers

#: The recorded release of each profile.
RELEASES: Mapping[str, str] = {"kafka-3.9": "3.9.1", "kafka-4.0": "4.0.1"}


def path_of(profile: str) -> Path:
    return Path(__file__).with_name(f"{profile}.json")


def load(profile: str) -> dict[str, Answers]:
    """The recorded answers by scenario."""
    answers: dict[str, Answers] = json.loads(path_of(profile).read_text("utf-8"))
    return answers
