"""Reading a job's manifest file for a local run: what a cluster would look up elsewhere is found on this machine."""

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from epochal.cli.errors import UserError
from epochal.cli.program import module_file, read_program, sql_parameters
from epochal.cli.yaml_lines import Document, read_documents
from epochal.control.job import JobSpec, parse_job
from epochal.control.schema import KIND, ManifestError
from epochal.control.spellings import kind_hint
from epochal.protocol.control import PipelineConfig, StorageConfig

if TYPE_CHECKING:
    from epochal.sql.plan import Plan

DEFAULT_STATE_DIR = Path(".epochal")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """A job and where its things are on this machine. ``program`` is the text of a ConfigMap's key, if it is one."""

    spec: JobSpec
    path: Path
    document: Document
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

        where, text = self.source()
        try:
            return plan_text(text, self.spec.pipeline.parameters)
        except PipelineError as error:
            raise UserError(f"{where}: the SQL cannot be run: {error}") from error

    def source(self) -> tuple[Path, str]:
        """The program's text, and the file that it is in: a file of its own, a ConfigMap or the manifest itself."""
        pipeline = self.spec.pipeline
        text = self.program if self.program is not None else pipeline.sql
        if text is not None:
            return self.path, text
        target = self._file()
        try:
            return target, target.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{target} cannot be read: {error}") from error

    def known_parameters(self, own: Mapping[str, str]) -> set[str] | None:
        """The manifest's parameters and those that the program asks for; None if that cannot be read off it."""
        if self.spec.pipeline.module is not None:
            name = self.spec.pipeline.module.split(":")[0]
            file = module_file(name, [str(Path.cwd()), *sys.path])
            if file is None:
                return set(own)
            text = file.read_text(encoding="utf-8")
        else:
            text = self.source()[1]
        if self.is_sql:
            return {*own, *sql_parameters(text)}
        try:
            program = read_program(text)
        except (SyntaxError, ValueError):
            return None  # said by what runs it
        return None if program.any_parameter else {*own, *program.named}

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


class InvalidManifestError(UserError):
    """Everything that the rules of a cluster say against a manifest, each with its line."""

    def __init__(self, path: Path, problems: Sequence[str], document: Document) -> None:
        super().__init__(f"{path} is not valid:" + "".join(f"\n  {problem}" for problem in problems))
        self.problems, self.document = tuple(problems), document


def load_job(path: Path, parameters: Sequence[str] = ()) -> LocalJob:
    """The one StreamingJob in a manifest file. ``parameters`` are ``key=value`` and win over the file's."""
    job = _job(path)
    try:
        spec = parse_job(job.document.value)
    except ManifestError as error:
        raise InvalidManifestError(path, with_lines(error.problems, job.document), job.document) from error
    given = dict(_pair(parameter) for parameter in parameters)
    pipeline = replace(spec.pipeline, parameters={**spec.pipeline.parameters, **given})
    program = _program(spec, [document.value for document in job.documents], path)
    found = LocalJob(spec=replace(spec, pipeline=pipeline), path=path, program=program, document=job.document)
    _check_local(found)
    check_given(found, spec.pipeline.parameters, given)
    return found


def with_lines(problems: Iterable[str], document: Document) -> list[str]:
    """Problems that begin with a path, each with the line that it stands in; in the order of the file."""
    found = sorted((document.line_of(problem.split(":", 1)[0]), problem) for problem in problems)
    return [f"line {line}: {problem}" for line, problem in found]


@dataclass(frozen=True, slots=True)
class _Read:
    document: Document
    documents: list[Document]


def _job(path: Path) -> _Read:
    documents = _documents(path)
    jobs = [document for document in documents if document.value.get("kind") == KIND]
    if len(jobs) == 1:
        return _Read(jobs[0], documents)
    found = ", ".join(str(document.value.get("kind")) for document in documents) or "nothing"
    hints = filter(None, (kind_hint(str(document.value.get("kind"))) for document in documents))
    more = "".join(f"; {hint}" for hint in hints)
    raise UserError(f"{path}: exactly one {KIND} is needed in the file; it holds {found}{more}")


def check_given(job: LocalJob, own: Mapping[str, str], given: Mapping[str, str]) -> None:
    """A parameter that nobody reads is a wish that nobody hears."""
    for name in given:
        known = job.known_parameters(own)
        if known is not None and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(known)) or 'none'}"
            raise UserError(f"--set {name}: the pipeline has no such parameter: {hint}")


def _documents(path: Path) -> list[Document]:
    try:
        documents = read_documents(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        said = " ".join(str(error).replace('"<unicode string>", ', "").split())
        raise UserError(f"{path} is not valid YAML: {said}") from error
    for document in documents:
        if not isinstance(document.value, dict):
            raise UserError(f"{path}:{document.line}: this is not a manifest: each document must be a mapping")
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
            place = f"spec.env[{number}]"
            raise UserError(
                f"{job.path}: line {job.document.line_of(place)}: {place}: a local run cannot look up valueFrom: "
                f"give {item['name']} a value, or set it in the environment and remove it here"
            )
