"""Schemas of topics: Avro and Protobuf files, and a registry."""

from __future__ import annotations

import base64
import io
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from fake_schema_registry import FakeRegistry, fake_registry
from odradek_records.decoders import (
    Decoded,
    DecoderError,
    Decoders,
    SchemaRegistry,
    decode,
    schema_registry,
)
from odradek_records.decoders.plain import CannotDecode
from odradek_records.decoders.protobuf import read_indexes
from odradek_records.decoders.schemas import framed
from protobuf_files import FieldProto, file_of, message_of

LONG = '{"type": "record", "name": "Fruit", "fields": [{"name": "weight", "type": "long"}]}'


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as fake:
        yield fake


def avro(schema: str, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def frame(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


def shown(
    decoders: Decoders, data: bytes, which: str = "guess", topic: str = "t", is_key: bool = False
) -> Decoded:
    return decode(data, which=which, topic=topic, is_key=is_key, registry=decoders)


def failures(decoded: Decoded) -> dict[str, str]:
    return {each.format: each.failure for each in decoded.attempts}


# --- Rules ----------------------------------------------------------------------------------------


def test_the_most_specific_format_rule_is_used() -> None:
    rules = ["text", "key=hex", "fruit*:json", "fruit.red:value=hex", "fruit.red:text"]
    decoders = Decoders(formats=rules, plugins={})

    def chosen(topic: str, is_key: bool) -> str:
        return shown(decoders, b"{}", topic=topic, is_key=is_key).format

    assert chosen("other", False) == "text"
    assert chosen("other", True) == "hex"
    assert chosen("fruits", True) == "json"
    assert chosen("fruit.red", False) == "hex"
    assert chosen("fruit.red", True) == "text"
    assert shown(decoders, b"{}", "json", topic="other").format == "json"


def test_a_format_rule_may_apply_to_one_topic_only() -> None:
    decoders = Decoders(formats=["hex", "a:guess"], plugins={})
    assert shown(decoders, b"{}", topic="a").format == "json"
    assert shown(decoders, b"{}", topic="b").format == "hex"


@pytest.mark.parametrize("rule", ["xml", "t:xml", "key=xml", "value=", "t:"])
def test_a_rule_with_an_unknown_format_is_refused(rule: str) -> None:
    with pytest.raises(DecoderError):
        Decoders(formats=[rule], plugins={})


# --- Files ----------------------------------------------------------------------------------------


@pytest.fixture
def fruit(tmp_path: Path) -> Path:
    path = tmp_path / "fruit.avsc"
    path.write_text(LONG)
    return path


def test_an_avro_schema_file_decodes_its_topics_with_or_without_schema_ids(fruit: Path) -> None:
    decoders = Decoders(schemas=[f"fruit:value={fruit}"], plugins={})
    data = avro(LONG, {"weight": 300})
    for each in (data, frame(7, data)):
        found = shown(decoders, each, topic="fruit")
        assert (found.format, found.value) == ("avro", {"weight": 300})
    assert shown(decoders, data, topic="other").format != "avro"
    assert shown(decoders, data, topic="fruit", is_key=True).format != "avro"
    other = shown(decoders, b"plain", topic="fruit")
    assert other.format == "text" and "bytes are left behind" in failures(other)["avro"]


FRUIT = file_of(
    "fruit.proto",
    "shop",
    {
        "Fruit": [("name", 1, FieldProto.TYPE_STRING), ("weight", 2, FieldProto.TYPE_INT64)],
        "Basket": [("first", 1, ".shop.Fruit"), ("at", 2, ".google.protobuf.Timestamp")],
    },
    "google/protobuf/timestamp.proto",
)


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    path = tmp_path / "fruit.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[FRUIT]).SerializeToString())
    return path


def _basket() -> bytes:
    from google.protobuf import timestamp_pb2

    known = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return message_of(
        [known, FRUIT], "shop.Basket", first={"name": "pear", "weight": 5}, at={"seconds": 0}
    )


def test_a_protobuf_descriptor_file_names_the_fields(descriptors: Path) -> None:
    decoders = Decoders(schemas=[f"{descriptors}#shop.Basket"], plugins={})
    for data in (_basket(), frame(7, b"\x02\x02" + _basket())):
        found = shown(decoders, data)
        assert (found.format, found.value) == (
            "protobuf",
            {"first": {"name": "pear", "weight": "5"}, "at": "1970-01-01T00:00:00Z"},
        )
    assert "no message shop.Basket" in failures(shown(decoders, b"\x0a\xff"))["protobuf"]
    unknown = shown(decoders, b"\x50\x01", "protobuf")
    assert unknown.format == "protobuf-raw" and unknown.value == {"10": 1}
    assert "none of its fields" in failures(unknown)["protobuf"]


@pytest.mark.parametrize(
    ("content", "rest", "why"),
    [
        (None, "", "cannot be read: No such file"),
        (b"syntax", "", "no Avro schema; a file of Protobuf descriptors needs FILE#MESSAGE"),
        (b'{"type": 1}', "", "no name"),
        (b"\xff\xff", "#shop.Fruit", "no set of descriptors; write it with protoc"),
        (b"", "#shop.Fruit", "the set of descriptors is empty"),
        (b'"\xff"', "", "is UTF-8"),
    ],
)
def test_unusable_schema_files_are_named(
    tmp_path: Path, content: bytes | None, rest: str, why: str
) -> None:
    path = tmp_path / "schema"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DecoderError) as refused:
        Decoders(schemas=[f"t:{path}{rest}"], plugins={})
    assert str(path) in str(refused.value) and why in str(refused.value)


def test_a_missing_protobuf_message_is_refused_with_a_list_of_messages(descriptors: Path) -> None:
    with pytest.raises(DecoderError, match=r"no message 'shop.Nut'.* shop.Basket, shop.Fruit"):
        Decoders(schemas=[f"{descriptors}#shop.Nut"], plugins={})


def test_a_missing_protobuf_import_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fruit.desc"
    lonely = file_of("a.proto", "a", {"A": []}, "other.proto")
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[lonely]).SerializeToString())
    with pytest.raises(DecoderError, match=r"a.proto imports other.proto, which is missing"):
        Decoders(schemas=[f"{path}#a.A"], plugins={})


def test_the_error_without_protobuf_names_the_extra(
    descriptors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(DecoderError, match=r"pip install 'odradek\[schemas\]'"):
        Decoders(schemas=[f"{descriptors}#shop.Fruit"], plugins={})


# --- Registry -------------------------------------------------------------------------------------


def of(registry: FakeRegistry, **more: Any) -> Decoders:
    return Decoders(schema_registry=SchemaRegistry(registry.url, **more), plugins={})


def test_avro_records_are_decoded_by_their_schema_id(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = {"schema": LONG}
    decoders = of(registry)
    data = frame(7, avro(LONG, {"weight": 300}))
    assert (
        decoders.may_block(data) and not decoders.may_block(b"x") and not decoders.may_block(None)
    )
    for _ in range(3):
        found = shown(decoders, data)
        assert (found.format, found.value) == ("avro", {"weight": 300})
    assert registry.asked == ["/schemas/ids/7"]
    assert not decoders.may_block(data)
    assert (
        "schema 7 of the registry is AVRO"
        in failures(shown(decoders, data, "protobuf"))["protobuf"]
    )


def test_avro_schemas_may_reference_others(registry: FakeRegistry) -> None:
    def referring(name: str, field: str, *references: str) -> dict[str, Any]:
        fields = [{"name": "x", "type": field}]
        return {
            "schema": json.dumps({"type": "record", "name": name, "fields": fields}),
            "references": [
                {"name": each, "subject": f"s/{each}", "version": 1} for each in references
            ],
        }

    registry.answers["/schemas/ids/1"] = referring("A", "B", "B", "C")
    registry.answers["/subjects/s%2FB/versions/1"] = referring("B", "C", "C")
    registry.answers["/subjects/s%2FC/versions/1"] = referring("C", "long")
    assert shown(of(registry), frame(1, b"\x0e")).value == {"x": {"x": {"x": 7}}}
    assert len(registry.asked) == 3


def test_schema_references_have_a_limit(registry: FakeRegistry) -> None:
    for number in range(100):
        path = "/schemas/ids/1" if number == 0 else f"/subjects/{number}/versions/1"
        registry.answers[path] = {
            "schema": "{}",
            "references": [{"name": f"n{number}", "subject": str(number + 1), "version": 1}],
        }
    assert "more than 64 others" in failures(shown(of(registry), frame(1, b"x")))["avro"]
    registry.answers["/schemas/ids/2"] = {
        "schema": LONG,
        "references": [{"name": "a", "subject": "loop", "version": 1}],
    }
    registry.answers["/subjects/loop/versions/1"] = {
        "schema": '"int"',
        "references": [{"name": "a", "subject": "loop", "version": 1}],
    }
    assert shown(of(registry), frame(2, b"\x02")).value == {"weight": 1}


def test_the_characters_of_kept_schemas_are_limited(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "_KEPT_CHARACTERS_MAX", 1_000)
    monkeypatch.setattr(schema_registry, "_SCHEMA_CHARACTERS_MAX", 400)
    asked = SchemaRegistry(registry.url)
    for number in range(1, 6):
        registry.answers[f"/schemas/ids/{number}"] = {"schema": "x" * 300}
        assert asked.by_id(number).length == 300
    assert [asked.is_known(number) for number in range(1, 6)] == [False, False, True, True, True]
    references = [{"name": f"n{each}", "subject": "s", "version": each} for each in (1, 2)]
    registry.answers["/schemas/ids/6"] = {"schema": "x", "references": references}
    for each in (1, 2):
        registry.answers[f"/subjects/s/versions/{each}"] = {"schema": "y" * 300}
    with pytest.raises(CannotDecode, match="more than 400 characters"):
        asked.by_id(6)


def _serialized(proto: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(proto.SerializeToString()).decode()


def test_protobuf_records_are_decoded_by_their_schema_id_and_message_indexes(
    registry: FakeRegistry,
) -> None:
    proto = file_of(
        "", "shop", {"Other": [], "Basket": [("first", 1, ".nut.Nut")]}, "nuts/nut.proto"
    )
    nut = file_of("default", "nut", {"Nut": [("name", 1, FieldProto.TYPE_STRING)]})
    references = [{"name": "nuts/nut.proto", "subject": "nut", "version": 3}]
    registry.answers["/schemas/ids/9"] = {"schemaType": "PROTOBUF", "schema": "message..."}
    registry.answers["/schemas/ids/9?format=serialized"] = {
        "schemaType": "PROTOBUF",
        "schema": _serialized(proto),
        "references": references,
    }
    registry.answers["/subjects/nut/versions/3?format=serialized"] = {"schema": _serialized(nut)}
    decoders = of(registry)
    message = b"\x0a\x04\x0a\x02ab"
    found = shown(decoders, frame(9, b"\x02\x02" + message))
    assert (found.format, found.value) == ("protobuf", {"first": {"name": "ab"}})
    wrong = shown(decoders, frame(9, b"\x02\x08" + message))
    assert "no message with the index [4]" in failures(wrong)["protobuf"]
    assert wrong.format == "protobuf-raw" and wrong.value == {"1": {"1": "ab"}}


def test_a_registry_without_descriptors_shows_fields_by_number(registry: FakeRegistry) -> None:
    text = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message A { int32 a = 1; }'}
    registry.answers["/schemas/ids/9"] = registry.answers["/schemas/ids/9?format=serialized"] = text
    found = shown(of(registry), frame(9, b"\x00\x08\x07"))
    assert (found.format, found.value) == ("protobuf-raw", {"1": 7})
    assert "no serialized descriptors" in failures(found)["protobuf"]


def test_json_after_a_schema_id_is_shown(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/5"] = {"schemaType": "JSON", "schema": "{}"}
    found = shown(of(registry), frame(5, b'{"a": 1}'))
    assert (found.format, found.value) == ("json", {"a": 1})
    assert failures(found)["avro"] == "schema 5 of the registry is JSON"
    alone = shown(Decoders(plugins={}), frame(5, b'{"a": 1}'))
    assert alone.format == "json" and "no registry is given" in failures(alone)["avro"]


def test_protobuf_message_indexes_are_decoded() -> None:
    assert read_indexes(b"\x00abc") == ((0,), b"abc")
    assert read_indexes(b"\x04\x02\x06abc") == ((1, 3), b"abc")
    assert framed(b"\0\0\0\0\0x") is None and framed(b"\0\0\0\0") is None
    assert framed(b"\0\0\0\0\x07") == (7, b"")


# --- Trouble with a registry ----------------------------------------------------------------------


def test_a_failed_schema_request_is_not_repeated_for_a_while(registry: FakeRegistry) -> None:
    clock = [0.0]
    decoders = of(registry, now_s=lambda: clock[0])
    for _ in range(2):
        found = shown(decoders, frame(8, b"x"))
        assert (
            f"{registry.url}/schemas/ids/8 answers 404 (Schema not found)"
            in failures(found)["avro"]
        )
        assert not decoders.may_block(frame(8, b"x"))
    assert registry.asked == ["/schemas/ids/8"]
    clock[0] = 31.0
    assert decoders.may_block(frame(8, b"x"))
    registry.answers["/schemas/ids/8"] = {"schema": '"int"'}
    assert shown(decoders, frame(8, b"\x0e")).value == 7


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"<html>", "answers no JSON object; is it a registry?"),
        (b"[]", "answers no JSON object"),
        (b"[" * 100_000, "answers no JSON object"),
        ({"schema": 7}, "the registry's answer has no schema"),
        ({"schema": '"nosuch"'}, "schema 8 of the registry: there is no Avro type"),
        ({"schema": LONG, "references": [1]}, "references without name or subject"),
        ({"schema": LONG, "references": 1}, "references without name or subject"),
        (
            b'{"schema": "x", "references": [{"name": "n", "subject": "s", "version": 1e999}]}',
            "references without name or subject",
        ),
        (
            b'{"schema": "x", "references": [{"name": "n", "subject": "\\ud800", "version": 1}]}',
            "references without name or subject",
        ),
        (b" " * (4 * 1024 * 1024 + 1), "answers more than 4194304 bytes"),
        (500, "answers 500"),
    ],
)
def test_invalid_answers_of_a_registry_are_refused(
    registry: FakeRegistry, answer: Any, why: str
) -> None:
    registry.answers["/schemas/ids/8"] = answer
    assert why in failures(shown(of(registry), frame(8, b"x")))["avro"]


def test_only_the_given_registry_address_is_asked(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_registry() as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        registry.redirect = f"{other.url}/schemas/ids/8"
        assert "answers 302" in failures(shown(of(registry), frame(8, b"x")))["avro"]
        assert other.asked == []


def test_the_path_and_the_password_of_a_registry_address_are_used(registry: FakeRegistry) -> None:
    registry.answers["/apis/v7/schemas/ids/8"] = {"schema": '"int"'}
    url = registry.url.replace("http://", "http://ada:s%40crt@") + "/apis/v7/"
    client = SchemaRegistry(url)
    assert client.by_id(8).text == '"int"'
    sent = registry.headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"ada:s@crt"
    assert "s" + "@crt" not in client.shown and client.shown.endswith("/apis/v7")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8081", "file:///etc/passwd", "http://", "http://h?x=1", "ftp://a:secret@h",
        "http://a:se/secret@h", "http://a:80/secret@h:81", "http://a:se#secret@h",
        "http://a:secret?x@h", "http://[a:secret@h",
    ],
)  # fmt: skip
def test_an_invalid_registry_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no address of a schema registry") as refused:
        SchemaRegistry(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "answer",
    [
        {"schemaType": "\x1b[2J\u202e" * 900, "schema": "{}"},
        {"schema": '{"type": "' + "\x1b[2J\u202e".encode("unicode_escape").decode() * 900 + '"}'},
        500,
    ],
)
def test_the_words_of_a_registry_are_short_and_harmless(
    registry: FakeRegistry, answer: Any
) -> None:
    registry.answers["/schemas/ids/8"] = answer
    registry.message = "\x1b[2J\u202e" * 900
    why = failures(shown(of(registry), frame(8, b"x")))["avro"]
    assert why.isprintable() and len(why) < 400


def test_an_unreachable_registry_is_named() -> None:
    found = shown(
        Decoders(schema_registry=SchemaRegistry("http://127.0.0.1:1"), plugins={}), frame(8, b"x")
    )
    assert "http://127.0.0.1:1 cannot be asked: Connection refused" in failures(found)["avro"]


def test_a_registry_that_does_not_answer_is_not_asked_for_other_schemas_for_a_while() -> None:
    """Each record of a topic may have another id, and would wait for its own request."""
    clock = [0.0]
    client = SchemaRegistry("http://127.0.0.1:1", now_s=lambda: clock[0])
    assert not client.is_known(9)
    with pytest.raises(CannotDecode):
        client.by_id(8)
    assert client.is_known(9)
    with pytest.raises(CannotDecode, match="cannot be asked"):
        client.by_id(9)
    clock[0] = 31.0
    assert not client.is_known(9)


@pytest.mark.parametrize("drip", [False, True])
def test_a_registry_that_never_finishes_its_answer_times_out(drip: bool) -> None:
    done = threading.Event()

    def serve(server: socket.socket) -> None:
        link, _ = server.accept()
        with link:
            while drip and not done.wait(0.01):
                try:
                    link.sendall(b"H")
                except OSError:
                    return
            done.wait()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=[server], daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        client = SchemaRegistry(url, timeout_s=0.3)
        found = shown(Decoders(schema_registry=client, plugins={}), frame(8, b"x"))
        done.set()
        thread.join()
    assert failures(found)["avro"] == f"{url} does not answer within 0.3 s"
