"""Protobuf descriptors as a compiler would write them, and messages that match them."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FieldProto = descriptor_pb2.FieldDescriptorProto


def file_of(
    name: str, package: str, messages: dict[str, list[tuple[str, int, Any]]], *imports: str
) -> descriptor_pb2.FileDescriptorProto:
    """A file with message types. Each field is (name, number, a type or the name of a message
    type)."""
    proto = descriptor_pb2.FileDescriptorProto(
        name=name, package=package, syntax="proto3", dependency=imports
    )
    for message, fields in messages.items():
        kind = proto.message_type.add(name=message)
        for field, number, what in fields:
            added = kind.field.add(name=field, number=number, label=FieldProto.LABEL_OPTIONAL)
            if isinstance(what, str):
                added.type, added.type_name = FieldProto.TYPE_MESSAGE, what
            else:
                added.type = what
    return proto


def message_of(files: list[descriptor_pb2.FileDescriptorProto], name: str, **fields: Any) -> bytes:
    """A serialized message."""
    pool = descriptor_pool.DescriptorPool()
    for each in files:
        pool.Add(each)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    serialized: bytes = kind(**fields).SerializeToString()
    return serialized
