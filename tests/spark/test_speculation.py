"""Speculation on a cluster: two attempts of one task write at the same time, or one after the
other has committed, and the rows of only one attempt are committed.

pytest tests/spark/test_speculation.py -m slow
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foreign_topics import create_topic, send_records
from odradek import sync
from odradek.broker import SubprocessBroker
from odradek.spark import JavaNotFound
from odradek.testing import make_unique_topic
from spark_cluster import environment, standalone_cluster, submit
from spark_stream import Records
from topic_values import values_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = Path(__file__).parents[1] / "support" / "spark_speculation_job.py"
ROWS = 2_000
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    # With small Arrow batches, rows reach the sink before the task ends.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
}


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    try:
        return environment()
    except JavaNotFound as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def master(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster with two hosts, because Spark starts a second attempt only on another host than the
    first attempt."""
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(folder, variables, ("127.0.0.1", "127.0.0.2"), cores=2) as url:
        yield url


@pytest.mark.parametrize("kind", ["job", "named", "stream"])
@pytest.mark.parametrize("how", ["stuck", "together", "late"])
def test_speculative_attempts_repeat_no_rows_and_leave_no_transaction_open(
    master: str,
    variables: dict[str, str],
    odradek_faulty_broker: SubprocessBroker,
    tmp_path: Path,
    how: str,
    kind: str,
) -> None:
    """With "late", one of the attempts waits for its transactional id until the other has
    committed."""
    bootstrap = odradek_faulty_broker.bootstrap
    source, sink = make_unique_topic(), make_unique_topic()
    create_topic(bootstrap, source, 2)
    create_topic(bootstrap, sink, 2)
    records: Records = [(number % 2, None, b"%d" % number, 0, []) for number in range(ROWS)]
    send_records(bootstrap, source, records)
    arguments = [
        bootstrap,
        str(tmp_path),
        f"{how}-{kind}",
        sink,
        source,
        odradek_faulty_broker.http,
    ]
    # Spark waits longer until it kills the process of the slower attempt, which then has its id.
    settings = {"spark.python.task.killTimeout": "60s"} if how == "late" else {}
    submit(master, variables, JOB, arguments, SPECULATION | settings)
    assert (tmp_path / f"{how}-1").exists(), "there was no second attempt"
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        assert [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])] == []
    assert sorted(map(int, values_of(bootstrap, sink))) == list(range(ROWS))
    if how == "late":
        return
    written = values_of(bootstrap, sink, isolation_level="read_uncommitted")
    assert len(written) > ROWS, "the other attempt has written nothing"
