"""Every API gives users with and without rights the answers of Apache Kafka, with the same
effects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.oracle.differences import differing
from tests.oracle.play import Answers
from tests.oracle.rights import recorded
from tests.oracle.rights.cases import CASES
from tests.oracle.rights.cells import cells
from tests.oracle.rights.differences import DIFFERENCES, Row
from tests.oracle.rights.secured_broker import play_on_ours

from odradek_protocol.keys import APIS, PRIVATE_KEYS, ApiKey

#: APIs that clients may call before they authenticate.
_FOR_EVERYBODY = {
    *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    *(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
}


#: These tests take a minute of processor time.
pytestmark = pytest.mark.full

_CELLS = [cell for case in CASES for cell in cells(case)]
_APIS = sorted({case.api for case in CASES})


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, int], Answers | str]:
    """The answers of our broker in all turns; the broker has the same authorizer as Apache Kafka
    had."""
    return play_on_ours(tmp_path_factory.mktemp("rights"), _CELLS)


@pytest.mark.parametrize("api", _APIS)
def test_answers_to_users_are_those_of_kafka(
    api: str, played: Mapping[tuple[str, int], Answers | str]
) -> None:
    expected = recorded.load(api)
    lines = []
    for cell in _CELLS:
        if cell.case.api != api:
            continue
        for version in cell.scenario.runs():
            name = f"{cell.name}-v{version}"
            ours = played[cell.name, version]
            kafkas = expected.get((cell.name, version))
            if kafkas is None:
                lines.append(f"{name} is not recorded")
            elif isinstance(ours, str):
                lines.append(f"{name} broke: {ours}")
            else:
                lines += [
                    f"{name} {path}: Kafka {was!r}, ours {now!r}"
                    for path, was, now in differing(kafkas, ours)
                    if not any(row.holds_for(cell.name, path) for row in DIFFERENCES)
                ]
    assert not lines, "\n".join(lines)


@pytest.mark.full
def test_each_row_of_differences_is_needed(
    played: Mapping[tuple[str, int], Answers | str],
) -> None:
    used: set[Row] = set()
    for api in _APIS:
        for (name, version), kafkas in recorded.load(api).items():
            ours = played[name, version]
            assert not isinstance(ours, str)
            for path, _, _ in differing(kafkas, ours):
                used |= {row for row in DIFFERENCES if row.holds_for(name, path)}
    assert set(DIFFERENCES) == used


def test_every_api_has_a_case() -> None:
    served = {api.name for key, api in APIS.items() if key not in PRIVATE_KEYS | _FOR_EVERYBODY}
    assert served == set(_APIS)


def test_every_recorded_answer_has_a_case() -> None:
    assert {path.stem for path in Path(recorded.FOLDER).glob("*.json")} == set(_APIS)
    known = {(cell.name, version) for cell in _CELLS for version in cell.scenario.runs()}
    assert {turn for api in _APIS for turn in recorded.load(api)} == known
