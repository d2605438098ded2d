"""`odradek produce|consume` as processes, with a broker in another process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import budget
from cli_runner import PATIENCE_S, Commands, Shell
from odradek.broker import SubprocessBroker


def test_lines_with_keys_are_printed_in_the_requested_format(
    shell: Shell, unique_topic: str
) -> None:
    shell.run("topic", "create", unique_topic)
    shell.run("produce", unique_topic, "-K", ":", stdin=b"de:hallo\nen:hello\nplain\n")
    assert shell.stderr == ""
    out = shell.run("consume", unique_topic, "-e", "-f", r"%p/%o %k(%K) %s(%S)\n")
    assert out == b"0/0 de(2) hallo(5)\n0/1 en(2) hello(5)\n0/2 (-1) plain(5)\n"
    assert shell.run("consume", unique_topic, "-e", "-K", "=") == b"de=hallo\nen=hello\n=plain\n"


def test_headers_nulls_codec_and_partition_are_produced(shell: Shell, unique_topic: str) -> None:
    shell.run("topic", "create", unique_topic, "--partitions", "3")
    shell.run(
        "produce", unique_topic, "-K", ":", "-Z", "-H", "a=1", "-H", "b", "-z", "lz4", "-p", "2",
        stdin=b"gone:\n:value\n",
    )  # fmt: skip
    out = shell.run("consume", unique_topic, "-e", "-Z", "-f", r"%p %k %s %h\n")
    assert out == b"2 gone NULL a=1,b=NULL\n2 NULL value a=1,b=NULL\n"


def test_json_lines_round_trip_through_a_second_topic(shell: Shell, unique_topic: str) -> None:
    binary = json.dumps({"payload_base64": "/wA=", "key": "k", "headers": ["h", None]}).encode()
    text = json.dumps({"payload": "ä", "ts": 1_700_000_000_000}).encode()
    shell.run("produce", unique_topic, "--json", stdin=binary + b"\n\n" + text + b"\n")
    first = shell.run("consume", unique_topic, "-e", "--json")
    shell.run("produce", f"{unique_topic}-copy", "--json", stdin=first)
    second = shell.run("consume", f"{unique_topic}-copy", "-e", "--json")

    def content(lines: bytes) -> list[dict[str, object]]:
        rows = [json.loads(line) for line in lines.splitlines()]
        return [{name: row[name] for name in row if name != "topic"} for row in rows]

    assert content(first) == content(second)
    assert content(first)[0]["payload_base64"] == "/wA="
    assert content(first)[1]["ts"] == 1_700_000_000_000


@pytest.mark.full
def test_consume_takes_the_offset_grammar_and_a_count(shell: Shell, unique_topic: str) -> None:
    lines = b"".join(
        json.dumps({"payload": str(number), "ts": 1_000 * number}).encode() + b"\n"
        for number in range(10)
    )
    shell.run("produce", unique_topic, "--json", stdin=lines)

    def read(*arguments: str) -> list[int]:
        return [int(each) for each in shell.run("consume", unique_topic, *arguments).split()]

    assert read("-e", "-o", "-3") == [7, 8, 9]
    assert read("-e", "-o", "4") == [4, 5, 6, 7, 8, 9]
    assert read("-e", "-o", "s@6000") == [6, 7, 8, 9]
    assert read("-o", "s@2000", "-o", "e@5000") == [2, 3, 4]
    assert read("-e", "-o", "@1970-01-01T00:00:08Z") == [8, 9]
    assert read("-c", "2") == [0, 1]
    assert read("-e", "-o", "end") == []


@pytest.mark.full
def test_a_group_continues_at_its_last_offset(shell: Shell, unique_topic: str) -> None:
    shell.run("produce", unique_topic, stdin=b"1\n2\n3\n")
    group = ("-g", f"{unique_topic}-readers")
    assert shell.run("consume", unique_topic, *group, "-c", "2").split() == [b"1", b"2"]
    assert shell.run("consume", unique_topic, *group, "-e").split() == [b"3"]
    assert shell.run("consume", unique_topic, *group, "-e") == b""


@pytest.mark.full
def test_files_are_produced_with_a_record_delimiter(
    shell: Shell, unique_topic: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"one;two")
    (tmp_path / "b").write_bytes(b"three;")
    shell.run("produce", unique_topic, str(tmp_path / "a"), str(tmp_path / "b"), "-D", ";")
    assert shell.run("consume", unique_topic, "-e").split() == [b"one", b"two", b"three"]


def _only_full(options: tuple[str, ...]) -> Any:
    return pytest.param(options, marks=pytest.mark.full)


#: Enough records to send and print whole batches.
LARGE = b"".join(b"%d \xff%s\n" % (n, b"x" * (n % 90)) for n in range(40_000))


@pytest.mark.parametrize(
    "options",
    [
        *map(_only_full, [(), ("-z", "zstd"), ("-p", "1"), ("-k", "k")]),
        ("--transactional-id", "large"),
    ],
)
@pytest.mark.full
def test_a_large_file_is_consumed_unchanged(
    shell: Shell, unique_topic: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    shell.run("topic", "create", unique_topic, "--partitions", "2")
    file = tmp_path / "large"
    file.write_bytes(LARGE[:-1])  # the last line has no line end
    options = tuple(unique_topic if each == "large" else each for each in options)
    shell.run("produce", unique_topic, str(file), *options)
    assert shell.stderr == ""
    lines = shell.run("consume", unique_topic, "-e", "--read-committed").splitlines(keepends=True)
    in_order = [shell.run("consume", unique_topic, "-e", "-p", each) for each in ("0", "1")]
    assert sorted(lines) == sorted(LARGE.splitlines(keepends=True))
    for part in in_order:
        numbers = [int(line.split()[0]) for line in part.splitlines()]
        assert numbers == sorted(numbers)
    if options == ("-p", "1"):
        assert in_order == [b"", LARGE]


@pytest.mark.full
def test_a_large_file_may_have_any_delimiter_and_empty_records(
    shell: Shell, unique_topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    data = b"".join(b"%d\n<<>>" % n if n % 3 else b"<<>>" for n in range(30_000))
    file.write_bytes(data)
    shell.run("produce", unique_topic, str(file), "-D", "<<>>")
    assert shell.run("consume", unique_topic, "-e", "-D", "<<>>") == data
    half = shell.run("consume", unique_topic, "-c", "15000", "-D", "<<>>")
    assert half == b"<<>>".join(data.split(b"<<>>")[:15_000]) + b"<<>>"
    assert shell.run("consume", unique_topic, "-e", "-o", "-2", "-D", "|") == b"29998\n|29999\n|"


def test_c12_a_too_large_record_of_a_file_is_named_and_earlier_ones_are_kept(
    shell: Shell, unique_topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    before = b"".join(b"%d\n" % n for n in range(20_000))
    file.write_bytes(before + b"x" * 5_000 + b"\nnever\n" + before)
    shell.run("produce", unique_topic, str(file), "-X", "max.request.size=4000", code=1)
    assert "record 20001" in shell.stderr and "max_request_size is 4000" in shell.stderr
    assert "of 20000 records 20000 are acknowledged" in shell.stderr
    assert shell.run("consume", unique_topic, "-e") == before


@pytest.mark.full
def test_a_missing_partition_is_named_for_a_large_file(
    shell: Shell, unique_topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_bytes(LARGE)
    shell.run("produce", unique_topic, str(file), "-p", "7", code=1)
    assert "record 1:" in shell.stderr and "partitions 0 to 0" in shell.stderr


def test_a_group_continues_after_the_last_printed_record(
    shell: Shell, unique_topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_bytes(LARGE)
    shell.run("produce", unique_topic, str(file))
    group = ("-g", f"{unique_topic}-readers")
    first = shell.run("consume", unique_topic, *group, "-c", "7001")
    assert first == b"".join(LARGE.splitlines(keepends=True)[:7001])
    assert first + shell.run("consume", unique_topic, *group, "-e") == LARGE


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("consume", "t", "-o", "yesterday"), 2, "yesterday"),
        (("consume", "t", "-f", "%z"), 2, "%z"),
        (("consume", "t", "-o", "stored"), 2, "--group"),
        (("consume", "t", "-X", "fetch_min_byte=1"), 2, "fetch_min_bytes"),
        (("produce", "t", "-z", "lzma"), 2, "lzma"),
        (("produce", "t", "-K", r"\q"), 2, r"\q"),
        (("produce", "bad/name"), 1, "bad/name"),
    ],
)
def test_bad_input_is_named_in_one_line(
    shell: Shell, arguments: tuple[str, ...], code: int, says: str
) -> None:
    shell.run(*arguments, stdin=b"x\n", code=code)
    assert says in shell.stderr
    assert len(shell.stderr.strip().splitlines()) == 1


def test_a_bad_json_line_is_named_and_the_lines_before_it_are_kept(
    shell: Shell, unique_topic: str
) -> None:
    lines = b'{"payload": "good"}\n{"payload": 7}\n{"payload": "never"}\n'
    shell.run("produce", unique_topic, "--json", stdin=lines, code=1)
    assert "record 2" in shell.stderr
    assert shell.run("consume", unique_topic, "-e") == b"good\n"


@pytest.mark.full
def test_an_unreachable_broker_is_named_within_the_timeout(unique_topic: str) -> None:
    shell = Shell("127.0.0.1:1")
    shell.run("produce", unique_topic, "-X", "max.block.ms=500", stdin=b"x\n", code=1)
    assert "127.0.0.1:1" in shell.stderr


@pytest.mark.own_broker
def test_topics_are_created_described_altered_and_deleted(shell: Shell, unique_topic: str) -> None:
    shell.run("topic", "create", unique_topic, "-n", "2", "--config", "retention.bytes=1000")
    assert shell.stderr == f"created {unique_topic}\n"
    shell.run("topic", "create", unique_topic, code=1)
    assert "already exists" in shell.stderr
    shell.run("topic", "create", unique_topic, "--if-not-exists")
    assert unique_topic in shell.run("topic", "list").decode().split()
    shell.run("topic", "alter", unique_topic, "-n", "3", "--delete-config", "retention.bytes",
              "--config", "max.message.bytes=2000")  # fmt: skip
    described = json.loads(shell.run("topic", "describe", unique_topic, "--json"))
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert described["configs"] == [
        {"name": "max.message.bytes", "value": "2000", "default": False},
        # Every topic's description has this setting of the brokers.
        {"name": "min.insync.replicas", "value": "1", "default": False},
        # the fixture's broker has this setting
        {"name": "retention.ms", "value": "-1", "default": False},
    ]
    table = shell.run("topic", "describe", unique_topic).decode()
    assert "PartitionCount: 3" in table and "LOG-END-OFFSET" in table
    shell.run("topic", "alter", unique_topic, code=2)
    shell.run("topic", "alter", unique_topic, "--config", "segment.bytes=-1", code=1)
    assert "segment.bytes" in shell.stderr
    shell.run("topic", "delete", unique_topic)
    shell.run("topic", "delete", unique_topic, code=1)
    shell.run("topic", "delete", unique_topic, "--if-exists")
    shell.run("topic", "describe", unique_topic, code=1)
    shell.run("topic", "create", f"{unique_topic}-3", "-r", "3", code=1)
    assert "replication.factor.policy" in shell.stderr


def test_a_missing_topic_is_an_error_and_is_not_created(shell: Shell, unique_topic: str) -> None:
    shell.run("topic", "create", unique_topic)
    typo = f"{unique_topic}x"
    for more in (("-e",), ("-g", "readers"), ("-p", "0")):
        assert shell.run("consume", typo, *more, code=1) == b""
        assert shell.stderr == (
            f"odradek: topic {typo!r} does not exist; is it {unique_topic!r}?\n"
        )
    assert typo not in shell.run("topic", "list", "--names").decode().split()


@pytest.mark.full
def test_topics_are_listed_with_partitions_and_without_internal_ones(
    shell: Shell, unique_topic: str
) -> None:
    shell.run("topic", "create", unique_topic, "-n", "3")
    shell.run("produce", unique_topic, stdin=b"1\n")
    shell.run("consume", unique_topic, "-g", unique_topic, "-e")
    head, *lines = (line.split() for line in shell.run("topic", "list").decode().splitlines())
    assert head == ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"]
    assert [unique_topic, "3", "1"] in lines
    assert not [line for line in lines if line[0].startswith("__")]
    assert b"__consumer_offsets" in shell.run("topic", "list", "--internal")
    rows = map(json.loads, shell.run("topic", "list", "--json").splitlines())
    assert {"topic": unique_topic, "partitions": 3, "replication_factor": 1, "internal": False} in [
        *rows
    ]


@pytest.mark.full
def test_a_missing_partition_is_one_line_on_stderr(shell: Shell, unique_topic: str) -> None:
    shell.run("topic", "create", unique_topic, "-n", "3")
    shell.run("produce", unique_topic, "-p", "9", stdin=b"one\n", code=1)
    assert shell.stderr == (
        f"odradek: standard input, record 1: topic {unique_topic!r} has the partitions 0 to 2, not 9\n"
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    budget.of_which(["consume {topic} -e", "topic describe {topic}"], ["consume {topic} -e"]),
)
def test_unwritable_output_is_one_line_on_stderr_or_none(
    shell: Shell, unique_topic: str, command: str
) -> None:
    shell.run("produce", unique_topic, stdin=b"x" * 100 + b"\n")
    words = command.format(topic=unique_topic)
    for to, code, says in (
        ("> /dev/full", 1, "odradek: standard output cannot be written: No space left on device\n"),
        (">&-", 1, "odradek: standard output cannot be written: Bad file descriptor\n"),
        # stderr has no traceback. The exit code is not compared: `consume` exits with 0, and typer
        # would exit with 1.
        ("| true", None, ""),
    ):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; '{sys.executable}' -m odradek {words} {to}"],
            capture_output=True,
            timeout=PATIENCE_S,
            env=shell.environment,
            check=False,
        )
        assert done.stderr.decode() == says
        assert code in (None, done.returncode)


@pytest.mark.full
def test_records_that_could_not_be_printed_are_not_committed(
    shell: Shell, unique_topic: str
) -> None:
    shell.run("produce", unique_topic, stdin=b"1\n2\n")
    consume = ["consume", unique_topic, "-g", unique_topic, "-e"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "odradek", *consume],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            env=shell.environment,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert shell.run(*consume) == b"1\n2\n"


@pytest.mark.full
@pytest.mark.parametrize(
    ("bootstrap", "cause"),
    [
        pytest.param("127.0.0.1:1", "127.0.0.1:1: Connection refused", marks=pytest.mark.full),
        pytest.param(
            "nobody.invalid:9092",
            "nobody.invalid:9092: the name cannot be resolved",
            marks=pytest.mark.full,
        ),
        ("SILENT", "(it was made, and nobody answered)"),
    ],
)
@pytest.mark.parametrize(
    "command", budget.of_which(["topic list", "produce t", "consume t"], ["produce t"])
)
def test_an_unreachable_broker_is_an_error_with_its_cause(
    bootstrap: str, cause: str, command: str
) -> None:
    """The limit of retries is reached within seconds, before the client's time-out of a minute."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        if bootstrap == "SILENT":
            bootstrap = f"127.0.0.1:{listening.getsockname()[1]}"
        shell = Shell(bootstrap)
        shell.run(*command.split(), stdin=b"x\n", code=1)
    within_ms = 400 if "refused" in cause else 3500
    message = f"no broker of {bootstrap} could be reached within {within_ms} ms"
    assert f"odradek: {message}" in shell.stderr
    assert cause in shell.stderr
    assert "Traceback" not in shell.stderr


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("mirror --from 127.0.0.1:1 --to 127.0.0.1:1", "--from or --to"),
        ("mirror check --from 127.0.0.1:1 --to 127.0.0.1:1", "--from or --to"),
        ("mirror status --to 127.0.0.1:1", "--from or --to"),
        ("mirror offsets t-0:1 --to 127.0.0.1:1", "--to"),
        ("mirror promote --topics t --to 127.0.0.1:1", "--to"),
    ],
)
def test_an_error_names_the_options_of_its_command_for_the_brokers(
    command: str, options: str
) -> None:
    shell = Shell("")
    shell.run(*command.split(), code=2 if "check" in command else 1)
    assert f"check {options}, and that a broker runs there" in shell.stderr


@pytest.mark.full
def test_a_hung_resolver_does_not_delay_the_exit() -> None:
    code = (
        "import socket, sys, time\n"
        "socket.getaddrinfo = lambda *a, **k: time.sleep(1000)\n"
        "sys.argv = ['odradek', 'topic', 'list', '-b', 'somewhere:9092']\n"
        "from odradek_cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert b"no connection to somewhere:9092 within 3000 ms" in done.stderr


def test_an_unreachable_advertised_address_is_an_error() -> None:
    nowhere = {"advertised.listeners": "PLAINTEXT://nobody.invalid:9092"}
    with SubprocessBroker(settings=nowhere) as broker:
        bootstrap = broker.bootstrap
        for words in ("topic create t", "consume t -e", "cluster"):
            commands = Commands(bootstrap)
            commands.run(*words.split(), code=1)
            assert f"{bootstrap} answers, but names addresses" in commands.stderr
            assert "nobody.invalid:9092: the name cannot be resolved" in commands.stderr


@pytest.mark.full
def test_an_auto_created_topic_is_reported_once(shell: Shell, unique_topic: str) -> None:
    said = (
        f"odradek: topic {unique_topic!r} was not there; the broker has made it, with 1 partition\n"
    )
    shell.run("produce", unique_topic, stdin=b"one\n")
    assert shell.stderr == said.removeprefix("odradek: ")
    shell.run("produce", unique_topic, stdin=b"two\n")
    assert shell.stderr == ""


def test_a_missing_input_file_is_named(shell: Shell, unique_topic: str) -> None:
    shell.run("produce", unique_topic, "/nowhere/file", code=1)
    assert shell.stderr == "odradek: /nowhere/file cannot be read: No such file or directory\n"


@pytest.mark.full
def test_errors_name_the_address_as_it_was_typed(shell: Shell) -> None:
    shell.run("topic", "list", "-b", "127.0.0.1:1", code=1)
    assert "check -b (--bootstrap), and that a broker runs there" in shell.stderr
    shell.run("topic", "list", "-b", "host:port", code=2)
    assert shell.stderr.startswith("odradek: -b (--bootstrap): 'host:port'")


@pytest.mark.full
def test_an_offset_after_the_log_end_is_reported(shell: Shell, unique_topic: str) -> None:
    shell.run("produce", unique_topic, stdin=b"one\n")
    assert shell.run("consume", unique_topic, "--offset", "999", "-e") == b""
    said = f"there are no records from offset 999 on; the log ends: {unique_topic}-0 at 1\n"
    assert shell.stderr == said
    # The end offset itself is a valid start, so no message is printed.
    shell.run("consume", unique_topic, "--offset", "1", "-e")
    assert shell.stderr == ""
