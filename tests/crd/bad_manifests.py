"""What a cluster and `epochal validate` answer to bad manifests; writes docs/bad-manifests.md.

    python -m tests.crd.bad_manifests --write

starts a real API server and writes the page anew.
"""

import contextlib
import json
import re
import sys
import tempfile
from pathlib import Path

import yaml

from cluster.control_plane import ControlPlane
from epochal.cli.errors import UserError
from epochal.cli.manifests import load_job
from epochal.control.job import parse_job
from epochal_operator.api import ConflictError
from epochal_operator.kubernetes.preflight import problem_of
from epochal_operator.stores.store_access import StoreRules
from tests.crd.cases import NOT_ACCEPTED, REMOVED, SECTIONS, Case, changed
from tests.crd.server import RefusedError, Server

PAGE = Path(__file__).parents[2] / "docs" / "bad-manifests.md"
WRITE = "write it anew: python -m tests.crd.bad_manifests --write"
LONGEST = 420

INTRODUCTION = """\
# Bad manifests

What has been tried, what a cluster answers, and what `epochal validate` answers without one. A row is the manifest

```yaml
apiVersion: epochal.dev/v1alpha1
kind: StreamingJob
metadata: {name: words, namespace: default}
spec:
  pipeline: {module: jobs.words}
  checkpoint: {storage: {uri: s3://bucket/root}}
```

with one thing set otherwise. `kubectl` asks the cluster to be strict (`--validate=strict`, the default), so that a
misspelt field is an error and not dropped. Left out of its answers: `The StreamingJob "words" is invalid`, and the
remark that rules are not checked before types are right.

Written by `python -m tests.crd.bad_manifests --write`, which asks a real API server; the tests in `tests/crd` keep it
true.
"""

SEEN_BY_THE_OPERATOR = """\
## What only the operator can see

A cluster takes these. The operator looks around before it starts a driver: the job gets the condition Stalled with
reason SpecNotAccepted and an event, a driver that runs is left alone, and all is looked at again every few seconds.
Here there is a Secret `half` with one key, a ConfigMap `program` with the key `words.py`, and no account
`epochal-driver`; the manifest also has `image` and `serviceAccount: default`.
"""


def tried(case: Case) -> str:
    """The changes of a case as one would write them."""
    if case.text:
        return " ⏎ ".join(line.replace("\t", "(tab)") for line in case.text.splitlines()[-3:])
    return ", ".join(f"{path}: {_flow(value)}" for path, value in case.changes.items())


def _flow(value: object) -> str:
    if value is REMOVED:
        return "(left out)"
    # JSON is YAML, and shows what is text and what is not.
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 110 else f"{text[:50]}…{text[-10:]} ({len(text)} characters)"


def manifest_text(case: Case) -> str:
    return case.text or yaml.safe_dump(case.manifest, sort_keys=False)


def cluster_answer(server: Server, case: Case) -> str:
    """The API server's message; an AssertionError if it takes the manifest."""
    try:
        if case.before is None:
            server.create(manifest_text(case), dry=True)
        else:
            there = server.create(yaml.safe_dump(changed(case.before)))
            version = {"metadata.resourceVersion": there["metadata"]["resourceVersion"]}
            try:
                server.replace("words", yaml.safe_dump(changed({**case.changes, **version})), dry=True)
            finally:
                server.delete("words")
    except RefusedError as error:
        return _settled(error.message)
    raise AssertionError(f"taken for good: {tried(case)}")


def offline_answer(case: Case) -> str | None:
    """What `epochal validate` says; None if it takes the manifest. It cannot see that one is changed."""
    with tempfile.TemporaryDirectory(prefix="epochal-bad-manifest-") as directory:
        path = Path(directory) / "job.yaml"
        path.write_text(manifest_text(case), encoding="utf-8")
        try:
            load_job(path)
        except UserError as error:
            # The lines are those of a file that YAML's own writer made: they say nothing here.
            return _settled(re.sub(r"(?m)^  line \d+: ", "  ", str(error)).replace(str(path), "job.yaml"))
    return None


def _settled(message: str) -> str:
    message = re.sub(r'^\w+\.epochal\.dev "[^"]*" is invalid: ', "", message)
    message = re.sub(r"^\[(.*), <nil>: Invalid value: null: some validation rules were not checked.*", r"\1", message)
    message = " ".join(message.removeprefix("job.yaml is not valid:").split())
    # Quotes what was sent, in whole.
    message = re.sub(r'Invalid value: (?:"[^"]{100,}"|\{.{100,}?\}): ', "Invalid value: …: ", message)
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 110]} … {message[-100:]}"


def operator_answer(server: Server, case: Case) -> str:
    """What the operator says of a manifest that the cluster takes."""
    manifest = changed({"spec.image": "example.org/spark", "spec.serviceAccount": "default", **case.changes})
    server.create(yaml.safe_dump(manifest), dry=True)
    rules = StoreRules(own_identity=("s3://bucket/root",))
    return problem_of(parse_job(manifest), server.api, rules)


def make_surroundings(server: Server) -> None:
    """A Secret and a ConfigMap that lack what is looked for."""
    for kind, name, data in (
        ("secrets", "half", {"AWS_ACCESS_KEY_ID": ""}),
        ("configmaps", "program", {"words.py": ""}),
    ):
        with contextlib.suppress(ConflictError):
            server.api.create(kind, "default", {"metadata": {"name": name}, "data": data})


def row(case: Case, cluster: str) -> str:
    offline = offline_answer(case)
    return f"| {_cell(tried(case), code=True)} | {_cell(cluster)} | {_cell(offline or '–')} |"


def offline_cell(case: Case) -> str:
    """The end of the case's row, which can be seen without a cluster."""
    return f" | {_cell(offline_answer(case) or '–')} |"


def row_begin(case: Case) -> str:
    return f"| {_cell(tried(case), code=True)} |"


def _cell(text: str, *, code: bool = False) -> str:
    text = text.replace("|", "\\|")
    return f"`{text}`" if code else text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def page(server: Server) -> str:
    lines = [INTRODUCTION]
    for title, cases in SECTIONS:
        lines += [f"## {title}", "", "| set | a cluster answers | `epochal validate` answers |", "|---|---|---|"]
        lines += [row(case, cluster_answer(server, case)) for case in cases]
        lines.append("")
    make_surroundings(server)
    lines += [SEEN_BY_THE_OPERATOR, "| set | the condition Stalled says |", "|---|---|"]
    for case in NOT_ACCEPTED:
        lines.append(f"| {_cell(tried(case), code=True)} | {_cell(operator_answer(server, case))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    with ControlPlane() as plane, Server(plane) as server:
        server.install_crd()
        written = page(server)
    if "--write" in sys.argv:
        PAGE.write_text(written, encoding="utf-8")
    else:
        print(written)


if __name__ == "__main__":
    main()
