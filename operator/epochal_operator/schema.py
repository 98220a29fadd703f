"""Checking a StreamingJob manifest by the CRD itself: the same rules as the cluster's, the same messages, without one.

A cluster drops fields that it does not know. Here they are refused: a misspelt field is a wish that nobody heard.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from epochal_operator.durations import parse_duration

GROUP = "epochal.dev"
VERSION = "v1alpha1"
KIND = "StreamingJob"
API_VERSION = f"{GROUP}/{VERSION}"

_CRD = "crds/streamingjobs.epochal.dev.yaml"

Schema = Mapping[str, Any]


class ManifestError(Exception):
    """What is wrong with a manifest: one line for each thing, each with its path."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@cache
def load_crd() -> dict[str, Any]:
    """The CRD: part of an installed package, or where the repository keeps it."""
    here = Path(__file__).resolve()
    for root in (here.parent, here.parents[2]):
        if (root / _CRD).is_file():
            crd: dict[str, Any] = yaml.safe_load((root / _CRD).read_text(encoding="utf-8"))
            return crd
    raise FileNotFoundError(f"{_CRD} is not part of this installation: install epochal again")


@cache
def job_schema() -> dict[str, Any]:
    versions = load_crd()["spec"]["versions"]
    schema: dict[str, Any] = next(version for version in versions if version["name"] == VERSION)["schema"][
        "openAPIV3Schema"
    ]
    return schema


def validated(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the schema's defaults filled in; :class:`ManifestError` if it breaks any rule."""
    schema = job_schema()
    filled: dict[str, Any] = with_defaults(schema, deepcopy(dict(manifest)))
    problems = list(unknown_fields(schema, filled)) + list(_type_problems(schema, filled))
    if not problems:
        # Rules take for granted that types are right.
        problems = list(broken_rules(schema, filled))
    if problems:
        raise ManifestError(problems)
    return filled


def with_defaults(schema: Schema, value: Any) -> Any:
    """Fill in defaults as a cluster does: from the outside in, so that a default of ``{}`` gets its own defaults."""
    if isinstance(value, dict):
        for name, below in schema.get("properties", {}).items():
            if name not in value and "default" in below:
                value[name] = deepcopy(below["default"])
            if name in value:
                value[name] = with_defaults(below, value[name])
    elif isinstance(value, list) and "items" in schema:
        return [with_defaults(schema["items"], item) for item in value]
    return value


def unknown_fields(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields") or path == "metadata":
        return
    if isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name in schema["properties"]:
                yield from unknown_fields(schema["properties"][name], item, _join(path, name))
            else:
                close = difflib.get_close_matches(str(name), schema["properties"], n=1)
                hint = f": did you mean {close[0]}?" if close else f": known are {', '.join(schema['properties'])}"
                yield f"{_join(path, name)}: unknown field{hint}"
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from unknown_fields(schema["items"], item, f"{path}[{number}]")


def _type_problems(schema: Schema, value: Any) -> Iterator[str]:
    validator = jsonschema.Draft7Validator(schema)
    for error in sorted(validator.iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path]):
        path = ""
        for step in error.absolute_path:
            path = f"{path}[{step}]" if isinstance(step, int) else _join(path, str(step))
        yield f"{path or 'manifest'}: {_in_words(error)}"


def _in_words(error: jsonschema.ValidationError) -> str:
    if not isinstance(error.schema, dict):
        return error.message
    meaning = " ".join(str(error.schema.get("description", "")).split())
    match error.validator:
        case "enum":
            return f"{error.instance!r} is none of {', '.join(map(str, error.schema['enum']))}"
        case "pattern" if "(ms|s|m|h)" in str(error.validator_value):
            return f"{error.instance!r} is no duration: write 500ms, 10s, 5m, 1h or 1m30s"
        case "pattern":
            return f"{error.instance!r} is not allowed here: {meaning}"
        case "type":
            hint = ': put it in quotes ("…")' if error.validator_value == "string" and _scalar(error.instance) else ""
            return f"{error.instance!r} is no {error.validator_value}{hint}"
        case _:
            return error.message


def _scalar(value: object) -> bool:
    return isinstance(value, bool | int | float)


# --- rules ------------------------------------------------------------------------------------------------------------

_SECONDS = parse_duration

RULES: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "[has(self.module), has(self.configMap), has(self.file)].exists_one(given, given)": lambda self: (
        sum(name in self for name in ("module", "configMap", "file")) == 1
    ),
    "self.uri.startsWith('s3://') || !(has(self.endpoint) || has(self.region))": lambda self: (
        self["uri"].startswith("s3://") or not ("endpoint" in self or "region" in self)
    ),
    "duration(self.interval) > duration('0s')": lambda self: _SECONDS(self["interval"]) > 0,
    "duration(self.timeout) > duration('0s')": lambda self: _SECONDS(self["timeout"]) > 0,
    "duration(self.minPause) <= duration(self.interval)": lambda self: (
        _SECONDS(self["minPause"]) <= _SECONDS(self["interval"])
    ),
    "!(has(self.fromEpoch) && has(self.fromSavepoint))": lambda self: (
        not ("fromEpoch" in self and "fromSavepoint" in self)
    ),
    "duration(self.backoff) <= duration(self.maxBackoff)": lambda self: (
        _SECONDS(self["backoff"]) <= _SECONDS(self["maxBackoff"])
    ),
}
"""The CRD's CEL rules in Python, by their text; the messages are the CRD's. A test sees that none is missing."""


def broken_rules(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        if not RULES[rule["rule"]](value):
            yield f"{path}: {rule['message']}"
    for name, below in schema.get("properties", {}).items():
        if name in value:
            yield from broken_rules(below, value[name], _join(path, name))


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
