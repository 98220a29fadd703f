"""``epochal validate``: everything that can be seen to be wrong with a job before anything starts."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from epochal.cli.checks import (
    ProgramFault,
    Said,
    Severity,
    Surroundings,
    conf_problems,
    find_module,
    module_source,
    program_problems,
)
from epochal.cli.errors import UserError
from epochal.cli.manifests import InvalidManifestError, LocalJob, check_given, load_job, looked_up
from epochal.cli.yaml_lines import Document


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--set", "parameters", multiple=True, metavar="KEY=VALUE", help="Set a pipeline parameter.")
def validate(manifest: Path, parameters: tuple[str, ...]) -> None:
    """Validate MANIFEST with the rules of a cluster, without one, and the program that it names, without Spark.

    Unknown fields, which a cluster drops silently, are errors here. SQL pipelines are planned. Of Python pipelines the
    text is checked: syntax, function, imports, parameters, and the jars that its sources need. What an image may bring
    is a warning, which goes to stderr and leaves the exit code 0, or is not looked for if the manifest names one.
    """
    try:
        job = load_job(manifest, parameters)
    except InvalidManifestError as error:
        errors = _said(raw_problems(error.document, manifest))
        raise InvalidManifestError(manifest, [*error.problems, *errors], error.document) from error
    check_given(job, parameters)
    if errors := _said(problems_of(job)):
        raise InvalidManifestError(manifest, errors, job.document)
    click.echo(f"{manifest}: {job.spec.namespace}/{job.spec.name} is valid")


def _said(found: Iterator[Said]) -> list[str]:
    """The errors; whatever is none is told at once."""
    errors = []
    for one in found:
        if one.level is Severity.ERROR:
            errors.append(one.text)
        else:
            click.echo(f"epochal: {one.level}: {one.text}", err=True)
    return errors


def problems_of(job: LocalJob) -> Iterator[Said]:
    """What the manifest's own rules do not see, each with its line."""
    line = job.document.line_of
    for place, name in looked_up(job.spec):
        text = f"line {line(place)}: {place}: only a cluster can look up {name}: `epochal run` cannot run this job"
        yield Said(Severity.NOTE, text)
    for said in conf_problems(job.spec.spark_conf, job.path.parent, has_image=job.spec.image is not None):
        yield Said(said.level, f"line {line('spec.sparkConf')}: spec.sparkConf: {said.text}")
    try:
        yield from _of_program(job)
    except UserError as error:
        text = error.message.removeprefix(f"{job.path}: ")
        yield Said(Severity.ERROR, f"line {line('spec.pipeline')}: {text}")


def raw_problems(document: Document, path: Path) -> Iterator[Said]:
    """What can be said of the program and the jars of a manifest that is wrong elsewhere."""
    spec = document.value.get("spec")
    pipeline = spec.get("pipeline") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(pipeline, dict):
        return
    conf = spec.get("sparkConf")
    texts = {str(name): str(value) for name, value in conf.items()} if isinstance(conf, dict) else {}
    for said in conf_problems(texts, path.parent, has_image="image" in spec):
        yield Said(said.level, f"line {document.line_of('spec.sparkConf')}: spec.sparkConf: {said.text}")
    file = pipeline.get("file")
    if not isinstance(file, str) or not file.endswith(".py"):
        return
    try:
        source = (path.parent / file).read_bytes()
    except (OSError, ValueError):
        if "image" not in spec:
            line = document.line_of("spec.pipeline.file")
            yield Said(Severity.ERROR, f"line {line}: spec.pipeline.file: there is no file {path.parent / file}")
        return
    given = pipeline.get("parameters")
    around = Surroundings(
        directories=[path.parent],
        conf=texts,
        parameters=given if isinstance(given, dict) else {},
        has_image="image" in spec,
    )
    for found in program_problems(source, str(pipeline.get("function") or "build"), around):
        yield _in_file(found, file)


def _in_file(fault: ProgramFault, file: str) -> Said:
    return Said(fault.level, f"{file}, line {fault.line}: {fault.message}")


def _of_program(job: LocalJob) -> Iterator[Said]:
    pipeline = job.spec.pipeline
    around = Surroundings(
        directories=_python_path(job),
        conf=job.spec.spark_conf,
        parameters=pipeline.parameters,
        has_image=job.spec.image is not None,
    )
    if pipeline.module is not None:
        yield from _of_module(job, pipeline.module, around)
    elif (absent := _absent(job)) is not None:
        yield absent
    elif job.is_sql:
        job.plan()
    else:
        where, source = job.source()
        if pipeline.config_map is not None:
            name = f"{pipeline.config_map.key} in the ConfigMap {pipeline.config_map.name}"
            around = replace(around, modules=frozenset(Path(key).stem for key in job.config_map or {}))
        else:
            name = where.name
            around = replace(around, directories=[where.parent, *around.directories])
        for fault in program_problems(source, pipeline.function, around):
            yield _in_file(fault, name)


def _of_module(job: LocalJob, module: str, around: Surroundings) -> Iterator[Said]:
    name, _, function = module.partition(":")
    spec = find_module(name)
    found = module_source(spec)
    if found is None:
        if spec is None and not around.has_image:
            line = job.document.line_of("spec.pipeline.module")
            message = f"there is no module {name!r} here: install it, or use an image that has it"
            yield Said(Severity.WARNING, f"line {line}: spec.pipeline.module: {message}")
        return
    for fault in program_problems(found.read_bytes(), function or job.spec.pipeline.function, around):
        # An image may have another release of it.
        level = Severity.WARNING if around.has_image else fault.level
        yield _in_file(replace(fault, level=level), found.name)


def _absent(job: LocalJob) -> Said | None:
    """Of a program that is where only a cluster finds it."""
    pipeline = job.spec.pipeline
    if pipeline.config_map is not None and job.config_map is None:
        line = job.document.line_of("spec.pipeline.configMap")
        message = f"ConfigMap {pipeline.config_map.name} is not in this file: its program is not checked"
        return Said(Severity.NOTE, f"line {line}: spec.pipeline.configMap: {message}")
    file = pipeline.file
    if file is None or (job.path.parent / file).is_file() or not (job.spec.image or Path(file).is_absolute()):
        return None
    message = f"there is no file {file} here: the image must have it"
    return Said(Severity.WARNING, f"line {job.document.line_of('spec.pipeline.file')}: spec.pipeline.file: {message}")


def _python_path(job: LocalJob) -> list[Path]:
    given = next((str(one.get("value", "")) for one in job.spec.env if one["name"] == "PYTHONPATH"), "")
    return [Path(part) for part in given.split(os.pathsep) if part]
