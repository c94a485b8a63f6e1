"""The schema of Chakra as protocol buffers compile it, as an oracle that is not ours; and our decoder in one call."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from etloop.workload._et import EtColumns, EtDecoder, EtFault
from etloop.workload.chakra.encoder import EtNode, ValueCase

_TYPE: Final = descriptor_pb2.FieldDescriptorProto
CASE_TYPES: Final = {case: getattr(_TYPE, f"TYPE_{case.name}") for case in ValueCase}


def schema() -> Any:
    """The schema of today as descriptors, written down from its field table and compiled by protocol buffers."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")

    def message(name: str, *fields: tuple[int, str, int, bool], of: dict[str, str] | None = None) -> Any:
        entry = file.message_type.add(name=name)
        for number, field_name, type_, repeated in fields:
            label = _TYPE.LABEL_REPEATED if repeated else _TYPE.LABEL_OPTIONAL
            added = entry.field.add(name=field_name, number=number, type=type_, label=label)
            if of and field_name in of:
                added.type_name = f".ChakraProtoMsg.{of[field_name]}"
        return entry

    text, number, submessage = _TYPE.TYPE_STRING, _TYPE.TYPE_UINT64, _TYPE.TYPE_MESSAGE
    attribute = message("AttributeProto", (1, "name", text, False), (2, "doc_string", text, False))
    attribute.oneof_decl.add(name="value")
    for case, type_ in CASE_TYPES.items():
        short = case.name.lower()
        message(f"{short}_list_message", (1, "values", type_, True))
        attribute.field.add(name=f"{short}_val", number=case, type=type_, label=1, oneof_index=0)
        attribute.field.add(
            name=f"{short}_list",
            number=case + 1,
            type=submessage,
            type_name=f".ChakraProtoMsg.{short}_list_message",
            label=1,
            oneof_index=0,
        )
    of = {"attr": "AttributeProto"}
    message("GlobalMetadata", (1, "version", text, False), (2, "attr", submessage, True), of=of)
    message("IOInfo", (1, "values", text, False), (2, "shapes", text, False), (3, "types", text, False))
    message(
        "Node",
        *((1, "id", number, False), (2, "name", text, False), (3, "type", _TYPE.TYPE_INT32, False)),
        *((4, "ctrl_deps", number, True), (5, "data_deps", number, True)),
        *((6, "start_time_micros", number, False), (7, "duration_micros", number, False)),
        *(
            (8, "inputs", submessage, False),
            (9, "outputs", submessage, False),
            (10, "attr", submessage, True),
        ),
        of=of | {"inputs": "IOInfo", "outputs": "IOInfo"},
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles(["et_def.proto"], pool)


SCHEMA: Final = schema()
OfficialNode: Final = SCHEMA["ChakraProtoMsg.Node"]
OfficialMetadata: Final = SCHEMA["ChakraProtoMsg.GlobalMetadata"]


def official(node: EtNode) -> Any:
    """The same node as protocol buffers hold it."""
    made = OfficialNode(
        id=node.node_id,
        name=node.name,
        type=int(node.kind),
        ctrl_deps=node.ctrl_deps,
        data_deps=node.data_deps,
        start_time_micros=node.start_us,
        duration_micros=node.duration_us,
    )
    for attribute in node.attributes:
        added = made.attr.add(name=attribute.name)
        short = attribute.case.name.lower()
        if isinstance(attribute.value, tuple):
            values = getattr(added, f"{short}_list")
            values.SetInParent()
            values.values.extend(attribute.value)
        elif attribute.value is not None:
            setattr(added, f"{short}_val", attribute.value)
    return made


def decode(raw: bytes, piece_bytes: int = 1 << 20) -> EtColumns:
    decoder = EtDecoder()
    for first in range(0, len(raw), piece_bytes):
        assert decoder.feed(raw[first : first + piece_bytes]), decoder.fault and decoder.fault.what
    assert decoder.finish(), decoder.fault and decoder.fault.what
    return decoder.columns


def fault(raw: bytes, piece_bytes: int = 1 << 20) -> EtFault:
    decoder = EtDecoder()
    for first in range(0, len(raw), piece_bytes):
        decoder.feed(raw[first : first + piece_bytes])
    assert not decoder.finish()
    assert decoder.fault is not None
    return decoder.fault
