"""What can be said of a pipeline's program without running it: by its text alone, in a moment, and without Spark."""

import ast
import importlib.machinery
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from epochal.control.jars import jar_problems, jars_of_format

_SQL_PARAMETER = re.compile(r"\$\{([^}]*)\}")
_IN_THE_IMAGE = ("pyspark", "epochal", "py4j")
"""Not needed to check a program: the command line is installed without Spark."""


@dataclass(frozen=True, slots=True)
class ProgramFault:
    line: int
    message: str


@dataclass(slots=True)
class Program:
    """``required`` are the parameters that it cannot do without, each with a line; ``named`` are all that it asks for.
    ``any_parameter``: it looks at them in a way that cannot be read off."""

    functions: set[str] = field(default_factory=set)
    imports: dict[str, int] = field(default_factory=dict)
    formats: dict[str, int] = field(default_factory=dict)
    required: dict[str, int] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    any_parameter: bool = False
    any_function: bool = False


def read_program(text: str) -> Program:
    """Of Python; SyntaxError if it is none."""
    tree = ast.parse(text)
    program = Program()
    _Reader(program).visit(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            program.functions.add(node.name)
        elif isinstance(node, ast.Assign):
            program.functions |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            program.functions |= {alias.asname or alias.name for alias in node.names}
        else:
            # Under an `if`, by a decorator of a module: it may be there.
            program.any_function = program.any_function or isinstance(node, ast.If | ast.Try | ast.For | ast.With)
    return program


class _Reader(ast.NodeVisitor):
    def __init__(self, program: Program) -> None:
        self._program = program
        self._guarded = 0

    def visit_Try(self, node: ast.Try) -> None:
        """An import that may fail is meant to."""
        self._guarded += 1
        self.generic_visit(node)
        self._guarded -= 1

    def visit_If(self, node: ast.If) -> None:
        self._guarded += "TYPE_CHECKING" in ast.dump(node.test)
        self.generic_visit(node)
        self._guarded -= "TYPE_CHECKING" in ast.dump(node.test)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module:
            self._import(node.module, node.lineno)

    def _import(self, name: str, line: int) -> None:
        if not self._guarded:
            self._program.imports.setdefault(name.split(".")[0], line)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_parameters(node.value):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                self._program.required.setdefault(node.slice.value, node.lineno)
                self._program.named.add(node.slice.value)
            else:
                self._program.any_parameter = True
            self.visit(node.slice)
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Attribute):
            first = node.args[0] if node.args else None
            text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            if called.attr == "get" and _is_parameters(called.value) and text is not None:
                self._program.named.add(text)
                for argument in node.args[1:]:
                    self.visit(argument)
                return
            if called.attr == "format" and text is not None and not isinstance(called.value, ast.Constant):
                self._program.formats.setdefault(text.lower(), node.lineno)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """``"x" in p.parameters``"""
        if any(_is_parameters(one) for one in node.comparators) and isinstance(node.left, ast.Constant):
            self._program.named.add(str(node.left.value))
            return
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """What is left of them here: handed on as a whole."""
        self._program.any_parameter = self._program.any_parameter or _is_parameters(node)
        self.generic_visit(node)


def _is_parameters(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "parameters"


def sql_parameters(text: str) -> dict[str, int]:
    return {found[1]: text.count("\n", 0, found.start()) + 1 for found in _SQL_PARAMETER.finditer(text)}


def module_file(module: str, directories: list[str]) -> Path | None:
    """Where an import would find a module, found without running any of its packages."""
    where: list[str] | None = directories
    *packages, last = module.split(".")
    for name in packages:
        spec = importlib.machinery.PathFinder.find_spec(name, where)
        if spec is None or spec.submodule_search_locations is None:
            return None
        where = list(spec.submodule_search_locations)
    spec = importlib.machinery.PathFinder.find_spec(last, where)
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def program_problems(
    text: str,
    *,
    function: str,
    parameters: Mapping[str, str],
    conf: Mapping[str, str],
    directory: Path,
    has_image: bool,
) -> Iterator[ProgramFault]:
    """Everything that is wrong with a Python program, by line. What an image brings, modules and jars, is not looked
    for here."""
    try:
        program = read_program(text)
    except (SyntaxError, ValueError) as error:
        line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
        yield ProgramFault(line, f"it is no Python: {error.msg if isinstance(error, SyntaxError) else error}")
        return
    if function not in program.functions and not program.any_function:
        there = ", ".join(sorted(program.functions)) or "nothing"
        yield ProgramFault(1, f"there is no function {function!r} in it, only {there}: set spec.pipeline.function")
    if not has_image:
        for name, line in program.imports.items():
            if not _can_be_imported(name, directory):
                yield ProgramFault(
                    line, f"there is no module {name!r}: pip install it, or put {name}.py beside the program"
                )
        for kind, line in program.formats.items():
            package = jars_of_format(kind, conf)
            if package:
                yield ProgramFault(
                    line, f"format {kind!r} needs a jar: set spec.sparkConf spark.jars.packages: {package}"
                )
    for name, line in program.required.items():
        if name not in parameters:
            yield ProgramFault(line, f"parameter {name!r} is not set: add it to spec.pipeline.parameters")


def _can_be_imported(name: str, directory: Path) -> bool:
    if name in sys.stdlib_module_names or name in _IN_THE_IMAGE:
        return True
    return importlib.machinery.PathFinder.find_spec(name, [str(directory), *sys.path]) is not None


def conf_problems(conf: Mapping[str, str], directory: Path) -> Iterator[str]:
    """Of jars that the settings name: of files that are not there, and of versions that do not fit."""
    for jar in filter(None, (part.strip() for part in conf.get("spark.jars", "").split(","))):
        local = Path(jar.removeprefix("file://")) if "://" not in jar or jar.startswith("file://") else None
        if local is not None and not (directory / local).exists() and not local.exists():
            yield f"spark.jars: there is no file {jar}"
    yield from jar_problems(conf)
