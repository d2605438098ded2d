"""The connector with an Apache Kafka that authenticates its clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_sasl import PASSWORD, kafka_of_sasl
from odradek import sync
from odradek_client.admin import NewTopic, UserScramCredentialUpsertion
from sasl_brokers import as_user, scram_line
from waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

MECHANISM = "SCRAM-SHA-512"


def test_s17_batches_are_written_and_read_with_scram_and_with_a_token(
    spark: SparkSession, tmp_path: Path
) -> None:
    with kafka_of_sasl(tmp_path / "kafka") as (plaintext, sasl):
        with sync.Admin(bootstrap_servers=plaintext) as admin:
            admin.create_topics(NewTopic("t", 2))
            admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion("job", PASSWORD, MECHANISM)
            )
        options = {
            "kafka.bootstrap.servers": sasl,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": MECHANISM,
            "kafka.sasl.jaas.config": scram_line("job", PASSWORD),
        }
        rows = spark.range(1_000).selectExpr("CAST(id AS STRING) AS value")
        writer = rows.write.format("odradek").options(**options).option("topic", "t")
        writer.mode("append").save()
        reader = spark.read.format("odradek").options(**options).option("subscribe", "t")
        read = reader.option("kafka.isolation.level", "read_committed").load()
        values = [int(row[0]) for row in read.selectExpr("CAST(value AS STRING)").collect()]
        assert sorted(values) == list(range(1_000))
        with sync.Admin(**as_user(sasl, MECHANISM, "job", PASSWORD)) as admin:
            token = admin.create_delegation_token()
            # Kafka acknowledges a token a moment before its listeners accept it.
            wait_until(lambda: admin.describe_delegation_token() != [], "there is a token")
            line = scram_line(token.token_id, token.password)
            options["kafka.sasl.jaas.config"] = line.replace(";", ' tokenauth="true";')
            writer = rows.write.format("odradek").options(**options).option("topic", "t")
            writer.mode("append").save()
            reader = spark.read.format("odradek").options(**options).option("subscribe", "t")
            reader = reader.option("kafka.isolation.level", "read_committed")
            assert reader.load().count() == 2_000
            admin.expire_delegation_token(token.hmac)
            wait_until(lambda: admin.describe_delegation_token() == [], "there is none")
        # With another setting the connector makes a new client, which has no session yet.
        reader = reader.option("kafka.client.id", "another")
        with pytest.raises(PySparkException, match="refuses delegation token"):
            reader.load().count()
