"""Kafka values in Avro and Protobuf, by the cookbook's programs in Python and in SQL, from a real broker."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal.connectors.protobuf import from_protobuf
from epochal.runtime.errors import PipelineError
from tests.connectors.test_cookbook import run_both
from tests.support.kafka.broker import KafkaBroker, Record

pytestmark = pytest.mark.slow

AT = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
MICROS = 1_767_268_800_250_000

Field = descriptor_pb2.FieldDescriptorProto


# --- Avro ---


def avro_long(value: int) -> bytes:
    value, made = (value << 1) ^ (value >> 63), b""
    while value > 127:
        value, made = value >> 7, made + bytes([value & 127 | 128])
    return made + bytes([value])


def avro_order(number: int, country: str | None) -> bytes:
    """As the specification says: a union is the place of its branch, a string has its length before it."""
    text = b"" if country is None else avro_long(len(country.encode())) + country.encode()
    return avro_long(number) + avro_long(0 if country is None else 1) + text + avro_long(MICROS)


def test_avro(spark: SparkSession, tmp_path: Path, broker: KafkaBroker, topic: str) -> None:
    broker.send(topic, [Record(0, avro_order(1, "dé")), Record(1, avro_order(-200, None))])
    given = {"kafka": broker.address, "orders": topic}
    wanted = [
        {"id": -200, "country": None, "ordered_at": AT},
        {"id": 1, "country": "dé", "ordered_at": AT},
    ]
    assert run_both(spark, tmp_path, "kafka_avro", given) == [wanted, wanted]


# --- Protobuf ---


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What protoc makes of the recipe's message, with more kinds of fields."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    order.field.add(name="country", number=2, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    order.field.add(
        name="ordered_at", number=3, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    order.field.add(name="tags", number=4, type=Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    _more_kinds(file)
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    path = tmp_path_factory.mktemp("descriptor") / "orders.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[timestamp, file]).SerializeToString())
    return path


def _more_kinds(file: descriptor_pb2.FileDescriptorProto) -> None:
    kinds = file.enum_type.add(name="Kind")
    for number, name in enumerate(("UNKNOWN", "GIFT")):
        kinds.value.add(name=name, number=number)
    all_kinds = file.message_type.add(name="AllKinds")
    entry = all_kinds.nested_type.add(name="PricesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_DOUBLE, label=Field.LABEL_OPTIONAL)
    add = all_kinds.field.add
    add(name="kind", number=1, type=Field.TYPE_ENUM, label=Field.LABEL_OPTIONAL, type_name=".shop.Kind")
    add(
        name="prices",
        number=2,
        type=Field.TYPE_MESSAGE,
        label=Field.LABEL_REPEATED,
        type_name=".shop.AllKinds.PricesEntry",
    )
    add(name="order", number=3, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".shop.Order")
    add(name="raw", number=4, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)
    add(name="small", number=5, type=Field.TYPE_UINT32, label=Field.LABEL_OPTIONAL)
    add(name="yes", number=6, type=Field.TYPE_BOOL, label=Field.LABEL_OPTIONAL)
    add(name="orders", number=7, type=Field.TYPE_MESSAGE, label=Field.LABEL_REPEATED, type_name=".shop.Order")
    itself = file.message_type.add(name="Endless")
    itself.field.add(
        name="inside", number=1, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".shop.Endless"
    )


def message_of(descriptor: Path, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def order(descriptor: Path, number: int, *tags: str) -> Any:
    made = message_of(descriptor, "shop.Order")(id=number, country="de", tags=tags)
    made.ordered_at.FromMicroseconds(MICROS)
    return made


def test_protobuf(spark: SparkSession, tmp_path: Path, broker: KafkaBroker, topic: str, descriptor: Path) -> None:
    orders = [order(descriptor, 1, "a", "b"), order(descriptor, 2)]
    broker.send(topic, [Record(number, one.SerializeToString()) for number, one in enumerate(orders)])
    given = {"kafka": broker.address, "orders": topic, "descriptor": str(descriptor)}
    wanted = [
        {"id": 1, "country": "de", "ordered_at": AT, "tags": ["a", "b"]},
        {"id": 2, "country": "de", "ordered_at": AT, "tags": []},
    ]
    assert run_both(spark, tmp_path, "kafka_protobuf", given) == [wanted, wanted]


def test_every_kind_of_protobuf_field(spark: SparkSession, descriptor: Path) -> None:
    kinds = message_of(descriptor, "shop.AllKinds")
    whole = kinds(kind=1, prices={"a": 1.5}, raw=b"\xff", small=2**32 - 1, yes=True)
    whole.order.ParseFromString(order(descriptor, 7, "x").SerializeToString())
    values = [(1, whole.SerializeToString()), (2, b""), (3, b"\xff\xff"), (4, None)]
    frame = spark.createDataFrame(
        [(number, value and bytearray(value)) for number, value in values], "n int, value binary"
    )
    decoded = from_protobuf("value", "shop.AllKinds", str(descriptor), on_malformed="null")
    found = {row["n"]: row["row"] for row in frame.select("n", decoded.alias("row")).collect()}
    assert found[1].asDict(recursive=True) == {
        "kind": "GIFT", "prices": {"a": 1.5}, "raw": bytearray(b"\xff"), "small": 2**32 - 1, "yes": True, "orders": [],
        "order": {"id": 7, "country": "de", "ordered_at": found[1].order.ordered_at, "tags": ["x"]},
    }  # fmt: skip
    assert found[2].asDict() == {
        "kind": "UNKNOWN", "prices": {}, "order": None, "raw": bytearray(), "small": 0, "yes": False, "orders": [],
    }  # fmt: skip
    assert found[3] is None
    assert found[4] is None
    strict = from_protobuf("value", "shop.AllKinds", str(descriptor))
    with pytest.raises(Exception, match=r"a value of 2 bytes is no shop\.AllKinds"):
        frame.where(F.col("n") == 3).select(strict).collect()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("shop.Ordr", None, "has no message 'shop.Ordr'; it has google.protobuf.Timestamp, shop.Order"),
        ("shop.Endless", None, "shop.Endless holds itself"),
        ("shop.Order", b"\xff\xff", "write it with protoc --include_imports"),
        ("shop.Order", b"", "has no message 'shop.Order'; it has none"),
    ],
)
def test_a_wrong_descriptor_is_told(
    descriptor: Path, tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    path = descriptor
    if content is not None:
        path = tmp_path / "wrong.desc"
        path.write_bytes(content)
    with pytest.raises(PipelineError, match=says):
        from_protobuf("value", name, str(path))


def test_a_descriptor_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"gone\.desc cannot be read: No such file"):
        from_protobuf("value", "shop.Order", str(tmp_path / "gone.desc"))
