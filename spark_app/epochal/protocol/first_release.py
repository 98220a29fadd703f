"""What a controller of release 0.1.0 is answered: it refuses a message with a field that it does not know.

Later ones pass over such fields, so nothing is added here: the fields are those of release 0.1.0, for ever.
"""

from typing import Any

from msgspec import Struct

from epochal.protocol.control import OperatorReport

_FIELDS = {
    "DriverStatus": (
        "namespace job generation phase started message restored_epoch newest_number skipped_epochs finished sources "
        "sinks late_rows state_bytes checkpoint edges"
    ),
    "SourceReport": "name batch rows rows_per_second batch_seconds watermark lag idle finished",
    "SinkReport": "name rows_committed",
    "CheckpointReport": "epoch generation then_stop state started finished message bytes operators",
    "OperatorReport": "name kind events bytes rows watermark skipped",
    "Refusal": "reason message",
}
_EVENTS = "STARTED_ALIGNMENT STARTED_CHECKPOINTING FINISHED_OPERATOR_SETUP FINISHED_SYNC COMPLETED FINISHED_COMMIT"


def for_first_release(message: Any) -> Any:
    """The message with what release 0.1.0 knows of it."""
    match message:
        case Struct():
            known = _FIELDS[type(message).__name__].split()
            fields = {name: for_first_release(getattr(message, name)) for name in known}
            if isinstance(message, OperatorReport):
                fields["events"] = {event: at for event, at in message.events.items() if event in _EVENTS.split()}
            return fields
        case tuple():
            return [for_first_release(item) for item in message]
        case _:
            return message
