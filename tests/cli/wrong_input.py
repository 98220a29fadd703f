"""What `epochal` answers to wrong input; writes docs/wrong-input.md.

python -m tests.cli.wrong_input --write
"""

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from epochal.cli.commands import commands

PAGE = Path(__file__).parents[2] / "docs" / "wrong-input.md"
WRITE = "write it anew: python -m tests.cli.wrong_input --write"
LONGEST = 400

PROGRAM = "def build(p):\n    p.parameters['output']\n"
GOOD: Mapping[str, Any] = {
    "apiVersion": "epochal.dev/v1alpha1",
    "kind": "StreamingJob",
    "metadata": {"name": "words"},
    "spec": {
        "pipeline": {"file": "words.py", "parameters": {"output": "file:///tmp/words"}},
        "checkpoint": {"storage": {"uri": "s3://bucket/root"}},
    },
}

INTRODUCTION = """\
# Wrong input

What people write by mistake, or because another system spells it so, and what `epochal` tells them. A row is the good
job below with one thing otherwise, or a command line. Each ends with exit code 2, and none of them with a stack trace.
What a cluster answers to bad manifests is in [bad manifests](bad-manifests.md), to bad SQL in [bad SQL](bad-sql.md).

```yaml
apiVersion: epochal.dev/v1alpha1
kind: StreamingJob
metadata: {name: words}
spec:
  pipeline: {file: words.py, parameters: {output: "file:///tmp/words"}}
  checkpoint: {storage: {uri: "s3://bucket/root"}}
```

```python
def build(p):
    p.parameters["output"]
```

Written by `python -m tests.cli.wrong_input --write`; the tests in `tests/cli` keep it true.
"""


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """``says`` must be in the answer, which is no error if it ``warns``. ``text`` is the whole manifest, ``changes``
    are made to the good one."""

    says: str
    warns: bool = False
    arguments: tuple[str, ...] = ("validate", "job.yaml")
    changes: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    program: str = PROGRAM

    @property
    def shown(self) -> str:
        """As one would write it."""
        parts = [f"{path.replace('/', '.')}: {_flow(value)}" for path, value in self.changes.items()]
        if self.text is not None:
            parts.append(" ⏎ ".join(line.replace("\t", "(tab)") for line in self.text.splitlines()[-4:]) or "(nothing)")
        if self.program != PROGRAM:
            parts.append(" ⏎ ".join(self.program.splitlines()))
        if self.arguments != ("validate", "job.yaml"):
            parts.append("epochal " + " ".join(_word(word) for word in self.arguments))
        return "; ".join(parts)

    @property
    def manifest(self) -> str:
        if self.text is not None:
            return self.text
        manifest = deepcopy(dict(GOOD))
        for path, value in self.changes.items():
            *above, last = path.split("/")
            place = manifest
            for name in above:
                place = place.setdefault(name, {})
            place[last] = value
        return yaml.safe_dump(manifest, sort_keys=False)


def _flow(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


def _word(word: str) -> str:
    return f"'{word}'" if " " in word or not word else word


def answer(wrong: Wrong) -> tuple[int, str]:
    """Exit code, and what is told."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="epochal-wrong-") as directory:
        (Path(directory) / "job.yaml").write_text(wrong.manifest, encoding="utf-8")
        (Path(directory) / "words.py").write_text(wrong.program, encoding="utf-8")
        os.chdir(directory)
        try:
            result = CliRunner().invoke(commands, wrong.arguments, env={"KUBECONFIG": f"{directory}/none"})
        finally:
            os.chdir(before)
        text = result.output.replace(str(Path(directory).resolve()), ".").replace(directory, ".")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{wrong.shown}: a stack trace") from result.exception
    text = re.sub(r"Usage: .*\n(Try .*\n)?\n?", "", text)
    text = " ".join(text.removeprefix("epochal: ").split()).removesuffix(" job.yaml: default/words is valid")
    return result.exit_code, text if len(text) <= LONGEST else f"{text[: LONGEST - 100]} … {text[-90:]}"


def row(wrong: Wrong, told: str) -> str:
    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")

    return f"| `{wrong.shown.replace('|', '/')}` | {cell(told)} |"


def page() -> str:
    from tests.cli.wrong_cases import SECTIONS

    lines = [INTRODUCTION]
    for title, cases in SECTIONS:
        lines += [
            f"## {title}",
            "",
            "| written | told |",
            "|---|---|",
            *(row(one, answer(one)[1]) for one in cases),
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main()
