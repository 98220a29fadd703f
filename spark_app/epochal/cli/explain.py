"""``epochal explain``: the graph of a job's operators, without starting anything."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from epochal.cli.cluster.jobs import ClusterJob
from epochal.cli.errors import UserError
from epochal.cli.manifests import LocalJob, check_given, load_job
from epochal.cli.spark import require_spark
from epochal.cli.targets import Target, target_options
from epochal.protocol.errors import ProtocolError

FORMATS = ("tree", "mermaid", "dot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One operator as it is drawn."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    details: tuple[str, ...] = ()


Graph = Mapping[str, Drawn]


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("--set", "parameters", multiple=True, metavar="KEY=VALUE", help="Set a pipeline parameter.")
@click.option("--format", "how", type=click.Choice(FORMATS), default="tree", show_default=True)
def explain(manifest: Path, parameters: tuple[str, ...], how: str) -> None:
    """Draw the operators of the StreamingJob in MANIFEST: each sink with its inputs below it.

    State belongs to the names shown here. SQL is planned without Spark. A Python pipeline is described on a local Spark
    session; no source is started.
    """
    job = load_job(manifest, parameters)
    check_given(job, parameters)
    graph = _planned(job) if job.is_sql else _described(job)
    for line in {"tree": tree, "mermaid": mermaid, "dot": dot}[how](graph):
        click.echo(line)


@click.command()
@target_options
@click.option("--format", "how", type=click.Choice(FORMATS), default="tree", show_default=True)
def graph(target: Target, how: str) -> None:
    """Draw the operators of a job: each sink with its inputs below it.

    TARGET is a job's name on the cluster, whose driver has told its operators, or a manifest file, as for `epochal
    explain`.
    """
    if target.local is not None:
        drawn = _planned(target.local) if target.local.is_sql else _described(target.local)
    elif target.cluster is not None:
        drawn = _of_status(target.cluster)
    else:
        raise UserError("a store does not tell: name a job on the cluster or a manifest file")
    for line in {"tree": tree, "mermaid": mermaid, "dot": dot}[how](drawn):
        click.echo(line)


def _of_status(job: ClusterJob) -> Graph:
    edges = [(edge["from"], edge["to"]) for edge in job.status().get("graph") or []]
    if not edges:
        raise UserError(
            f"the status of {job.name} has no graph: its driver has not run yet, or it is of a release before 0.2"
        )
    inputs: dict[str, list[str]] = {}
    for begin, end in edges:
        inputs.setdefault(begin, [])
        inputs.setdefault(end, []).append(begin)
    read = {begin for begin, _ in edges}
    return {
        name: Drawn(
            name=name, kind="source" if not found else "operator" if name in read else "sink", inputs=tuple(found)
        )
        for name, found in inputs.items()
    }


def _planned(job: LocalJob) -> Graph:
    return {
        node.name: Drawn(name=node.name, kind=node.kind, inputs=node.inputs, details=node.details)
        for node in job.plan().nodes.values()
    }


def _described(job: LocalJob) -> Graph:
    require_spark(job)
    from epochal.api.pipeline import Pipeline
    from epochal.driver import describe, local_session
    from epochal.runtime.errors import OperatorError, PipelineError, UserCodeError, summarize_error

    with tempfile.TemporaryDirectory(prefix="epochal-explain-") as directory:
        config = job.pipeline(Path(directory))
        try:
            spark = local_session(dict(job.spec.spark_conf))
        except Exception as error:
            raise UserError(f"Spark does not start: {summarize_error(error)}") from error
        pipeline = Pipeline(spark, job.storage(Path(directory)), config.parameters)
        try:
            describe(pipeline, config)
            pipeline.graph.bind(spark)
        except (PipelineError, UserCodeError, OperatorError, ProtocolError) as error:
            raise UserError(f"{job.path}: {error}") from error
        finally:
            spark.stop()
    return {
        node.name: Drawn(name=node.name, kind=node.kind, inputs=tuple(source.node for source in node.inputs))
        for node in pipeline.graph.nodes.values()
    }


# --- pictures ---------------------------------------------------------------------------------------------------------


def tree(graph: Graph) -> Iterator[str]:
    """Each sink with its inputs below it; what was shown already is named only."""
    read = {name for node in graph.values() for name in node.inputs}
    shown: set[str] = set()
    for node in graph.values():
        if node.name not in read:
            yield from _branch(graph, node, "", "", shown)


def _branch(graph: Graph, node: Drawn, lead: str, below: str, shown: set[str]) -> Iterator[str]:
    if node.name in shown and node.inputs:
        yield f"{lead}{node.name}  (as above)"
        return
    shown.add(node.name)
    first, *others = node.details or ("",)
    yield f"{lead}{node.name}  {node.kind}{': ' if first else ''}{first}"
    bar = "│ " if node.inputs else "  "
    for detail in others:
        yield f"{below}{bar} {' ' * len(node.name)}{detail}"
    for number, name in enumerate(node.inputs):
        last = number == len(node.inputs) - 1
        yield from _branch(
            graph, graph[name], below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), shown
        )


def mermaid(graph: Graph) -> Iterator[str]:
    yield "flowchart LR"
    numbers = {name: f"n{number}" for number, name in enumerate(graph)}
    for name, node in graph.items():
        begin, end = {"source": ("[(", ")]"), "sink": ("[/", "/]")}.get(node.kind, ("[", "]"))
        label = "<br>".join(_escaped(part) for part in (f"{name}: {node.kind}", *node.details))
        yield f'    {numbers[name]}{begin}"{label}"{end}'
    for name, node in graph.items():
        for before in node.inputs:
            yield f"    {numbers[before]} --> {numbers[name]}"


def _escaped(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def dot(graph: Graph) -> Iterator[str]:
    yield "digraph job {"
    yield "    rankdir=LR; node [shape=box];"
    for name, node in graph.items():
        parts = (part.replace("\\", "\\\\").replace('"', '\\"') for part in (f"{name}: {node.kind}", *node.details))
        shape = {"source": ", shape=cylinder", "sink": ", shape=parallelogram"}.get(node.kind, "")
        label = "\\n".join(parts)
        yield f'    "{name}" [label="{label}"{shape}];'
    for name, node in graph.items():
        for before in node.inputs:
            yield f'    "{before}" -> "{name}";'
    yield "}"
