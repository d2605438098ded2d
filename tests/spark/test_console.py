"""The console shows what a streaming query of Spark writes while it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from console_process import browser_program, console_process

pytestmark = [pytest.mark.spark, pytest.mark.full]
_PATIENCE_MS = 60_000
_ROW = re.compile(r"^row-\d+$")


def test_the_console_tail_shows_rows_that_a_query_writes(
    spark: SparkSession, spark_broker: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    program = browser_program()
    if program is None:
        pytest.skip("no Chromium here: install one, or name it in ODRADEK_CHROMIUM")
    from playwright.sync_api import expect, sync_playwright

    topic = new_topic(2)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with (
        console_process(spark_broker) as address,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=arguments) as browser,
    ):
        page = browser.new_page()
        page.goto(f"{address}topic/tail?name={topic}")
        expect(page.get_by_role("heading", name=topic)).to_be_visible()
        rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
        query = (
            rows.selectExpr("concat('row-', value) AS value")
            .writeStream.format("odradek")
            .option("kafka.bootstrap.servers", spark_broker)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            expect(page.get_by_text(_ROW).first).to_be_visible(timeout=_PATIENCE_MS)
            received = page.get_by_text("received since")
            before = received.inner_text()
            # Later rows appear without a reload; the page may show only a sample of a burst.
            expect(received).not_to_have_text(before, timeout=_PATIENCE_MS)
        finally:
            query.stop()
