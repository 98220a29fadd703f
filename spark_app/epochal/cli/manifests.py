"""Reading a job's manifest file for a local run: what a cluster would look up elsewhere is found on this machine."""

import base64
import binascii
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import yaml

from epochal.cli.checks import find_module, module_source
from epochal.cli.errors import UserError
from epochal.cli.program import read_program, sql_parameters
from epochal.cli.yaml_lines import Document, read_documents
from epochal.control.job import JobSpec, PipelineSpec, parse_job
from epochal.control.schema import KIND, ManifestError
from epochal.control.spellings import kind_hint
from epochal.protocol.control import PipelineConfig, StorageConfig

if TYPE_CHECKING:
    from epochal.sql.plan import Plan

DEFAULT_STATE_DIR = Path(".epochal")

_FILE_NAME = re.compile(r"[-._A-Za-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """A job and where its things are on this machine. ``config_map`` are the texts of the ConfigMap that its program is
    in; None if the file has no such ConfigMap."""

    spec: JobSpec
    path: Path
    document: Document
    config_map: Mapping[str, bytes] | None = None

    @property
    def is_sql(self) -> bool:
        pipeline = self.spec.pipeline
        where = pipeline.config_map.key if pipeline.config_map else pipeline.file or ""
        return pipeline.sql is not None or where.endswith(".sql")

    def plan(self) -> "Plan":
        """What the job's SQL is planned onto; one who wrote it wrong is told where."""
        from epochal.runtime.errors import PipelineError
        from epochal.sql.script import plan_text

        where, text = self._sql()
        try:
            return plan_text(text, self.spec.pipeline.parameters)
        except PipelineError as error:
            raise UserError(f"{where}: the SQL cannot be run: {error}") from error

    def _sql(self) -> tuple[Path, str]:
        where, source = self.source()
        try:
            return where, source.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{where} cannot be read: {error}") from error

    def source(self) -> tuple[Path, bytes]:
        """The program's text, and the file that it is in: a file of its own, a ConfigMap or the manifest itself."""
        pipeline = self.spec.pipeline
        if pipeline.sql is not None:
            return self.path, pipeline.sql.encode()
        if pipeline.config_map is not None:
            return self.path, self._texts()[pipeline.config_map.key]
        target = self.file()
        try:
            return target, target.read_bytes()
        except OSError as error:
            raise UserError(f"{target} cannot be read: {error.strerror}") from error

    def given_parameters(self, given: Mapping[str, str]) -> "LocalJob":
        """The same job with other parameters laid over the manifest's."""
        parameters = {**self.spec.pipeline.parameters, **given}
        return replace(self, spec=replace(self.spec, pipeline=replace(self.spec.pipeline, parameters=parameters)))

    def storage(self, state_dir: Path) -> StorageConfig:
        if self.spec.storage is not None:
            return self.spec.storage.config
        return StorageConfig(uri=(state_dir.resolve() / "store").as_uri())

    def pipeline(self, directory: Path) -> PipelineConfig:
        """Where the driver finds the program; all of its ConfigMap is written below ``directory``, as pods have it."""
        pipeline = self.spec.pipeline
        if pipeline.config_map is not None:
            below = directory / "program"
            below.mkdir(parents=True, exist_ok=True)
            for name, text in self._texts().items():
                (below / name).write_bytes(text)
            return pipeline.config(str(below / pipeline.config_map.key))
        if pipeline.file is not None:
            return pipeline.config(str(self.file()))
        return pipeline.config()

    def file(self) -> Path:
        target = (self.path.parent / (self.spec.pipeline.file or "")).resolve()
        if not target.is_file():
            raise UserError(f"{self.path}: spec.pipeline.file: there is no file {target}")
        return target

    def _texts(self) -> Mapping[str, bytes]:
        if self.config_map is None:
            assert self.spec.pipeline.config_map is not None
            name = self.spec.pipeline.config_map.name
            raise UserError(
                f"{self.path}: a local run needs ConfigMap {name} in the same file, or spec.pipeline.file instead of it"
            )
        return self.config_map


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
    texts = _config_map(spec.pipeline, job.documents, path)
    found = LocalJob(spec=spec, path=path, document=job.document, config_map=texts)
    return found.given_parameters(dict(_pair(parameter) for parameter in parameters))


def load_to_run(path: Path, parameters: Sequence[str] = ()) -> LocalJob:
    """A job that runs on this machine: nothing may be left for a cluster to look up."""
    job = load_job(path, parameters)
    for place, name in looked_up(job.spec):
        raise UserError(
            f"{path}: line {job.document.line_of(place)}: {place}: a local run cannot look up valueFrom: give {name} a "
            "value, or set it in the environment and remove it here"
        )
    return job


def looked_up(spec: JobSpec) -> Iterable[tuple[str, str]]:
    """The variables whose values only a cluster knows: the place of each, and its name."""
    for number, item in enumerate(spec.env):
        if "valueFrom" in item:
            yield f"spec.env[{number}]", str(item["name"])


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


def check_given(job: LocalJob, parameters: Sequence[str]) -> None:
    """Says of parameters of ``--set`` that nobody reads. Of one that is nearly the name of another: it is refused."""
    given = [name for name, _ in map(_pair, parameters)]
    own = job.document.value["spec"]["pipeline"].get("parameters") or {}
    if not given or (found := _asked_for(job)) is None:
        return
    asked, all_of_them = found
    known = {*map(str, own), *asked}
    for name in given:
        if name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1)
        if close and all_of_them:
            raise UserError(f"--set {name}: the pipeline has no such parameter: did you mean {close[0]}?")
        if close or all_of_them:
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(known)) or 'none'}"
            warn(f"--set {name}: the pipeline names no such parameter: {hint}")


def warn(message: str) -> None:
    click.echo(f"epochal: warning: {message}", err=True)


def _asked_for(job: LocalJob) -> tuple[set[str], bool] | None:
    """The parameters that the program names, and whether it asks for no others; None if its text is not here."""
    pipeline = job.spec.pipeline
    function = pipeline.function
    try:
        if job.is_sql:
            return set(sql_parameters(job.source()[1].decode("utf-8", "replace"))), True
        if pipeline.module is None:
            source = job.source()[1]
        else:
            module, _, named = pipeline.module.partition(":")
            function = named or function
            file = module_source(find_module(module))
            if file is None:
                return None
            source = file.read_bytes()
        program = read_program(source, function)
    except (OSError, SyntaxError, ValueError, RecursionError, UserError):
        return None  # said by what runs it
    return program.named, not program.any_parameter


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


def _config_map(pipeline: PipelineSpec, documents: Sequence[Document], path: Path) -> Mapping[str, bytes] | None:
    """Its texts, if the file has it."""
    wanted = pipeline.config_map
    if wanted is None:
        return None
    for document in documents:
        body = document.value
        metadata = body.get("metadata")
        if body.get("kind") != "ConfigMap" or not isinstance(metadata, dict) or metadata.get("name") != wanted.name:
            continue
        texts = _texts_of(document, path)
        if wanted.key in texts:
            return texts
        there = ", ".join(texts) or "none"
        raise UserError(f"{path}: ConfigMap {wanted.name} has no key {wanted.key}; it has {there}")
    return None


def _texts_of(document: Document, path: Path) -> dict[str, bytes]:
    found = {}
    for part in ("data", "binaryData"):
        data = document.value.get(part) or {}
        if not isinstance(data, dict):
            line = document.line_of(part)
            raise UserError(f"{path}: line {line}: {part} of a ConfigMap must be a mapping of names to texts")
        for key, value in data.items():
            line = document.line_of(f"{part}.{key}")
            if not isinstance(value, str) or not _FILE_NAME.fullmatch(str(key)) or set(str(key)) == {"."}:
                raise UserError(
                    f"{path}: line {line}: {part}.{key} of a ConfigMap must be a text under a name of letters, digits, "
                    "'-', '_' and '.'"
                )
            try:
                found[str(key)] = value.encode() if part == "data" else base64.b64decode(value, validate=True)
            except (binascii.Error, UnicodeEncodeError) as error:
                raise UserError(f"{path}: line {line}: {part}.{key} of a ConfigMap: {error}") from error
    return found
