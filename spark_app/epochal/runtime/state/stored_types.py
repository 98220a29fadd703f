"""Types of state: which columns can be stored, and restored rows with the types that were declared.

State goes to the store by way of Arrow and Parquet, which know fewer types than Spark: a collation is lost, and every
interval of days is one of days to seconds. What is declared when an operator is bound says what a column is; what comes
back from the store is made that again, or refused.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from epochal.runtime.errors import PipelineError

SINCE = "__since"
"""Ends the names of columns that state of earlier versions may lack: they are null there."""

LONGEST = 19
"""Digits of a long."""


def stored_type(kind: DataType) -> DataType:
    """What a column of this type is when it comes back from the store, all of it nullable."""
    match kind:
        case ArrayType():
            return ArrayType(stored_type(kind.elementType))
        case MapType():
            return MapType(stored_type(kind.keyType), stored_type(kind.valueType))
        case StructType():
            return StructType([StructField(field.name, stored_type(field.dataType)) for field in kind])
        case StringType():
            return StringType()
        case DayTimeIntervalType():
            return DayTimeIntervalType()
        case _:
            return kind


def check_storable(schema: StructType, what: str = "column") -> None:
    """Refuse columns that neither the store nor Python can take."""
    for field in schema:
        if set(field.name) & set(".`"):  # PySpark sends no such column to Python
            raise PipelineError(
                f"{what} {field.name!r} has a dot or a backtick in its name, which cannot be stored or sent to Python: "
                "rename it before"
            )
        if not is_storable(field.dataType):
            raise PipelineError(
                f"{what} {field.name!r} is {_article(field.dataType)}, which cannot be stored or sent to Python: "
                f"leave it out, or cast it before{_advice(field.dataType)}"
            )


def is_storable(kind: DataType) -> bool:
    wanted = stored_type(kind)
    if contains(kind, (NullType,)) or _has_twins(kind):  # Parquet has neither
        return False
    try:
        return from_arrow_type(to_arrow_type(wanted, timezone="UTC")) == wanted
    except Exception:  # Arrow's and Spark's errors for this are many
        return False


def as_declared(frame: DataFrame, schema: StructType, *, table: str) -> DataFrame:
    """Restored rows with the declared columns and types; what they cannot be made is told."""
    had = {field.name: field.dataType for field in frame.schema}
    lacking = [field.name for field in schema if field.name not in had and not field.name.endswith(SINCE)]
    unknown = set(had) - set(schema.names)
    if lacking or unknown or not all(_fits(had[one.name], one.dataType) for one in schema if one.name in had):
        raise PipelineError(
            f"table {table!r}: the restored epoch has {_told(had)}, and the operator keeps "
            f"{_told({field.name: field.dataType for field in schema})}: give the changed operator another name, "
            "or set allowEmptyStart to drop that state"
        )
    return frame.select(*(_declared(field, had.get(field.name)) for field in schema))


def with_types_of(frame: DataFrame, schema: StructType) -> DataFrame:
    """Restored rows with the declared types of those columns that are the same as far as the store can tell."""
    kinds = {field.name: field for field in schema}
    return frame.select(
        *(
            _declared(kinds[field.name], field.dataType)
            if field.name in kinds and same_types(field.dataType, kinds[field.name].dataType)
            else F.col(field.name)
            for field in frame.schema
        )
    )


def _declared(field: StructField, had: DataType | None) -> Column:
    column = F.lit(None) if had is None else F.col(field.name)
    if had is not None and had.simpleString() == field.dataType.simpleString():
        return column
    return column.cast(_nullable(field.dataType)).alias(field.name)


def _nullable(kind: DataType) -> DataType:
    """The type, with nulls wherever they may be: Spark casts nothing to a type that forbids them."""
    match kind:
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
        case StructType():
            return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind])
        case _:
            return kind


def same_types(restored: DataType, declared: DataType) -> bool:
    """Whether restored values are of the declared type, as far as the store can tell."""
    return stored_type(restored).simpleString() == stored_type(declared).simpleString()


def _fits(restored: DataType, declared: DataType) -> bool:
    if isinstance(restored, DecimalType) and isinstance(declared, DecimalType):
        # Sums of earlier versions grew by a digit with each addition.
        return restored.scale == declared.scale and restored.precision >= declared.precision
    if isinstance(restored, LongType) and isinstance(declared, DecimalType):
        # Sums that rows can be taken back of were whole numbers in earlier versions.
        return declared.scale == 0 and declared.precision >= LONGEST
    return same_types(restored, declared)


def contains(kind: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    """Whether a type is, or has inside, one of these."""
    match kind:
        case _ if isinstance(kind, kinds):
            return True
        case ArrayType():
            return contains(kind.elementType, kinds)
        case MapType():
            return contains(kind.keyType, kinds) or contains(kind.valueType, kinds)
        case StructType():
            return any(contains(field.dataType, kinds) for field in kind)
        case _:
            return False


def _has_twins(kind: DataType) -> bool:
    """Whether a struct in it has two fields of one name."""
    match kind:
        case ArrayType():
            return _has_twins(kind.elementType)
        case MapType():
            return _has_twins(kind.keyType) or _has_twins(kind.valueType)
        case StructType():
            return len(set(kind.names)) < len(kind.names) or any(_has_twins(field.dataType) for field in kind)
        case _:
            return False


def is_collated(kind: DataType) -> bool:
    """Whether equal strings of this type, or inside of it, may differ in their bytes."""
    return " collate " in kind.simpleString()


def has_order(kind: DataType) -> bool:
    return not contains(kind, (MapType, VariantType))


def _article(kind: DataType) -> str:
    text = kind.simpleString()
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"


def _advice(kind: DataType) -> str:
    if contains(kind, (YearMonthIntervalType, CalendarIntervalType)):
        return " (intervals of months to a number of months, intervals of a calendar to days and seconds)"
    if contains(kind, (NullType,)):
        return " to the type that it should have"
    if _has_twins(kind):
        return " to a struct whose fields have different names"
    return ""


def _told(columns: dict[str, DataType]) -> str:
    return ", ".join(f"{name.removeprefix('__')} ({kind.simpleString()})" for name, kind in columns.items())
