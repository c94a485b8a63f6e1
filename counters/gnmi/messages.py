"""The gNMI messages that counters need, as protobuf classes built from the tables below. Pure.

Field numbers are those of openconfig/gnmi:proto/gnmi/gnmi.proto (gNMI 0.10), which never change; fields that are not listed,
such as extensions, are kept as unknown fields and ignored. `Set` is not supported. The classes live in a descriptor pool of
their own, so that another package's gNMI can be loaded in the same process. A test compares every field with another
implementation's.

protobuf makes classes at run time, so their types are `Any`; callers convert them into typed values at once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "gnmi"
SERVICE: Final = "gnmi.gNMI"
VERSION: Final = "0.10.0"
"""Version of the protocol, as Capabilities reports it."""


class Encoding(IntEnum):
    """Encodings of values."""

    JSON = 0
    BYTES = 1
    PROTO = 2
    ASCII = 3
    JSON_IETF = 4


class ListMode(IntEnum):
    """Modes of a list of subscriptions."""

    STREAM = 0
    ONCE = 1
    POLL = 2


class SubscriptionMode(IntEnum):
    """Modes of one path in a STREAM subscription: when it is sent."""

    TARGET_DEFINED = 0
    ON_CHANGE = 1
    SAMPLE = 2


class DataType(IntEnum):
    """Kinds of data that a Get requests."""

    ALL = 0
    CONFIG = 1
    STATE = 2
    OPERATIONAL = 3


_ENUMS: Final[dict[str, type[IntEnum]]] = {
    "Encoding": Encoding,
    "SubscriptionMode": SubscriptionMode,
    "SubscriptionList.Mode": ListMode,
    "GetRequest.DataType": DataType,
}
# name -> fields "type name = number"; `*` repeats, `|` is a member of the message's oneof.
_MESSAGES: Final = {
    "Notification": "int64 timestamp=1, Path prefix=2, *Update update=4, *Path delete=5, bool atomic=6",
    "Update": "Path path=1, TypedValue val=3, uint32 duplicates=4",
    "TypedValue": "|string string_val=1, |int64 int_val=2, |uint64 uint_val=3, |bool bool_val=4, |bytes bytes_val=5, "
    "|float float_val=6, |Decimal64 decimal_val=7, |ScalarArray leaflist_val=8, |bytes json_val=10, |bytes json_ietf_val=11, "
    "|string ascii_val=12, |bytes proto_bytes=13, |double double_val=14",
    "Path": "*string element=1, string origin=2, *PathElem elem=3, string target=4",
    "PathElem": "string name=1, *PathElem.KeyEntry key=2",
    "Decimal64": "int64 digits=1, uint32 precision=2",
    "ScalarArray": "*TypedValue element=1",
    "SubscribeRequest": "|SubscriptionList subscribe=1, |Poll poll=3",
    "Poll": "",
    "SubscribeResponse": "|Notification update=1, |bool sync_response=3",
    "SubscriptionList": "Path prefix=1, *Subscription subscription=2, SubscriptionList.Mode mode=5, bool allow_aggregation=6, "
    "*ModelData use_models=7, Encoding encoding=8, bool updates_only=9",
    "Subscription": "Path path=1, SubscriptionMode mode=2, uint64 sample_interval=3, bool suppress_redundant=4, "
    "uint64 heartbeat_interval=5",
    "GetRequest": "Path prefix=1, *Path path=2, GetRequest.DataType type=3, Encoding encoding=5, *ModelData use_models=6",
    "GetResponse": "*Notification notification=1",
    "CapabilityRequest": "",
    "CapabilityResponse": "*ModelData supported_models=1, *Encoding supported_encodings=2, string gNMI_version=3",
    "ModelData": "string name=1, string organization=2, string version=3",
}
_ONEOF: Final = "one_of"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="etloop/gnmi.proto", package=PACKAGE, syntax="proto3")
    messages = {}
    for name, fields in _MESSAGES.items():
        messages[name] = message = file.message_type.add(name=name)
        if "|" in fields:
            message.oneof_decl.add(name=_ONEOF)
        for field in filter(None, fields.split(", ")):
            _add_field(message, field)
    entry = messages["PathElem"].nested_type.add(name="KeyEntry")
    entry.options.map_entry = True
    _add_field(entry, "string key=1")
    _add_field(entry, "string value=2")
    for name, members in _ENUMS.items():
        owner, _, enum_name = name.rpartition(".")
        enum = (messages[owner] if owner else file).enum_type.add(name=enum_name)
        for member in members:
            enum.value.add(name=member.name, number=member.value)
    return file


def _add_field(message: Any, written: str) -> None:
    kind, _, assignment = written.lstrip("*|").partition(" ")
    name, _, number = assignment.partition("=")
    field = message.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if written[0] == "*" else _Field.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind in _ENUMS else _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    if written[0] == "|":
        field.oneof_index = 0


POOL: Final = descriptor_pool.DescriptorPool()
POOL.Add(_file())


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Notification: Final = _message_class("Notification")
Update: Final = _message_class("Update")
TypedValue: Final = _message_class("TypedValue")
Path: Final = _message_class("Path")
SubscribeRequest: Final = _message_class("SubscribeRequest")
SubscribeResponse: Final = _message_class("SubscribeResponse")
GetRequest: Final = _message_class("GetRequest")
GetResponse: Final = _message_class("GetResponse")
CapabilityRequest: Final = _message_class("CapabilityRequest")
CapabilityResponse: Final = _message_class("CapabilityResponse")


def kind_of(message: Any) -> str:
    """Return the name of the set member of the message's oneof, or "" if none is set."""
    return message.WhichOneof(_ONEOF) or ""
