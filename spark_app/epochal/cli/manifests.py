"""Reading a job's manifest file for a local run: what a cluster would look up elsewhere is found on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from epochal.cli.errors import UserError
from epochal.control.job import JobSpec, parse_job
from epochal.control.schema import KIND, ManifestError
from epochal.protocol.control import PipelineConfig, StorageConfig

if TYPE_CHECKING:
    from epochal.sql.plan import Plan

DEFAULT_STATE_DIR = Path(".epochal")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """A job and where its things are on this machine. ``program`` is the text of a ConfigMap's key, if it is one."""

    spec: JobSpec
    path: Path
    program: str | None = None

    @property
    def is_sql(self) -> bool:
        pipeline = self.spec.pipeline
        where = pipeline.config_map.key if pipeline.config_map else pipeline.file or ""
        return pipeline.sql is not None or where.endswith(".sql")

    def plan(self) -> "Plan":
        """What the job's SQL is planned onto; one who wrote it wrong is told where."""
        from epochal.runtime.errors import PipelineError
        from epochal.sql.script import plan_text

        pipeline = self.spec.pipeline
        text = self.program if self.program is not None else pipeline.sql
        where = str(self.path)
        if text is None:
            target = self._file()
            where = str(target)
            try:
                text = target.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"{target} cannot be read: {error}") from error
        try:
            return plan_text(text, pipeline.parameters)
        except PipelineError as error:
            raise UserError(f"{where}: the SQL cannot be run: {error}") from error

    def storage(self, state_dir: Path) -> StorageConfig:
        if self.spec.storage is not None:
            return self.spec.storage.config
        return StorageConfig(uri=(state_dir.resolve() / "store").as_uri())

    def pipeline(self, directory: Path) -> PipelineConfig:
        """Where the driver finds the program; a ConfigMap's is written into ``directory``."""
        pipeline = self.spec.pipeline
        if self.program is not None:
            directory.mkdir(parents=True, exist_ok=True)
            target = directory / f"pipeline{'.sql' if self.is_sql else '.py'}"
            target.write_text(self.program, encoding="utf-8")
            return pipeline.config(str(target))
        if pipeline.file is not None:
            return pipeline.config(str(self._file()))
        return pipeline.config()

    def _file(self) -> Path:
        target = (self.path.parent / (self.spec.pipeline.file or "")).resolve()
        if not target.is_file():
            raise UserError(f"{self.path}: spec.pipeline.file: there is no file {target}")
        return target


def load_job(path: Path, parameters: Sequence[str] = ()) -> LocalJob:
    """The one StreamingJob in a manifest file. ``parameters`` are ``key=value`` and win over the file's."""
    documents = _documents(path)
    jobs = [document for document in documents if document.get("kind") == KIND]
    if len(jobs) != 1:
        found = ", ".join(str(document.get("kind")) for document in documents) or "nothing"
        raise UserError(f"{path}: exactly one {KIND} is needed in the file; it holds {found}")
    try:
        spec = parse_job(jobs[0])
    except ManifestError as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise UserError(f"{path} is not valid:{problems}") from error
    given = dict(_pair(parameter) for parameter in parameters)
    pipeline = replace(spec.pipeline, parameters={**spec.pipeline.parameters, **given})
    job = LocalJob(spec=replace(spec, pipeline=pipeline), path=path, program=_program(spec, documents, path))
    _check_local(job)
    return job


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is set twice, as a cluster does: YAML itself forbids it, and PyYAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is set twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


def _documents(path: Path) -> list[Mapping[str, Any]]:
    try:
        documents = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_StrictLoader))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    documents = [document for document in documents if document is not None]
    if not all(isinstance(document, dict) for document in documents):
        raise UserError(f"{path} contains a document that is not a manifest: each document must be a mapping")
    return documents


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"--set {text}: write --set KEY=VALUE")
    return key, value


def _program(spec: JobSpec, documents: Sequence[Mapping[str, Any]], path: Path) -> str | None:
    wanted = spec.pipeline.config_map
    if wanted is None:
        return None
    for document in documents:
        if document.get("kind") == "ConfigMap" and document.get("metadata", {}).get("name") == wanted.name:
            data = document.get("data") or {}
            if wanted.key in data:
                return str(data[wanted.key])
            raise UserError(
                f"{path}: ConfigMap {wanted.name} has no key {wanted.key}; it has {', '.join(data) or 'none'}"
            )
    raise UserError(
        f"{path}: a local run needs ConfigMap {wanted.name} in the same file, or spec.pipeline.file instead of it"
    )


def _check_local(job: LocalJob) -> None:
    for number, item in enumerate(job.spec.env):
        if "value" not in item:
            raise UserError(
                f"{job.path}: spec.env[{number}]: a local run cannot look up valueFrom: "
                f"give {item['name']} a value, or set it in the environment and remove it here"
            )
