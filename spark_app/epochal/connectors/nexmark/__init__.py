"""The events of an auction site, made by Spark itself: see docs/nexmark.md."""

from typing import TYPE_CHECKING

from epochal.connectors.connector import Connector, Option, Promise, Reads, one_of, whole_number
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.stream_end import StreamEnd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from epochal.connectors.nexmark.events import AUCTION, BID, CYCLE, PERSON, Nexmark, side_table

__all__ = ["AUCTION", "BID", "CYCLE", "KINDS", "PERSON", "Nexmark", "NexmarkEvents", "side_table"]

KINDS = ("person", "auction", "bid")


def _read(spark: "SparkSession", table: DeclaredTable) -> "DataFrame":
    from pyspark.sql import functions as F

    from epochal.connectors.nexmark.events import Nexmark

    nexmark = Nexmark(
        seed=int(table.option("seed", "0")), events_per_second=int(table.option("events-per-second", "10000"))
    )
    kind = table.options["events"]
    return nexmark.stream(spark).where(F.col(kind).isNotNull()).select(f"{kind}.*")


class NexmarkEvents(StreamEnd):
    _connector = Connector(
        name="nexmark",
        title="Nexmark",
        reads=Reads(
            table=_read,
            promise=Promise(
                guarantee="for trials and benchmarks",
                how="the same events for the same seed",
                tests=("nexmark/test_generator.py",),
            ),
        ),
        options={
            "events": Option(f"which events: {', '.join(KINDS)}", one_of("are no events", *KINDS), required=True),
            "events-per-second": Option("events of all three kinds in a second; default 10000", whole_number),
            "seed": Option("the seed of the generator; default 0", whole_number),
        },
    )


if not TYPE_CHECKING:  # the events are made of Spark's expressions: they are looked up when they are used

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from epochal.connectors.nexmark import events

        return getattr(events, name)
