"""What is wrong with a job's program and with the jars that it names, seen before anything starts.

What is certain is an error: nothing would run. What depends on where the job runs is a warning: an image may have
modules and jars that this machine lacks, and a program may do without what its text seems to need.
"""

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from urllib.parse import urlsplit

from epochal.cli.program import Program, read_program
from epochal.control.jars import bad_coordinates, jar_problems, jars_of_format

_IN_THE_IMAGE = ("pyspark", "epochal", "py4j")
"""Not needed to check a program: the command line is installed without Spark."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    """Something that only a cluster can check."""


@dataclass(frozen=True, slots=True)
class Said:
    level: Severity
    text: str


@dataclass(frozen=True, slots=True)
class ProgramFault:
    line: int
    level: Severity
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where a program will run, as far as its manifest says. ``directories`` are searched for modules before all
    others; ``modules`` are beside it. An image may have another Python, more modules and more jars than this machine.
    """

    directories: Sequence[Path] = ()
    modules: Set[str] = frozenset()
    conf: Mapping[str, str]
    parameters: Mapping[str, str]
    has_image: bool


def program_problems(source: bytes, function: str, around: Surroundings) -> Iterator[ProgramFault]:
    """Everything that is wrong with a Python program, by line."""
    try:
        program = read_program(source, function)
    except (SyntaxError, ValueError) as error:
        line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
        said = error.msg if isinstance(error, SyntaxError) else error
        if around.has_image:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            yield ProgramFault(line, Severity.WARNING, f"it is no Python {version}, the version that checks it: {said}")
        else:
            yield ProgramFault(line, Severity.ERROR, f"it is no Python: {said}")
        return
    except RecursionError:
        return
    if function not in program.functions and not program.any_function:
        there = ", ".join(sorted(program.functions)) or "nothing"
        message = f"there is no function {function!r} in it, only {there}: set spec.pipeline.function"
        yield ProgramFault(1, Severity.ERROR, message)
    if not around.has_image:
        yield from _missing_modules(program, around)
        for kind, line in program.formats.items():
            if package := jars_of_format(kind, around.conf):
                message = f"format {kind!r} needs a jar: set spec.sparkConf spark.jars.packages: {package}"
                yield ProgramFault(line, Severity.WARNING, message)
    for name, line in program.required.items():
        if name not in around.parameters:
            message = f"parameter {name!r} is not set: add it to spec.pipeline.parameters"
            yield ProgramFault(line, Severity.WARNING, message)


def _missing_modules(program: Program, around: Surroundings) -> Iterator[ProgramFault]:
    if program.any_import or around.conf.get("spark.submit.pyFiles"):
        return
    for name, line in program.imports.items():
        if name not in around.modules and not can_be_imported(name, around.directories):
            message = f"there is no module {name!r} here: pip install it, or put {name}.py beside the program"
            yield ProgramFault(line, Severity.WARNING, message)


def can_be_imported(name: str, directories: Sequence[Path] = ()) -> bool:
    """Whether a driver finds the module: beside the program, in the directory that it is started in, or installed."""
    if name in sys.stdlib_module_names or name in _IN_THE_IMAGE:
        return True
    try:
        with searched([*map(str, directories), str(Path.cwd())]):
            return importlib.util.find_spec(name) is not None
    except Exception:
        return True  # finders that are installed are foreign code: nothing can be said


@contextmanager
def searched(directories: Sequence[str]) -> Iterator[None]:
    """With other directories before those that modules are looked for in."""
    before = sys.path
    sys.path = [*directories, *before]
    try:
        yield
    finally:
        sys.path = before


def find_module(module: str) -> ModuleSpec | None:
    """Where a driver finds a module, told without running any of its packages. One without an origin may be there."""
    top, *below = module.split(".")
    try:
        with searched([str(Path.cwd())]):
            spec = importlib.util.find_spec(top)
    except Exception:
        return ModuleSpec(module, None)
    for name in below:
        if spec is None:
            return None
        if spec.submodule_search_locations is None:
            return ModuleSpec(module, None)
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def module_source(spec: ModuleSpec | None) -> Path | None:
    """The file with its text, if there is one."""
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def conf_problems(conf: Mapping[str, str], directory: Path, *, has_image: bool) -> Iterator[Said]:
    """Of jars that the settings name: of files that are not there, and of versions that do not fit."""
    for problem in bad_coordinates(conf):
        yield Said(Severity.ERROR, problem)
    for problem in jar_problems(conf):
        yield Said(Severity.WARNING, problem)
    jars = [] if has_image else conf.get("spark.jars", "").split(",")
    for jar in filter(None, (part.strip() for part in jars)):
        if not _is_there(jar, directory):
            yield Said(Severity.WARNING, f"spark.jars: there is no file {jar}")


def _is_there(jar: str, directory: Path) -> bool:
    """True also of what is not on this machine."""
    parts = urlsplit(jar)
    if parts.scheme not in ("", "file") or "*" in jar:
        return True
    return (directory / parts.path).exists() or Path(parts.path).exists()
