"""The options of a topic as a table, and which of them fit together."""

from datetime import datetime

from epochal.connectors.connector import Option, Problem, one_of, whole_number
from epochal.connectors.declared_table import DeclaredTable

FORMATS = ("json", "avro", "protobuf", "text", "raw")
RAW = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of a record as Spark gives it."""

TOPICS = {"topic": "subscribe", "topic-pattern": "subscribePattern", "partitions": "assign"}
"""Options that say which records are read, and what Spark calls them."""

OPTIONS = {
    "servers": Option("bootstrap servers, as host:port, separated by commas", required=True),
    "topic": Option("the topic; for a source also several, separated by commas"),
    "topic-pattern": Option("for a source: a regular expression of the topics to read"),
    "partitions": Option('for a source: the partitions to read, such as {"orders": [0, 1]}'),
    "start": Option("where a new job begins: earliest, latest or offsets as JSON; default earliest"),
    "start-time": Option("instead of start: a time to begin at, such as 2026-01-01T00:00:00Z"),
    "records-per-batch": Option("the most records in a micro-batch", whole_number),
    "format": Option(f"{', '.join(FORMATS)}; default json", one_of("is no format", *FORMATS)),
    "avro-schema": Option("the schema of Avro values, as JSON"),
    "protobuf-message": Option("the full name of the Protobuf message, such as shop.Order"),
    "protobuf-descriptor": Option("the Protobuf descriptor file, as protoc --descriptor_set_out writes it"),
    "key": Option("for a sink: the column that becomes the record's key"),
}

SCHEMAS = {"avro-schema": "avro", "protobuf-message": "protobuf", "protobuf-descriptor": "protobuf"}
"""Options that a format cannot do without, and that no other has."""


def wrong_options(table: DeclaredTable) -> Problem | None:
    """The first option that does not fit the others, and why."""
    given = [name for name in TOPICS if table.options.get(name)]
    if len(given) != 1:
        said = f"not {' and '.join(given)}" if given else "to say which records"
        return Problem(
            (given[-1] if given else "connector"), f"give one of 'topic', 'topic-pattern' and 'partitions', {said}"
        )
    if "start" in table.options and "start-time" in table.options:
        return Problem("start-time", "give 'start' or 'start-time', not both")
    if "start-time" in table.options and millis(table.options["start-time"]) is None:
        return Problem(
            "start-time", f"'start-time' is such as 2026-01-01T00:00:00Z, not {table.options['start-time']!r}"
        )
    form = table.option("format", "json")
    for option, needed_by in SCHEMAS.items():
        if form == needed_by and not table.options.get(option):
            return Problem("format", f"the format {form!r} needs {option!r}: {OPTIONS[option].about}")
        if form != needed_by and option in table.options:
            return Problem(option, f"{option!r} is of the format {needed_by!r}, and the format here is {form!r}")
    names = [name for name, _ in table.columns]
    if form == "raw" and (unknown := [name for name in names if name not in RAW]):
        return Problem("format", f"a raw record has no column {', '.join(unknown)}; it has {', '.join(RAW)}")
    if form == "text" and len(names) > 1:
        return Problem("format", f"the format 'text' gives one column, and here are {', '.join(names)}")
    return None


def millis(text: str) -> int | None:
    """Since 1970; a time without a zone is UTC, as everywhere in a job."""
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else datetime.fromisoformat(f"{text}+00:00")
    except ValueError:
        return None
    return round(zoned.timestamp() * 1000)
