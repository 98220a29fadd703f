"""What controller and driver say to each other: over HTTP, and in the file that a driver is started with.

The controller decides, the driver does local work and reports. Both sides import these types, so neither can misspell.

They may be of different releases: a job's image is its owner's to choose. So a reader passes over fields that it does
not know, and a writer leaves out what the reader may not know:

- A new field has a default, and is left out of what a controller writes as long as it has that.
- A driver says in its status what it can do (:data:`FEATURES`); what it does not name, a controller does not ask for.
  A configuration is written before there is a status: it names in ``needs`` what must not be passed over.
- A controller sends its release with each request (:data:`RELEASE_HEADER`). One that does not is of release 0.1.0. It
  refuses fields that it does not know, and gets none (:mod:`epochal.protocol.first_release`).
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from epochal.protocol.barrier import CheckpointBarrier, EpochField
from epochal.protocol.documents import GenerationField, ParentField
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH

LARGEST_NUMBER = 2**53
"""Larger ones are no numbers for JSON readers and Prometheus: who says them is not believed."""

Micros = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
"""A moment: microseconds since 1970, UTC."""

Amount = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]


FEATURES = frozenset({"commit-only", "repeat"})
"""What a driver of this release can do that one of release 0.1.0 cannot."""

RELEASE_HEADER = "Epochal-Release"


class _Message(Struct, frozen=True, kw_only=True):
    pass


# --- checkpoints ------------------------------------------------------------------------------------------------------


class CheckpointRequest(_Message, frozen=True):
    """Body of ``POST /v1/checkpoints``. The same one twice is one checkpoint."""

    generation: GenerationField
    barrier: CheckpointBarrier


class RefusalReason(StrEnum):
    """Why a driver does not take a barrier."""

    STALE_GENERATION = "StaleGeneration"
    STALE_EPOCH = "StaleEpoch"
    CHECKPOINT_IN_FLIGHT = "CheckpointInFlight"
    NOT_RUNNING = "NotRunning"


class Refusal(_Message, frozen=True):
    """Answer of 409: the barrier was understood, and is not taken."""

    reason: RefusalReason
    message: str


class OperatorEvent(StrEnum):
    """What an operator goes through in a checkpoint, in this order."""

    STARTED_ALIGNMENT = "STARTED_ALIGNMENT"
    STARTED_CHECKPOINTING = "STARTED_CHECKPOINTING"
    FINISHED_OPERATOR_SETUP = "FINISHED_OPERATOR_SETUP"
    FINISHED_SYNC = "FINISHED_SYNC"
    COMPLETED = "COMPLETED"
    FINISHED_COMMIT = "FINISHED_COMMIT"


SPANS = {
    "alignment": (OperatorEvent.STARTED_ALIGNMENT, OperatorEvent.STARTED_CHECKPOINTING),
    "sync": (OperatorEvent.STARTED_CHECKPOINTING, OperatorEvent.FINISHED_SYNC),
    "async": (OperatorEvent.FINISHED_SYNC, OperatorEvent.COMPLETED),
    "committing": (OperatorEvent.COMPLETED, OperatorEvent.FINISHED_COMMIT),
}
"""An operator's time in a checkpoint, by the events that it lies between. Only two-phase sinks commit."""


class OperatorReport(_Message, frozen=True):
    """One operator's part in a checkpoint. Spans: alignment, sync, async and committing lie between its events. These
    are :class:`OperatorEvent`, and whatever a newer release adds."""

    name: str
    kind: str
    events: dict[str, Micros] = {}
    bytes: Amount = 0
    rows: Amount = 0
    watermark: int | None = None
    skipped: bool = False


class CheckpointState(StrEnum):
    IN_PROGRESS = "InProgress"
    COMMITTING = "Committing"
    READY = "Ready"
    FAILED = "Failed"


class CheckpointReport(_Message, frozen=True):
    """Answer of ``POST``, ``GET`` and ``DELETE`` on ``/v1/checkpoints``.

    From ``Committing`` on the epoch is published; ``Ready`` says that its sinks have committed, too.
    """

    epoch: EpochField
    generation: GenerationField
    then_stop: bool
    state: CheckpointState
    started: Micros
    finished: Micros | None = None
    message: str = ""
    bytes: Amount = 0
    operators: tuple[OperatorReport, ...] = ()

    @property
    def operators_done(self) -> int:
        return sum(OperatorEvent.COMPLETED in operator.events for operator in self.operators)


# --- status -----------------------------------------------------------------------------------------------------------


class DriverPhase(StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FAILED = "Failed"


class SourceReport(_Message, frozen=True):
    """``lag`` is how far event time is behind the clock, in seconds; None before the first row with a time."""

    name: str
    batch: int
    rows: Amount
    rows_per_second: float
    batch_seconds: float
    watermark: int | None = None
    lag: float | None = None
    idle: bool = False
    finished: bool = False


class SinkReport(_Message, frozen=True):
    name: str
    rows_committed: Amount


class DriverStatus(_Message, frozen=True, omit_defaults=True):
    """Answer of ``GET /v1/status``.

    ``restored_epoch`` is what this generation began with (0: empty), ``newest_number`` the highest epoch number that it
    saw in the store, sealed ones included; both None until it has restored. ``finished``: every source has ended.
    ``ending``: it was asked to end by others than the controller, and waits for a last checkpoint as long as it can.
    ``release`` and ``features`` are the driver's; a driver of release 0.1.0 does not say them.
    """

    namespace: str
    job: str
    generation: GenerationField
    phase: DriverPhase
    started: Micros
    message: str = ""
    restored_epoch: ParentField | None = None
    newest_number: ParentField | None = None
    skipped_epochs: dict[str, str] = {}
    finished: bool = False
    ending: bool = False
    sources: tuple[SourceReport, ...] = ()
    sinks: tuple[SinkReport, ...] = ()
    late_rows: Amount = 0
    state_bytes: Amount = 0
    checkpoint: CheckpointReport | None = None
    edges: tuple[tuple[str, str], ...] = ()
    release: str = ""
    features: tuple[str, ...] = ()


class HealthReport(_Message, frozen=True):
    """Answer of ``GET /healthz``, to anybody. ``tls``: all but probes and metrics is answered over TLS only. Drivers of
    releases before TLS do not say it."""

    ok: bool = True
    tls: bool = False


# --- starting a driver ------------------------------------------------------------------------------------------------


class StorageConfig(_Message, frozen=True, omit_defaults=True):
    """Where checkpoints go. Credentials come by environment, never in here."""

    uri: str
    endpoint: str | None = None
    region: str | None = None


class RestoreConfig(_Message, frozen=True, omit_defaults=True):
    """What the controller knows and wants when it starts a generation: :class:`epochal.protocol.start.StartRequest`.

    ``commit_only``: the job is to rest, and its newest epoch is not committed. Commit it and end, without reading on.
    ``repeat``: output that a sink cannot take back may come a second time.
    """

    known: ParentField = NO_EPOCH
    issued: ParentField = NO_EPOCH
    min_epoch: EpochField = FIRST_EPOCH
    back_to: ParentField | None = None
    savepoint: str | None = None
    allow_empty: bool = False
    commit_only: bool = False
    repeat: bool = False


class PipelineConfig(_Message, frozen=True, omit_defaults=True):
    """One of ``module`` (``package.module:function``, importable), ``file`` (a path of Python, with ``function``, or of
    SQL, by its ending) and ``sql`` (the text itself)."""

    module: str | None = None
    file: str | None = None
    sql: str | None = None
    function: str = "build"
    parameters: dict[str, str] = {}


class DriverConfig(_Message, frozen=True, omit_defaults=True):
    """The file that a driver is started with: ``python -m epochal.driver CONFIG.json``.

    ``needs`` names :data:`FEATURES` without which it must not be run: a driver that does not know one of them ends.

    What the control server needs to know in secret comes by environment: :data:`TOKEN_VARIABLE`, or files that
    :data:`SECRETS_VARIABLE` leads to. ``port`` 0 takes a free one; ``ready_file`` is then written (atomically) with the
    address, ``http://host:port``.

    ``in_place``: who started the driver follows one that begins the next generation by itself, in the same process,
    when it loses an executor. Without it such a driver ends.
    """

    namespace: str
    job: str
    generation: GenerationField
    storage: StorageConfig
    pipeline: PipelineConfig
    restore: RestoreConfig = RestoreConfig()
    spark_conf: dict[str, str] = {}
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    ready_file: str | None = None
    work_dir: str | None = None
    needs: tuple[str, ...] = ()
    in_place: bool = False


EXIT_STOPPED = 0
"""The driver stopped as asked: its last checkpoint is published and committed."""

EXIT_FAILED = 1
"""The pipeline failed; time fixes it, and a new generation may work."""

EXIT_MISCONFIGURED = 2
"""The job itself is wrong: its pipeline, a name, a setting. Only an edit fixes it."""

EXIT_FENCED = 3
"""A newer generation has taken over."""

EXIT_NOTHING_TO_RESTORE = 4
"""There was state and none of it can be restored; starting empty was not allowed."""

EXIT_WOULD_REPEAT = 5
"""Going back would bring committed output a second time: the spec has to choose whether that may be."""

EXIT_REFUSED = 6
"""Something outside says no, and a person must fix it there: a password, a right, a table. A later generation finds it
fixed, without an edit of the job."""

EXIT_DRAINED = 7
"""The driver was asked to end (its pod was evicted, its node shut down), and no last checkpoint was made in time."""

TOKEN_VARIABLE = "EPOCHAL_TOKEN"

SECRETS_VARIABLE = "EPOCHAL_SECRETS"
"""Where a driver runs in a pod: a directory with the files below. With it, :data:`TOKEN_VARIABLE` counts for nothing:
that is for images of releases before TLS, which do not know this variable."""

SERVER_TOKEN_FILE = "server-token"
CERTIFICATE_FILE = "tls.crt"
PRIVATE_KEY_FILE = "tls.key"

GRACE_VARIABLE = "EPOCHAL_GRACE_SECONDS"
"""Where a driver runs in a pod: the seconds between SIGTERM and SIGKILL, in which it can make a last checkpoint."""

CAUSE_VARIABLE = "EPOCHAL_CAUSE_FILE"
"""A file in which a driver writes why it ended, in a line: in a pod, the termination log. The end of its log may say
something else, because Spark logs until the last moment."""

POD_ADDRESS_VARIABLE = "EPOCHAL_POD_IP"
"""Where a driver runs in a pod: its address, which executors connect to."""
