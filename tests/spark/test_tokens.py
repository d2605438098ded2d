"""Spark reads and writes with a delegation token, and never shows the token. The token may be
replaced while a query runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import DelegationToken
from sasl_brokers import scram_line

pytestmark = pytest.mark.spark

WAIT_S = 120
ENDED = r"refuses delegation token .* get another token, as with `odradek token create`"


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    """A broker that has delegation tokens."""
    settings = {"log.durability": "page-cache", "delegation.token.secret.key": "a key"}
    with SubprocessBroker(users={"job": "a hidden word"}, settings=settings) as broker:
        yield broker


def new_token(broker: SubprocessBroker) -> DelegationToken:
    with sync.Admin(**broker.client_settings("job")) as admin:
        return admin.create_delegation_token()


def end(broker: SubprocessBroker, token: DelegationToken) -> None:
    with sync.Admin(**broker.client_settings("job")) as admin:
        admin.expire_delegation_token(token.hmac)


def options(broker: SubprocessBroker) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
    }


def by_line(broker: SubprocessBroker, token: DelegationToken) -> dict[str, str]:
    """Options that give the token as a JAAS line, as for Kafka's own clients."""
    line = scram_line(token.token_id, token.password).replace(";", ' tokenauth="true";')
    return options(broker) | {"kafka.sasl.jaas.config": line}


def shown(spark: SparkSession) -> str:
    """The plans of all queries so far, as Spark's web pages show them."""
    store = spark._jsparkSession.sharedState().statusStore()
    found = [store.executionsList().apply(i) for i in range(store.executionsList().size())]
    return "".join(each.physicalPlanDescription() + str(each.description()) for each in found)


def test_s17_a_batch_is_written_and_read_with_a_token(
    spark: SparkSession, broker: SubprocessBroker
) -> None:
    token = new_token(broker)
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    given = by_line(broker, token)
    rows.write.format("odradek").options(**given).option("topic", "t").mode("append").save()
    given = options(broker) | {
        "kafka.sasl.token.auth": "true",
        "kafka.sasl.username": token.token_id,
        "kafka.sasl.password": token.password,
    }
    read = spark.read.format("odradek").options(**given).option("subscribe", "t").load()
    assert read.count() == 100
    assert token.password not in shown(spark)


@pytest.mark.full
def test_s17_the_error_for_an_expired_token_names_the_remedy(
    spark: SparkSession, broker: SubprocessBroker
) -> None:
    token = new_token(broker)
    end(broker, token)
    given = by_line(broker, token)
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match=ENDED) as writing:
        rows.write.format("odradek").options(**given).option("topic", "t").mode("append").save()
    with pytest.raises(PySparkException, match=ENDED) as reading:
        spark.read.format("odradek").options(**given).option("subscribe", "t").load().collect()
    said = str(writing.value) + str(reading.value) + shown(spark)
    assert token.password not in said


@pytest.mark.full
def test_s17_a_stream_continues_with_a_replaced_token(
    spark: SparkSession, broker: SubprocessBroker, tmp_path: Path
) -> None:
    """Driver and workers keep their clients from run to run; only a restart of the broker ends all
    sessions."""
    file = tmp_path / "token"

    def replace_token() -> DelegationToken:
        token = new_token(broker)
        file.write_text(f"id={token.token_id}\nhmac={token.password}\n", "utf-8")
        return token

    given = options(broker) | {
        "kafka.sasl.token.auth": "true",
        "kafka.sasl.username": f"${{file:{file}:id}}",
        "kafka.sasl.password": f"${{file:{file}:hmac}}",
    }
    frame = spark.readStream.format("odradek").options(**given).option("subscribe", "in").load()

    def run() -> None:
        with sync.Producer(**broker.client_settings("job")) as producer:
            producer.send_and_wait("in", b"more")
        query = (
            frame.selectExpr("value")
            .writeStream.format("odradek")
            .options(**given)
            .option("topic", "out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    with sync.Producer(**broker.client_settings("job")) as producer:
        producer.send_and_wait("in", b"first")
    token = replace_token()
    run()
    end(broker, token)
    token = replace_token()
    broker.restart()
    run()
    end(broker, token)
    broker.restart()
    with pytest.raises(PySparkException, match=ENDED) as caught:
        run()
    assert token.password not in str(caught.value)
    replace_token()
    run()
    read = spark.read.format("odradek").options(**given).option("subscribe", "out").load()
    assert read.count() > 0
