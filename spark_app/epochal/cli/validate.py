"""``epochal validate``: everything that can be seen to be wrong with a job before anything starts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from epochal.cli.errors import UserError
from epochal.cli.manifests import InvalidManifestError, LocalJob, load_job
from epochal.cli.program import conf_problems, module_file, program_problems
from epochal.cli.yaml_lines import Document


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--set", "parameters", multiple=True, metavar="KEY=VALUE", help="Set a pipeline parameter.")
def validate(manifest: Path, parameters: tuple[str, ...]) -> None:
    """Validate MANIFEST with the rules of a cluster, without one, and the program that it names, without Spark.

    Unknown fields, which a cluster drops silently, are errors here. SQL pipelines are planned. Of Python pipelines the
    text is checked: syntax, function, imports, parameters, and the jars that its sources need. What an image brings is
    not looked for if the manifest names one.
    """
    try:
        job = load_job(manifest, parameters)
    except InvalidManifestError as error:
        more = raw_problems(error.document, manifest)
        raise InvalidManifestError(manifest, [*error.problems, *more], error.document) from error
    if problems := list(problems_of(job)):
        raise InvalidManifestError(manifest, problems, job.document)
    click.echo(f"{manifest}: {job.spec.namespace}/{job.spec.name} is valid")


def problems_of(job: LocalJob) -> Iterator[str]:
    """What the manifest's own rules do not see, each with its line."""
    line = job.document.line_of
    for problem in conf_problems(job.spec.spark_conf, job.path.parent):
        yield f"line {line('spec.sparkConf')}: spec.sparkConf: {problem}"
    try:
        yield from _of_program(job)
    except UserError as error:
        text = error.message.removeprefix(f"{job.path}: ")
        yield f"line {line('spec.pipeline')}: {text}"


def raw_problems(document: Document, path: Path) -> Iterator[str]:
    """What can be said of the program and the jars of a manifest that is wrong elsewhere."""
    spec = document.value.get("spec")
    pipeline = spec.get("pipeline") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(pipeline, dict):
        return
    if isinstance(conf := spec.get("sparkConf"), dict):
        texts = {str(name): str(value) for name, value in conf.items()}
        for problem in conf_problems(texts, path.parent):
            yield f"line {document.line_of('spec.sparkConf')}: spec.sparkConf: {problem}"
    file = pipeline.get("file")
    if isinstance(file, str) and not (path.parent / file).is_file():
        line = document.line_of("spec.pipeline.file")
        yield f"line {line}: spec.pipeline.file: there is no file {path.parent / file}"
    elif isinstance(file, str) and file.endswith(".py"):
        text = (path.parent / file).read_text(encoding="utf-8", errors="replace")
        given = pipeline.get("parameters")
        for found in program_problems(
            text,
            function=str(pipeline.get("function") or "build"),
            parameters=given if isinstance(given, dict) else {},
            conf={},
            directory=path.parent,
            has_image=True,
        ):
            yield f"{file}, line {found.line}: {found.message}"


def _of_program(job: LocalJob) -> Iterator[str]:
    pipeline = job.spec.pipeline
    if job.is_sql:
        job.plan()
        return
    function, module = pipeline.function, (pipeline.module or "").partition(":")
    if pipeline.module is None:
        where, text = job.source()
    else:
        function = module[2] or function
        found = module_file(module[0], [str(Path.cwd()), *sys.path])
        if found is None:
            if job.spec.image is None:
                message = f"there is no module {module[0]!r} here: install it, or name the image that has it"
                yield f"line {job.document.line_of('spec.pipeline.module')}: spec.pipeline.module: {message}"
            return
        where, text = found, found.read_text(encoding="utf-8")
    for problem in program_problems(
        text,
        function=function,
        parameters=pipeline.parameters,
        conf=job.spec.spark_conf,
        directory=where.parent,
        has_image=job.spec.image is not None,
    ):
        within = f" in the ConfigMap {pipeline.config_map.name}" if pipeline.config_map else ""
        yield f"{where.name}{within}, line {problem.line}: {problem.message}"
