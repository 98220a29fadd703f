"""The reference pages that are written from their source: the CRDs, the chart's values and the command line.

python -m tests.docs.reference --write
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from epochal.cli.commands import commands

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
VALUES = ROOT / "charts" / "epochal" / "values.yaml"
CRDS = sorted((ROOT / "crds").glob("*.yaml"))

WIDTH = 110
SHOWN_ENUM = 8
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {}",
}


CRD_INTRODUCTION = (
    "Every field, from the CRDs in [`crds/`](../crds). `kubectl explain` shows the same. "
    "[Invalid manifests](bad-manifests.md) shows what is refused, and the words."
)
VALUES_INTRODUCTION = (
    "Every value, from [`values.yaml`](../charts/epochal/values.yaml). [The chart](helm.md#values) says which "
    "ones to decide on. `values.schema.json` rejects unknown values and values out of bounds."
)


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- CRDs -------------------------------------------------------------------------------------------------------------


def crd_page() -> str:
    parts = [
        "# API reference",
        CRD_INTRODUCTION,
    ]
    for path in CRDS:
        parts += _resource(yaml.safe_load(path.read_text()))
    return "\n\n".join(parts) + "\n"


def _resource(crd: Mapping[str, Any]) -> Iterator[str]:
    spec = crd["spec"]
    names, version = spec["names"], next(one for one in spec["versions"] if one["storage"])
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {names['kind']}"
    short = ", ".join(f"`{one}`" for one in names.get("shortNames", []))
    yield f"`{spec['group']}/{version['name']}`, short name {short}. {one_line(schema['description'])}"
    yield "### Columns of `kubectl get`"
    columns = [
        f"| {one['name']} | {one_line(one['description'])} | {'`-o wide`' if one.get('priority') else ''} |"
        for one in version["additionalPrinterColumns"]
    ]
    yield "\n".join(["| column | meaning | |", "|---|---|---|", *columns])
    for part in ("spec", "status"):
        rows = [_row(path, one) for path, one in _fields(schema["properties"][part], part)]
        yield f"### `{part}` of a {names['kind']}"
        yield "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, one in schema.get("properties", {}).items():
        yield f"{path}.{name}", one
        inner, inside = one, f"{path}.{name}"
        if one.get("type") == "array":
            inner, inside = one.get("items", {}), f"{inside}[]"
        yield from _fields(inner, inside)


def _row(path: str, schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    shown = "" if default is None or isinstance(default, dict | list) else f"`{_plain(default)}`"
    limits = [words.format(f"{schema[key]:,}") for key, words in BOUNDS.items() if key in schema]
    bounds = f" ({', '.join(limits)})" if limits else ""
    return f"| `{path}` | {_type(schema)} | {shown} | {one_line(schema.get('description', ''))}{bounds} |"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(schema: Mapping[str, Any]) -> str:
    values = schema.get("enum")
    if values and len(values) <= SHOWN_ENUM:
        return " or ".join(f"`{one}`" for one in values)
    if schema.get("type") == "array":
        return f"list of {schema.get('items', {}).get('type', 'object')}"
    if "additionalProperties" in schema:
        return "map"
    return str(schema.get("type", "integer or string" if schema.get("x-kubernetes-int-or-string") else "any"))


# --- values -----------------------------------------------------------------------------------------------------------


def values_page() -> str:
    rows = [f"| `{name}` | `{default}` | {one_line(words)} |" for name, default, words in _values()]
    return "\n".join(
        [
            "# Values of the chart",
            "",
            VALUES_INTRODUCTION,
            "",
            "| value | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _values() -> Iterator[tuple[str, str, str]]:
    """Each value that has no values inside, with the comment above it. A comment above a group stands before those of
    its first value."""
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in VALUES.read_text().splitlines()[1:]:
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.lstrip("# "))
            continue
        found = re.match(r"( *)([\w.-]+):(?: (.*))?$", line)
        if not found:
            comment = comment if stripped else []
            continue
        indent, name, value = len(found[1]), found[2], (found[3] or "").partition("  #")[0].strip()
        path = [one for one in path if one[0] < indent]
        if value:
            yield ".".join([*(one for _, one in path), name]), value, " ".join(comment)
            comment = []
        else:
            path.append((indent, name))


# --- command line -----------------------------------------------------------------------------------------------------


def cli_page() -> str:
    parts = [
        "# Command reference",
        "What `--help` says of each command. [The page on the command line](cli.md) explains how to use them.",
    ]
    for path, command in _commands("epochal", commands):
        context = click.Context(command, info_name=path, max_content_width=WIDTH, terminal_width=WIDTH)
        context.help_option_names = ["-h", "--help"]
        parts += [f"## {path}", f"```text\n{command.get_help(context).strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _commands(f"{path} {name}", command.commands[name])


PAGES = {"crd.md": crd_page, "values.md": values_page, "cli-reference.md": cli_page}


def main(arguments: list[str]) -> None:
    if arguments != ["--write"]:
        sys.exit(__doc__)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
