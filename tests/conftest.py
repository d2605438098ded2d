"""What every test may lean on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import record_codecs
from odradek_protocol.records import native

# Spark starts its workers with the `python3` of the PATH unless told which one has our packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# The same examples on every run: a failure is a property of the code, not of the day. More of them
# with HYPOTHESIS_PROFILE=thorough.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def kafka_messages() -> Path:
    """Kafka's own message definitions, kept beside the checkout where they are kept at all."""
    folder = REPOSITORY.parent / "shared" / "reference" / "kafka-messages"
    if not folder.is_dir():
        pytest.skip("Kafka's message definitions are not beside this checkout")
    return folder


@pytest.fixture(scope="module", params=record_codecs.TWINS)
def codec_twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a module's tests with the compiled record codec, and with the pure one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "CODEC", record_codecs.twin(request.param))
        yield request.param
