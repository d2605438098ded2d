"""franz-go's share consumer, and franz-go's own tests of it, with our broker and with Apache Kafka.

Go and its module proxy are required.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreign_programs import converse, run
from killable import Killable, killable

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).parent / "others" / "go_clients"
#: A release whose share consumer requires version 2 of ShareFetch.
FRANZ_GO = "github.com/twmb/franz-go@v1.22.3"
OWN_TESTS_DEADLINE_S = 400
OWN_TESTS = (
    "TestShareGroupETL",
    "TestShareGroupAckOnClose",
    "TestShareGroupOffsetsAdmin",
    "TestConsumeRegexShareSkipsInternal",
)
SETTINGS = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
}
#: The output that the program must have with our broker and with Apache Kafka.
OUTCOMES = [
    "released twice: ok [1,2,3]",
    "always released: ok [1,2,3,4,5]",
    "rejected: ok [1]",
    "renewed and accepted: ok [1]",
    "errors, and records after the last: ok [[],0]",
    "renewed beyond the lock: ok []",
    "of a member that left: ok [true,true,null]",
    "two members: ok [0,true,1000,0]",
    "a broker that was killed: ok [0,1000]",
]


@pytest.fixture(scope="module", params=["ours", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killable]:
    with killable(request.param, tmp_path_factory.mktemp("go-share"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and the modules that it needs; skips the test if they cannot be
    fetched."""
    if shutil.which("go") is None:
        pytest.skip("there is no go")
    folder = tmp_path_factory.mktemp("program") / "share"
    shutil.copytree(PROGRAMS / "share", folder)
    shutil.copy(PROGRAMS / "common.go", folder)
    got = subprocess.run(
        ["go", "get", FRANZ_GO],
        cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
        check=False,
        capture_output=True,
        text=True,
        timeout=OWN_TESTS_DEADLINE_S,
    )
    if got.returncode != 0:
        pytest.skip(f"this Go cannot get {FRANZ_GO}: {got.stderr.strip()[-300:]}")
    run("go", "build", "-o", "program", ".", folder=folder)
    return folder


def test_franz_go_accepts_releases_rejects_and_renews_records(
    broker: Killable, module: Path
) -> None:
    """There are two members, a lock that is renewed, and a broker that is killed halfway."""
    asked: list[str] = []

    def restart(wanted: str) -> None:
        asked.append(wanted)
        broker.restart()

    printed = converse("./program", broker.address, folder=module, do=restart)
    assert asked == ["another start of the broker"]
    assert printed == OUTCOMES


def test_franz_gos_own_tests_of_share_groups_pass(broker: Killable, module: Path) -> None:
    run("go", "test", "-c", "-o", "own", "github.com/twmb/franz-go/pkg/kgo", folder=module)
    seeds = {"KGO_SEEDS": broker.address, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "10000"}
    done = subprocess.run(
        [
            *("./own", "-test.v", "-test.count=1", f"-test.timeout={OWN_TESTS_DEADLINE_S}s"),
            *("-test.run", "^(" + "|".join(OWN_TESTS) + ")$"),
        ],
        cwd=module,
        env={**os.environ, **seeds},
        check=False,
        capture_output=True,
        text=True,
        timeout=OWN_TESTS_DEADLINE_S + 30,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for name in OWN_TESTS:
        assert f"--- PASS: {name} " in done.stdout
