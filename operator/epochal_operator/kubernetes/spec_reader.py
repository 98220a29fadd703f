"""A job's spec as its rounds use it: read once for each edit, and with the problem that keeps it from being run."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from epochal.control.events import Event, EventReason
from epochal.control.job import JobSpec, parse_job
from epochal.control.schema import ManifestError, job_schema, known_only, with_defaults
from epochal.protocol.decision import Seconds
from epochal.version import __version__
from epochal_operator.api import Api, JsonObject
from epochal_operator.kubernetes.manifests import resources
from epochal_operator.kubernetes.preflight import OWN_NAMESPACE, problem_of
from epochal_operator.names import RESTART_ANNOTATION
from epochal_operator.reporting.status import load_record
from epochal_operator.stores.store_access import StoreRules

CHECK_EVERY: Seconds = 5.0
"""How often a spec that was not accepted is looked at again."""

UNKNOWN_FIELDS = "Epochal {} does not know these fields and passes over them: {}. Upgrade the operator to use them"
UNUSABLE = "Epochal {} cannot use the spec: {}. Correct it, or upgrade the operator if the CRD is newer than that"


@dataclass(slots=True)
class SpecReader:
    """Of one job. What it remembers can be lost."""

    api: Api
    clock: Callable[[], Seconds]
    default_image: str | None
    rules: StoreRules
    own_namespace: str = ""
    """Of the operator's pod, where no job may run; empty if it runs outside of the cluster."""
    _spec: JobSpec | None = None
    _key: tuple[int, str] = (0, "")
    _accepted: str = ""
    _checked: Seconds = 0.0
    _problem: str = ""
    _unusable: str = ""

    def read(self, body: JsonObject, events: list[Event]) -> JobSpec:
        """The spec of ``body``. A problem that was not known before is added to ``events``."""
        metadata = body["metadata"]
        restart = str((metadata.get("annotations") or {}).get(RESTART_ANNOTATION, ""))
        key = (int(metadata.get("generation", 0)), restart)
        if self._spec is None or self._key != key:
            # Reading it takes milliseconds: too long for each round.
            unknown: list[str] = []
            schema = job_schema()["properties"]["spec"]
            given = known_only(schema, body["spec"], "spec", unknown)
            spec, given, self._unusable = _usable(body, given)
            if unknown:
                events.append(Event(EventReason.UNKNOWN_FIELDS, UNKNOWN_FIELDS.format(__version__, ", ".join(unknown))))
            filled = with_defaults(schema, dict(given))
            filled["image"] = spec.image or self.default_image
            self._spec = replace(
                spec, image=filled["image"], version=key[0], revision=resources.revision(filled, restart)
            )
            self._key, self._checked = key, 0.0
        return self._with_problem(self._spec, body, events)

    def _with_problem(self, spec: JobSpec, body: JsonObject, events: list[Event]) -> JobSpec:
        if spec.namespace == self.own_namespace:
            # Also one that an older operator has started: its driver is left alone, and has no successor.
            return self._refused(spec, OWN_NAMESPACE.format(spec.namespace), events)
        if self._unusable:
            return self._refused(spec, self._unusable, events)
        if self._accepted == spec.revision:
            return spec
        if revision_in_use(body) == spec.revision:
            self._accepted = spec.revision
            return spec
        now = self.clock()
        if not 0 <= now - self._checked < CHECK_EVERY:
            self._checked = now
            problem = problem_of(spec, self.api, self.rules)
            if problem:
                return self._refused(spec, problem, events)
            self._problem, self._accepted = "", spec.revision
        return replace(spec, problem=self._problem)

    def _refused(self, spec: JobSpec, problem: str, events: list[Event]) -> JobSpec:
        if problem != self._problem:
            events.append(Event(EventReason.SPEC_NOT_ACCEPTED, problem))
            self._problem = problem
        return replace(spec, problem=problem)


def _usable(body: JsonObject, given: JsonObject) -> tuple[JobSpec, JsonObject, str]:
    """The spec, and what is wrong with it. A CRD of another release may let values pass that this one cannot use, such
    as a new word of an enumeration: these are left out, so that the driver that runs keeps its checkpoints, and nothing
    is started until the operator or the spec has changed."""
    problems: list[str] = []
    while True:
        try:
            manifest = {**{name: body[name] for name in ("apiVersion", "kind", "metadata")}, "spec": given}
            spec = parse_job(manifest)
        except ManifestError as error:
            smaller = given
            for problem in error.problems:
                smaller = _without(smaller, problem.partition(":")[0].split(".")[1:])
            if smaller == given:
                raise
            problems, given = [*problems, *error.problems], smaller
        else:
            return spec, given, UNUSABLE.format(__version__, "; ".join(problems)) if problems else ""


def _without(value: JsonObject, steps: list[str]) -> JsonObject:
    """The value without what is at this path."""
    if not steps or steps[0] not in value:
        return value
    if len(steps) == 1 or not isinstance(value[steps[0]], dict):
        return {name: item for name, item in value.items() if name != steps[0]}
    return {**value, steps[0]: _without(value[steps[0]], steps[1:])}


def revision_in_use(body: JsonObject) -> str | None:
    """The revision that the present generation was started with; None if there is no record."""
    try:
        record = load_record(body.get("status") or {})
    except ValueError:
        return None
    return record.revision if record else None
