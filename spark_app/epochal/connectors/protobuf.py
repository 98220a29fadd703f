"""Protobuf messages in a column of bytes, by a descriptor file: what Spark's ``from_protobuf`` does, in Python.

Spark's own needs the Java archive ``spark-protobuf``, which is not published for every version of Spark. This one needs
the Python package ``protobuf`` (the extra ``protobuf``) on the driver and on the executors.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from epochal.runtime.errors import PipelineError

TIMESTAMP = "google.protobuf.Timestamp"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

OnMalformed = Literal["fail", "null"]

_SCALARS: Mapping[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: LongType(),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
    FieldDescriptor.CPPTYPE_STRING: StringType(),
}


def from_protobuf(
    column: Column | str, message_name: str, descriptor_file: str, *, on_malformed: OnMalformed = "fail"
) -> Column:
    """The messages in ``column`` as structs. ``descriptor_file`` is what ``protoc --include_imports
    --descriptor_set_out=FILE`` writes; it is read by the driver only. ``message_name`` is the full one, such as
    ``shop.Order``.

    Enums become their names, ``google.protobuf.Timestamp`` a timestamp, and what is not set null where Protobuf can
    tell. A value that is no such message fails the job, or becomes null.
    """
    if on_malformed not in ("fail", "null"):
        raise PipelineError(f"on_malformed is 'fail' or 'null', not {on_malformed!r}")
    try:
        descriptors = Path(descriptor_file).read_bytes()
    except OSError as error:
        raise PipelineError(f"the descriptor file {descriptor_file} cannot be read: {error.strerror}") from error
    schema = _struct(_message(descriptors, message_name), ())

    def decode(values: pa.Array) -> pa.Array:
        # Workers make the class from the same bytes, once each: they need no generated code.
        read = _reader(descriptors, message_name)
        rows = [
            None if value is None else _decoded(read, value, message_name, on_malformed) for value in values.to_pylist()
        ]
        return pa.array(rows, to_arrow_type(schema, timezone="UTC"))

    # Its stubs want the kind of function; Spark itself wants it from the types above, and warns otherwise.
    made: Column = arrow_udf(decode, schema)(column)  # type: ignore[call-overload]
    return made


def _decoded(
    read: Callable[[bytes], dict[str, Any]], value: bytes, name: str, on_malformed: OnMalformed
) -> dict[str, Any] | None:
    try:
        return read(value)
    except message.DecodeError as error:
        if on_malformed == "null":
            return None
        raise ValueError(f"a value of {len(value)} bytes is no {name}: {error}") from error


@cache
def _reader(descriptors: bytes, name: str) -> Callable[[bytes], dict[str, Any]]:
    descriptor = _message(descriptors, name)
    made = message_factory.GetMessageClass(descriptor)
    return lambda value: _row(made.FromString(value), descriptor)


def _message(descriptors: bytes, name: str) -> Descriptor:
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        for file in files:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        known = ", ".join(f"{file.package}.{one.name}".lstrip(".") for file in files for one in file.message_type)
        raise PipelineError(f"the descriptor file has no message {name!r}; it has {known or 'none'}") from error
    except (message.DecodeError, TypeError) as error:
        raise PipelineError(
            f"the descriptor file cannot be used: write it with protoc --include_imports --descriptor_set_out ({error})"
        ) from error


# --- types ---


def _struct(descriptor: Descriptor, around: tuple[str, ...]) -> StructType:
    if descriptor.full_name in around:
        raise PipelineError(f"message {descriptor.full_name} holds itself: such a struct has no end, and no type")
    inside = (*around, descriptor.full_name)
    return StructType([StructField(field.name, _type(field, inside)) for field in descriptor.fields])


def _type(field: FieldDescriptor, around: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return MapType(_one_type(key, around), _one_type(value, around))
    one = _one_type(field, around)
    return ArrayType(one) if field.is_repeated else one


def _one_type(field: FieldDescriptor, around: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        return TimestampType() if field.message_type.full_name == TIMESTAMP else _struct(field.message_type, around)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return BinaryType()
    return _SCALARS[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


# --- values ---


def _row(found: Any, descriptor: Descriptor) -> dict[str, Any]:
    return {field.name: _value(found, field) for field in descriptor.fields}


def _value(found: Any, field: FieldDescriptor) -> Any:
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return [(key, _one_value(value, kind)) for key, value in getattr(found, field.name).items()]
    if field.is_repeated:
        return [_one_value(value, field) for value in getattr(found, field.name)]
    if field.has_presence and not found.HasField(field.name):
        return None
    return _one_value(getattr(found, field.name), field)


def _one_value(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return _row(value, field.message_type)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 and value >= 2**63:
        return value - 2**64
    return value
