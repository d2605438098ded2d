"""`odradek consume` with filters and decoders, and its output of records for people."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pytest

from cli_runner import Commands, Shell
from fake_schema_registry import fake_registry
from odradek import NewTopic, sync
from odradek_cli.common import RecordCounter
from odradek_cli.records.consume import ConsumeProgress
from odradek_cli.records.record_view import View, ViewOptions
from odradek_client.structs import TopicPartition
from odradek_records.record_format import from_json_line

SCHEMA = '{"type": "record", "name": "Fruit", "fields": [{"name": "weight", "type": "long"}]}'


def avro(weight: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMA)), {"weight": weight})
    return out.getvalue()


@pytest.fixture
def odradek(live_bootstrap: str) -> Commands:
    return Commands(live_bootstrap)


@pytest.fixture
def orders(live_bootstrap: str, unique_topic: str) -> str:
    """A topic with orders 0 to 9 in one partition; the orders with even numbers are apples and have
    headers."""
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.create_topics([NewTopic(unique_topic, 1)])
    with sync.Producer(bootstrap_servers=live_bootstrap) as producer:
        for number in range(10):
            value = {"id": number, "kind": "pear" if number % 2 else "apple"}
            producer.send(
                unique_topic,
                json.dumps(value).encode(),
                key=f"k{number % 3}".encode(),
                headers=[] if number % 2 else [("even", b"yes"), ("n", str(number).encode())],
            )
        producer.flush()
    return unique_topic


def ids(printed: str) -> list[int]:
    return [json.loads(line)["id"] for line in printed.splitlines()]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--key", "k1"], [1, 4, 7]),
        (["--key", "k1", "--key", "k2"], [1, 2, 4, 5, 7, 8]),
        (["--header", "even"], [0, 2, 4, 6, 8]),
        (["--header", "even=yes", "--header", "n=4"], [4]),
        (["--header", "even=no"], []),
        (["--grep", '"id": [78]'], [7, 8]),
        (["--grep", "^k0$", "--grep", "pear"], [3, 9]),
        (["--jsonpath", "$.id>=8"], [8, 9]),
        (["--jsonpath", "$.kind=pear", "--jsonpath", "$.id<4"], [1, 3]),
        (["--jsonpath", "$.nosuch"], []),
        (["--filter", "key=k0 !header.even"], [3, 9]),
        (["--filter", "pear", "--key", "k0"], [3, 9]),
        (["--header", "even", "--count", "2"], [0, 2]),
    ],
)
def test_consume_prints_the_filtered_records(
    odradek: Commands, orders: str, options: list[str], wanted: list[int]
) -> None:
    assert ids(odradek.run("consume", orders, "--exit", *options)) == wanted


def test_filters_keep_the_output_format(odradek: Commands, orders: str) -> None:
    chosen = ["consume", orders, "--exit", "--key", "k1"]
    assert odradek.run(*chosen, "--format", "%o,") == "1,4,7,"
    assert [row["offset"] for row in odradek.rows(*chosen)] == [1, 4, 7]
    assert odradek.run(*chosen, "-D", ";").count(";") == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--grep", "("], "'(' is no regular expression"),
        (["--jsonpath", "id=1"], "id=1: a path begins with $"),
        (["--jsonpath", "$..id"], "no step of a path"),
        (["--header", "=x"], "--header =x: the name is missing"),
        (["--filter", "nosuch=1"], "there is no field 'nosuch'"),
        (["--decode", "xml"], "there is no format 'xml'; there are guess, json"),
        (["--schema", "/no/such.avsc"], "/no/such.avsc cannot be read"),
        (["--registry", "localhost"], "no address of a schema registry"),
        (["--pretty", "--json"], "--pretty is a form of its own"),
        (["--pretty", "-f", "%s"], "--pretty is a form of its own"),
    ],
)
def test_wrong_filter_and_decoder_options_are_named(
    odradek: Commands, options: list[str], why: str
) -> None:
    odradek.run("consume", "t", *options, code=2)
    assert why in odradek.stderr


# --- Positions ------------------------------------------------------------------------------------

ONE = TopicPartition("t", 0)


def reading(left: int | None) -> ConsumeProgress:
    view = View(ViewOptions(key=["a"]))
    return ConsumeProgress(
        lambda record: record.key or b"-",
        RecordCounter("", None),
        left,
        view=view,
    )


@dataclass
class Record:
    offset: int
    key: bytes | None = None
    value: bytes | None = b"{}"
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    topic: str = "t"
    partition: int = 0
    timestamp: int = 1_714_521_600_123
    timestamp_type: int = 0


def of_keys(*keys: str) -> list[Any]:
    return [Record(offset, key.encode()) for offset, key in enumerate(keys)]


def test_filtered_records_move_the_position_up_to_the_last_printed_one() -> None:
    everything = reading(None)
    assert everything.take(ONE, of_keys("b", "a", "b")) == b"a"
    assert everything.read == {ONE: 3} and everything.count == 1
    two = reading(2)
    assert two.take(ONE, of_keys("a", "b", "a", "b", "a")) == b"aa"
    assert two.read == {ONE: 3} and two.done
    none_left = reading(0)
    assert none_left.take(ONE, of_keys("a")) == b"" and none_left.read == {}


def test_a_group_continues_after_the_last_filtered_record(odradek: Commands, orders: str) -> None:
    member = ["consume", orders, "--exit", "--group", f"{orders}-readers"]
    assert ids(odradek.run(*member, "--key", "k1", "--count", "2")) == [1, 4]
    assert ids(odradek.run(*member)) == [5, 6, 7, 8, 9]


# --- Decoders -------------------------------------------------------------------------------------


@pytest.fixture
def fruit(live_bootstrap: str, unique_topic: str) -> str:
    """A topic with three Avro records that name their schema, one record that is not Avro, and a
    null."""
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.create_topics([NewTopic(unique_topic, 1)])
    with sync.Producer(bootstrap_servers=live_bootstrap) as producer:
        for weight in (1, 2, 3):
            producer.send(unique_topic, b"\0\0\0\0\7" + avro(weight), key=b"\xff\x01")
        producer.send(unique_topic, b"\xff")
        producer.send(unique_topic, None)
        producer.flush()
    return unique_topic


def test_values_are_decoded_with_a_schema_file(
    odradek: Commands, fruit: str, tmp_path: Path
) -> None:
    path = tmp_path / "fruit.avsc"
    path.write_text(SCHEMA)
    decoded = ["consume", fruit, "--exit", "--decode", "value=avro", "--schema", f"value={path}"]
    assert odradek.run(*decoded) == '{"weight": 1}\n{"weight": 2}\n{"weight": 3}\nff\n\n'
    assert odradek.stderr.count("a value of") == 1
    assert "is shown as hex; not avro: no integer at 0; not text" in odradek.stderr
    assert odradek.run(*decoded, "-f", "%k %s,", "--jsonpath", "$.weight>=3") == (
        'ff 01 {"weight": 3},'
    )
    assert odradek.run(*decoded, "-K", ":", "-D", ";").startswith('ff 01:{"weight": 1};')


def test_json_lines_have_decoded_values_and_the_bytes(odradek: Commands, fruit: str) -> None:
    with fake_registry() as registry:
        registry.answers["/schemas/ids/7"] = {"schema": SCHEMA}
        printed = odradek.run("consume", fruit, "--exit", "--json", "--registry", registry.url)
        assert registry.asked == ["/schemas/ids/7"]
    rows = [json.loads(line) for line in printed.splitlines()]
    assert rows[0]["decoded"]["payload"] == {"format": "avro", "value": {"weight": 1}}
    assert rows[0]["decoded"]["key"]["format"] == "hex"
    assert rows[3]["decoded"]["payload"]["text"].startswith("00000000  ff")
    nothing = {"format": "null", "value": None}
    assert rows[4]["decoded"] == {"key": nothing, "payload": nothing}
    again = from_json_line(printed.splitlines()[0].encode())
    assert (again.key, again.value) == (b"\xff\x01", b"\0\0\0\0\7" + avro(1))


def test_a_registry_of_the_environment_is_used_by_decode_only(
    odradek: Commands, fruit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_registry() as registry:
        registry.answers["/schemas/ids/7"] = {"schema": SCHEMA}
        monkeypatch.setenv("ODRADEK_SCHEMA_REGISTRY", registry.url)
        plain = odradek.run("consume", fruit, "--exit", "--count", "1", "--key", "\udcff\x01")
        assert "\0" in plain and registry.asked == []
        decoded = odradek.run("consume", fruit, "--exit", "--decode", "guess", "--count", "1")
        assert decoded == '{"weight": 1}\n'


def test_a_registry_that_fails_is_reported_once(odradek: Commands, fruit: str) -> None:
    with fake_registry() as registry:
        odradek.run("consume", fruit, "--exit", "--registry", registry.url)
        assert "/schemas/ids/7 answers 404 (Schema not found)" in odradek.stderr
    told = odradek.stderr.splitlines()
    assert len([line for line in told if " value of " in line]) == 1


# --- For people -----------------------------------------------------------------------------------


def pretty(*records: Record, **options: Any) -> str:
    view = View(ViewOptions(pretty=True, **options))
    printer = view.printer(lambda record: b"", plain=True, as_json=False)
    return b"".join(printer(record) for record in records).decode()


def test_pretty_records_have_partition_offset_time_key_and_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    headers: list[tuple[str, bytes | None]] = [
        ("kind", b"or\x1b[2Jder"), ("raw", b"\xff"), ("none", None), ("long", b"x" * 500),
    ]  # fmt: skip
    text = pretty(Record(7, b"k\x1b1", b'{"a":[1]}', headers), Record(8, None, None, timestamp=-1))
    assert text == (
        "t/0 @7  2024-05-01T00:00:00.123Z  key 6b 1b 31  kind=or\\x1b[2Jder  raw=0xff  none=NULL"
        f"  long={'x' * 200}...\n"
        '{\n  "a": [\n    1\n  ]\n}\n'
        "t/0 @8  no time\nnull\n"
    )


def test_a_failed_decoder_is_named_below_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = pretty(Record(0, None, b"plain"), decode=["json"])
    assert text.endswith("Z\nplain\n(not json: no JSON: Expecting value at line 1, column 1)\n")
    assert "not avro" not in pretty(Record(0, None, b"plain"))
    assert "not protobuf-raw: field number 0" in pretty(Record(0, None, b"\0\1"))


def test_markup_in_values_is_printed_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = pretty(Record(0, b"[bold]k", b"[red]v[/red]", [("[dim]h", b"[b]")]))
    assert "key [bold]k  [dim]h=[b]\n[red]v[/red]\n" in text


@pytest.mark.full
@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colours_are_printed_to_terminals_only(
    shell: Shell, orders: str, environment: dict[str, str], coloured: bool
) -> None:
    shell.environment = {"TERM": "xterm-256color"} | shell.environment | environment
    printed = shell.run("consume", orders, "--exit", "--pretty", "--count", "1")
    assert (b"\x1b[1;36m" in printed) is coloured
    assert b'"kind": "apple"' in printed.replace(b"\x1b[0m", b"") or coloured
