"""A StreamingJob as the controller uses it: typed, checked, durations in seconds."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from epochal.control.durations import parse_duration
from epochal.control.schema import API_VERSION, KIND, ManifestError, validated
from epochal.control.spellings import kind_hint
from epochal.protocol.control import PipelineConfig, StorageConfig
from epochal.protocol.decision import CheckpointSpec, Seconds
from epochal.protocol.epochs import Epoch
from epochal.protocol.errors import InvalidNameError
from epochal.protocol.paths import check_kubernetes_label

DEFAULT_NAMESPACE = "default"

DEFAULT_SERVICE_ACCOUNT = "epochal-driver"
"""Of all pods of a job that names none: the one that the chart makes."""


class DesiredState(StrEnum):
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class OnCommittedOutput(StrEnum):
    """What to do where going back would bring output a second time that a sink cannot take back."""

    WAIT = "Wait"
    REPEAT = "Repeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """Exactly one of ``module``, ``config_map``, ``file`` and ``sql`` is set."""

    module: str | None = None
    config_map: ConfigMapKey | None = None
    file: str | None = None
    sql: str | None = None
    function: str = "build"
    parameters: Mapping[str, str] = field(default_factory=dict)

    def config(self, file: str | None = None) -> PipelineConfig:
        """For a driver; ``file`` is where the program lies for it."""
        module = self.module
        if module is not None and ":" not in module:
            module = f"{module}:{self.function}"
        return PipelineConfig(
            module=module,
            file=file or self.file,
            sql=self.sql,
            function=self.function,
            parameters=dict(self.parameters),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpec:
    config: StorageConfig
    credentials_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSpec:
    from_epoch: Epoch | None = None
    from_savepoint: str | None = None
    allow_empty_start: bool = False
    on_committed_output: OnCommittedOutput = OnCommittedOutput.WAIT

    @property
    def wish(self) -> str | None:
        """What to go back to, in a word: so that it is done once and not with every restart."""
        if self.from_epoch is not None:
            return f"epoch:{self.from_epoch}"
        return f"savepoint:{self.from_savepoint}" if self.from_savepoint else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """``max_restarts`` None: as many as it takes."""

    max_restarts: int | None = None
    backoff: Seconds = 0.5
    max_backoff: Seconds = 300.0
    reset_after: Seconds = 120.0

    def pause(self, restarts: int, *, seed: str) -> Seconds:
        """Before the nth restart in a row, counted from 1: between half and all of what has doubled so far, so that
        jobs that an outage ended together do not all come back together. Equal seeds give equal pauses."""
        longest = min(self.max_backoff, self.backoff * 2.0 ** min(restarts - 1, 30))
        return longest * (1.0 - 0.5 * zlib.crc32(seed.encode()) / 2**32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A driver's or executor's size. ``instances`` is 1 for a driver."""

    cores: int = 1
    memory: str = "1g"
    instances: int = 1
    pod_template: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """``revision`` names all that only a new driver can take on; another one means a restart, after a last checkpoint.
    ``version`` changes with every edit. ``problem`` is what keeps a driver from being started with this spec. All three
    are the cluster's to know; a local run leaves them out.
    """

    namespace: str
    name: str
    pipeline: PipelineSpec
    uid: str = ""
    state: DesiredState = DesiredState.RUNNING
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    storage: StorageSpec | None = None
    restore: RestoreSpec = RestoreSpec()
    restart_policy: RestartPolicy = RestartPolicy()
    start_timeout: Seconds = 600.0
    unreachable_timeout: Seconds = 120.0
    driver: ProcessSpec = ProcessSpec()
    executor: ProcessSpec = ProcessSpec()
    cleanup_template: Mapping[str, Any] | None = None
    image: str | None = None
    image_pull_policy: str = "IfNotPresent"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    env: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    service_account: str | None = None
    revision: str = ""
    version: int = 0
    problem: str = ""

    @property
    def account(self) -> str:
        """The service account of the job's pods, whatever their kind: workload identity hangs on it."""
        return self.service_account or DEFAULT_SERVICE_ACCOUNT


def parse_job(manifest: Mapping[str, Any]) -> JobSpec:
    """A StreamingJob from its manifest; :class:`ManifestError` says everything that is wrong with it."""
    if manifest.get("kind") != KIND or manifest.get("apiVersion") != API_VERSION:
        found = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
        hint = kind_hint(str(manifest.get("kind")))
        raise ManifestError([f"manifest: an {API_VERSION} {KIND} is needed, not {found}{': ' if hint else ''}{hint}"])
    filled = validated(manifest)
    metadata = filled.get("metadata") or {}
    spec = filled["spec"]
    try:
        namespace = check_kubernetes_label("namespace", str(metadata.get("namespace") or DEFAULT_NAMESPACE))
        name = check_kubernetes_label("job", str(metadata.get("name", "")))
    except InvalidNameError as error:
        raise ManifestError([f"metadata: {error}"]) from error
    return JobSpec(
        namespace=namespace,
        name=name,
        uid=str(metadata.get("uid", f"{namespace}/{name}")),
        pipeline=_pipeline(spec["pipeline"]),
        state=DesiredState(spec["state"]),
        checkpoint=_checkpoint(spec["checkpoint"]),
        storage=_storage(spec["checkpoint"].get("storage")),
        restore=RestoreSpec(
            from_epoch=spec["restore"].get("fromEpoch"),
            from_savepoint=spec["restore"].get("fromSavepoint"),
            allow_empty_start=spec["restore"]["allowEmptyStart"],
            on_committed_output=OnCommittedOutput(spec["restore"]["onCommittedOutput"]),
        ),
        restart_policy=_restart_policy(spec["restartPolicy"]),
        start_timeout=parse_duration(spec["driver"]["startTimeout"]),
        unreachable_timeout=parse_duration(spec["driver"]["unreachableTimeout"]),
        driver=_process(spec["driver"]),
        executor=_process(spec["executor"]),
        cleanup_template=spec["cleanup"].get("podTemplate"),
        image=spec.get("image"),
        image_pull_policy=spec["imagePullPolicy"],
        spark_conf=spec.get("sparkConf", {}),
        env=tuple(spec.get("env", ())),
        volumes=tuple(spec.get("volumes", ())),
        service_account=spec.get("serviceAccount"),
    )


def _pipeline(spec: Mapping[str, Any]) -> PipelineSpec:
    config_map = spec.get("configMap")
    return PipelineSpec(
        module=spec.get("module"),
        config_map=ConfigMapKey(name=config_map["name"], key=config_map["key"]) if config_map else None,
        file=spec.get("file"),
        sql=spec.get("sql"),
        function=spec["function"],
        parameters=spec.get("parameters", {}),
    )


def _checkpoint(spec: Mapping[str, Any]) -> CheckpointSpec:
    return CheckpointSpec(
        interval=parse_duration(spec["interval"]),
        timeout=parse_duration(spec["timeout"]),
        min_pause=parse_duration(spec["minPause"]),
        tolerable_failures=spec["tolerableFailures"],
        keep=spec["retention"]["keep"],
        every=spec["retention"]["every"],
    )


def _storage(spec: Mapping[str, Any] | None) -> StorageSpec | None:
    if spec is None:
        return None
    config = StorageConfig(uri=spec["uri"], endpoint=spec.get("endpoint"), region=spec.get("region"))
    return StorageSpec(config=config, credentials_secret=spec.get("credentialsSecret", {}).get("name"))


def _restart_policy(spec: Mapping[str, Any]) -> RestartPolicy:
    return RestartPolicy(
        max_restarts=spec.get("maxRestarts"),
        backoff=parse_duration(spec["backoff"]),
        max_backoff=parse_duration(spec["maxBackoff"]),
        reset_after=parse_duration(spec["resetAfter"]),
    )


def _process(spec: Mapping[str, Any]) -> ProcessSpec:
    return ProcessSpec(
        cores=spec["cores"],
        memory=spec["memory"],
        instances=spec.get("instances", 1),
        pod_template=spec.get("podTemplate"),
    )
