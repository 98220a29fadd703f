"""The page of the public Python API, made of names, signatures and docstrings; writes docs/python-api.md.

python -m tests.api.python_api --write
"""

import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import epochal

PAGE = Path(__file__).parents[2] / "docs" / "python-api.md"

HEAD = """\
# Python API

Everything you can import from `epochal`. Nothing else is public: modules below `epochal` may change with every release.
[Compatibility](compatibility.md) says what may change here, and how it is announced. This page is made from the code by
`python -m tests.api.python_api --write`.
"""


def page() -> str:
    parts = [HEAD]
    for name in sorted(set(epochal.__all__) - {"__version__"}, key=str.casefold):
        parts += _entry(name, getattr(epochal, name))
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, thing: object) -> Iterator[str]:
    yield f"## {name}\n"
    if inspect.isclass(thing):
        if not issubclass(thing, BaseException | Enum):
            yield _code(name, thing)
        yield _doc(thing)
        for member, value in sorted(_members(thing)):
            yield f"### {name}.{member}\n"
            if isinstance(value, property):
                yield "A property.\n"
            else:
                yield _code(member, value)
            yield _doc(value)
    else:
        yield _code(name, thing)
        yield _doc(thing)


def _members(thing: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties, its own and those of base classes of ours that are not public themselves."""
    public = {getattr(epochal, name) for name in epochal.__all__ if inspect.isclass(getattr(epochal, name))}
    seen: set[str] = set()
    for owner in thing.__mro__:
        if owner is not thing and owner in public:
            return
        if not owner.__module__.startswith("epochal."):
            continue
        for name, value in vars(owner).items():
            if not name.startswith("_") and name not in seen and (callable(value) or isinstance(value, property)):
                seen.add(name)
                yield name, value


def _code(name: str, thing: object) -> str:
    try:
        signature = str(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    # Where a default lives in memory, and what module a type is from, says nothing to a reader.
    signature = re.sub(r" at 0x[0-9a-f]+", "", signature)
    signature = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", signature)
    # Nor do the quotes around a type that only checkers import.
    signature = re.sub(r"'([A-Z]\w*(?: \| \w+)*)'", r"\1", signature)
    return f"```python\n{name}{signature}\n```\n"


def _doc(thing: object) -> str:
    text = inspect.getdoc(thing if not isinstance(thing, property) else thing.fget) or ""
    # reStructuredText's roles and literals, as Markdown.
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    return f"{text}\n" if text else ""


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    PAGE.write_text(page())
