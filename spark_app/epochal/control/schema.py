"""Checking a StreamingJob manifest by the CRD itself: the same rules as the cluster's, the same messages, without one.

A cluster drops fields that it does not know, unless it is asked to be strict. Here they are always refused: a misspelt
field is a wish that nobody heard.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import yaml

from epochal.control.spellings import duration_hint, field_hint, setting_hint, uri_hint, value_hint

if TYPE_CHECKING:
    from cel import Program

GROUP = "epochal.dev"
VERSION = "v1alpha1"
KIND = "StreamingJob"
API_VERSION = f"{GROUP}/{VERSION}"

METADATA = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
"""What every object may have in its metadata: a CRD cannot say it."""

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
    for root in (here.parent, here.parents[3]):
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
    problems = [*unknown_fields(schema, filled), *_type_problems(filled), *doubled_keys(schema, filled)]
    if not problems and "name" not in filled.get("metadata", {}):
        problems = ["metadata.name: is missing: a job needs a name"]
    if not problems:
        # Rules take for granted that types are right.
        problems = list(broken_rules(schema, filled))
    if problems:
        raise ManifestError(problems)
    return filled


def with_defaults(schema: Schema, value: Any) -> Any:
    """Fill in defaults as a cluster does: from the outside in, so that a default of ``{}`` gets its own defaults.

    A field that is null is one that was left out.
    """
    if isinstance(value, dict):
        for name, below in schema.get("properties", {}).items():
            if name in value and value[name] is None:
                del value[name]
            if name not in value and "default" in below:
                value[name] = deepcopy(below["default"])
            if name in value:
                value[name] = with_defaults(below, value[name])
    elif isinstance(value, list) and "items" in schema:
        return [with_defaults(schema["items"], item) for item in value]
    return value


def unknown_fields(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, dict) and "properties" in schema:
        known = METADATA if path == "metadata" else tuple(schema["properties"])
        for name, item in value.items():
            if name not in known:
                hint = field_hint(str(name), known) or f"known are {', '.join(known)}"
                yield f"{_join(path, name)}: unknown field: {hint}"
            elif name in schema["properties"]:
                yield from unknown_fields(schema["properties"][name], item, _join(path, name))
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from unknown_fields(schema["items"], item, f"{path}[{number}]")


def known_only(schema: Schema, value: Any, path: str = "", dropped: list[str] | None = None) -> Any:
    """The value without the fields that this release does not know; their paths go to ``dropped``. A CRD of a newer
    release lets them pass."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if isinstance(value, dict) and "properties" in schema:
        below = schema["properties"]
        if dropped is not None:
            dropped += [_join(path, name) for name in value if name not in below]
        return {
            name: known_only(below[name], item, _join(path, name), dropped)
            for name, item in value.items()
            if name in below
        }
    if isinstance(value, list) and "items" in schema:
        return [known_only(schema["items"], item, f"{path}[{number}]", dropped) for number, item in enumerate(value)]
    return value


def doubled_keys(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Items of a list that is a map by some of their fields, and in which two have the same ones."""
    if isinstance(value, dict):
        for name, below in schema.get("properties", {}).items():
            yield from doubled_keys(below, value.get(name), _join(path, name))
    elif isinstance(value, list) and schema.get("x-kubernetes-list-type") == "map":
        names = schema["x-kubernetes-list-map-keys"]
        seen = set()
        for number, item in enumerate(value):
            key = ", ".join(f"{name} {item.get(name)!r}" for name in names) if isinstance(item, dict) else ""
            if key in seen:
                yield f"{path}[{number}]: there is another item with {key}"
            seen.add(key)


@cache
def _validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(job_schema())


def _type_problems(value: Any) -> Iterator[str]:
    for error in sorted(_validator().iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path]):
        path = ""
        for step in error.absolute_path:
            path = f"{path}[{step}]" if isinstance(step, int) else _join(path, str(step))
        yield f"{path or 'manifest'}: {_in_words(error)}"


def _in_words(error: jsonschema.ValidationError) -> str:
    if not isinstance(error.schema, dict):
        return error.message
    match error.validator:
        case "required":
            return error.message.replace("is a required property", "is missing").replace("'", "")
        case "maxLength":
            return f"is too long: at most {error.validator_value} characters"
        case "enum":
            hint = value_hint(error.instance, error.schema["enum"])
            return (
                f"{error.instance!r} is none of {', '.join(map(str, error.schema['enum']))}{': ' if hint else ''}{hint}"
            )
        case "type":
            hint = ': put it in quotes ("…")' if error.validator_value == "string" and _scalar(error.instance) else ""
            return f"{error.instance!r} is no {error.validator_value}{hint}"
        case _:
            return error.message


def _scalar(value: object) -> bool:
    return isinstance(value, bool | int | float)


# --- rules ------------------------------------------------------------------------------------------------------------


def broken_rules(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """The CRD's CEL rules that do not hold. Those about a change have nothing to look at here."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"] and not _program(rule["rule"]).execute({"self": value}):
            where = f"{path}{rule.get('fieldPath', '')}".removeprefix(".")
            hint = _hint(rule["message"], value)
            yield f"{where}: {_shown(value)}{rule['message']}{'. Here: ' if hint else ''}{hint}"
    if isinstance(value, dict):
        for name, item in value.items():
            below = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if isinstance(below, dict):
                yield from broken_rules(below, item, _join(path, name))
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from broken_rules(schema["items"], item, f"{path}[{number}]")


@cache
def _program(rule: str) -> "Program":
    # It imports half a second of things that only its own command line needs: nobody waits for it who checks nothing.
    import cel

    return cel.compile(rule)


def _hint(message: str, value: Any) -> str:
    """What the value would be here, where another system's spelling is recognised."""
    if isinstance(value, str):
        return duration_hint(value) if "duration" in message else uri_hint(value) if "://" in message else ""
    if isinstance(value, dict) and "'spark.'" in message:
        hints = (setting_hint(name) for name in value if not str(name).startswith("spark."))
        return next(filter(None, hints), "")
    return ""


def _shown(value: Any) -> str:
    return f"{value!r}: " if isinstance(value, str) else ""


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
