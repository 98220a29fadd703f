"""What a person gave an operator, checked before anything else: each mistake is one line that names the operator."""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column

from epochal.runtime.durations import Duration, to_micros
from epochal.runtime.errors import PipelineError


def check_aggregates(name: str, aggregates: Mapping[str, Column]) -> None:
    if not aggregates:
        raise PipelineError(f"operator {name!r}: give at least one aggregate, for example {{'orders': F.count('*')}}")
    for key, column in aggregates.items():
        if not isinstance(column, Column):
            raise PipelineError(f"operator {name!r}: aggregate {key!r} must be a Column such as F.sum('amount')")


def check_keys(name: str, keys: Sequence[str], what: str) -> None:
    if isinstance(keys, str):
        raise PipelineError(f"operator {name!r}: keys must be a list of columns: [{keys!r}]")
    if not keys:
        raise PipelineError(f"operator {name!r}: {what} needs at least one key")


def check_one_of(name: str, argument: str, given: str, possible: Collection[str]) -> None:
    if given not in possible:
        raise PipelineError(f"operator {name!r}: {argument} must be one of {', '.join(possible)}, not {given!r}")


def check_n(name: str, n: object) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise PipelineError(f"operator {name!r}: n must be a whole number from 1, not {n!r}")


def check_columns_given(name: str, argument: str, columns: object) -> None:
    if not isinstance(columns, list | tuple) or not columns or not all(isinstance(one, Column) for one in columns):
        example = "[F.col('amount').desc()]" if argument == "order_by" else "F.col('amount') > 0"
        raise PipelineError(f"operator {name!r}: give {argument} as Spark columns, for example {example}")


def positive(name: str, argument: str, duration: Duration) -> int:
    micros = to_micros(duration)
    if micros <= 0:
        raise PipelineError(f"operator {name!r}: {argument} must be positive, not {duration}")
    return micros


def window_lengths(name: str, size: Duration, slide: Duration | None) -> tuple[int, int | None]:
    length, step = to_micros(size), None if slide is None else to_micros(slide)
    if length <= 0 or (step is not None and not 0 < step <= length):
        raise PipelineError(f"operator {name!r}: a window needs 0 < slide <= size, not {slide} and {size}")
    return length, step
