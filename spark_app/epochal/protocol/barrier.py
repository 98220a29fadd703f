"""The barrier: the one message that makes a checkpoint happen."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from epochal.protocol.epochs import MAX_EPOCH, Epoch
from epochal.protocol.errors import InvalidBarrierError

EpochField = Annotated[Epoch, Meta(ge=1, le=MAX_EPOCH)]


class CheckpointBarrier(msgspec.Struct, frozen=True, kw_only=True):
    """Goes to every source, and from there through the graph.

    ``epoch`` is the checkpoint that it cuts. ``min_epoch`` is the oldest epoch that must be kept: what only older ones
    refer to may be deleted. ``timestamp`` is when the controller made it, in microseconds since 1970 (UTC).
    ``then_stop`` asks every operator to end after this checkpoint: the graceful stop.
    """

    epoch: EpochField
    min_epoch: EpochField
    timestamp: Annotated[int, Meta(ge=0)]
    then_stop: bool

    def __post_init__(self) -> None:
        # Keyword construction does not validate in msgspec; decoding does, and calls this too.
        if not 1 <= self.min_epoch <= self.epoch <= MAX_EPOCH:
            raise InvalidBarrierError(
                f"a barrier needs 1 <= min_epoch <= epoch <= {MAX_EPOCH}, "
                f"not min_epoch {self.min_epoch} and epoch {self.epoch}"
            )
        if self.timestamp < 0:
            raise InvalidBarrierError(f"a barrier's timestamp is not before 1970: {self.timestamp}")


def encode_barrier(barrier: CheckpointBarrier) -> bytes:
    return msgspec.json.encode(barrier)


def decode_barrier(data: bytes) -> CheckpointBarrier:
    """Read a barrier from the wire; anything missing or of the wrong type is an error that names it. Fields that this
    release does not know are passed over: a controller sends none that matters unless the driver says that it knows it
    (:data:`epochal.protocol.control.FEATURES`)."""
    try:
        return msgspec.json.decode(data, type=CheckpointBarrier)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # a ValidationError is the first, too
        raise InvalidBarrierError(f"not a barrier: {error}") from error


def barrier_to_builtins(barrier: CheckpointBarrier) -> dict[str, Any]:
    return msgspec.structs.asdict(barrier)
