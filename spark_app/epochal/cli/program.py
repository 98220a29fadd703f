"""What can be read off a pipeline's program without running it: by its text alone, in a moment, and without Spark."""

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_SQL_PARAMETER = re.compile(r"\$\{([^}]*)\}")
_OF_SPARK = {"read", "readStream", "write", "writeStream"}
_NAMES_BY_CODE = {"exec", "eval", "globals", "locals", "vars", "setattr", "__getattr__"}
"""A module that uses one of these may have names that its text does not show."""
_MAY_BE_SKIPPED = (
    *(ast.If, ast.Try, ast.TryStar, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


@dataclass(slots=True)
class Program:
    """Lines of what it has. ``named`` are the parameters that it asks for anywhere, ``required`` those that it cannot
    do without; ``imports`` are the modules that it cannot do without.

    ``any_function``, ``any_import``, ``any_parameter``: there may be others, which its text does not show.
    """

    functions: set[str] = field(default_factory=set)
    imports: dict[str, int] = field(default_factory=dict)
    formats: dict[str, int] = field(default_factory=dict)
    required: dict[str, int] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    any_function: bool = False
    any_import: bool = False
    any_parameter: bool = False


def read_program(source: bytes, function: str = "build") -> Program:
    """Of Python, as a file has it, whatever its encoding; SyntaxError or ValueError if it is none. ``function`` is the
    one that describes the pipeline."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the program runs
        tree = ast.parse(source)
    program = Program()
    for statement in tree.body:
        _find_names(statement, program)
    _Reader(program).visit(tree)
    described = _only_function(tree, function)
    parameter = _first_parameter(described)
    for node in (*_sure(tree.body), *_sure(described.body if described else [])):
        _find_imports(node, program)
        if not program.any_parameter:
            _find_required(node, parameter, program)
    program.any_parameter = program.any_parameter or parameter is None or _is_handed_on(tree, parameter)
    return program


def sql_parameters(text: str) -> dict[str, int]:
    return {found[1]: text.count("\n", 0, found.start()) + 1 for found in _SQL_PARAMETER.finditer(text)}


# --- names of the module ----------------------------------------------------------------------------------------------


def _find_names(node: ast.AST, program: Program) -> None:
    """Whatever a statement of the module may bind, under whichever condition."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            program.functions.add(node.name)
            for inside in ast.walk(node):
                if isinstance(inside, ast.Global):
                    program.functions.update(inside.names)
            return
        case ast.Import() | ast.ImportFrom():
            names = {alias.asname or alias.name.split(".")[0] for alias in node.names}
            program.any_function = program.any_function or "*" in names
            program.functions |= names
        case ast.Name(id=name, ctx=ast.Store()) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            program.functions.add(name)
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        _find_names(child, program)


def _only_function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The function of that name, if it is a plain one: a decorator may call it with something else."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[0] if len(found) == 1 and not found[0].decorator_list else None


def _first_parameter(function: ast.FunctionDef | None) -> str | None:
    if function is None:
        return None
    names = [*function.args.posonlyargs, *function.args.args]
    return names[0].arg if names else None


# --- what runs whenever the module does -------------------------------------------------------------------------------


def _sure(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """All that is evaluated whenever the body is: nothing under a condition, or after one that may return."""
    for statement in body:
        if not isinstance(statement, _MAY_BE_SKIPPED):
            yield from _parts(statement)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and any(
            isinstance(inside, ast.Return) for inside in ast.walk(statement)
        ):
            return


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _MAY_BE_SKIPPED):
            yield from _parts(child)


def _find_imports(node: ast.AST, program: Program) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            program.imports.setdefault(alias.name.split(".")[0], node.lineno)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        program.imports.setdefault(node.module.split(".")[0], node.lineno)


def _find_required(node: ast.AST, parameter: str | None, program: Program) -> None:
    """``p.parameters["name"]``, if p is the function's own."""
    match node:
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=owner), attr="parameters"),
            slice=ast.Constant(value=str(name)),
            ctx=ast.Load(),
        ) if owner == parameter:
            program.required.setdefault(name, node.lineno)
        case _:
            pass


def _is_handed_on(tree: ast.Module, name: str) -> bool:
    """Whether the pipeline itself goes anywhere: whoever has it may ask it for parameters."""
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in bases
        for node in ast.walk(tree)
    )


# --- what is asked for anywhere ---------------------------------------------------------------------------------------


class _Reader(ast.NodeVisitor):
    def __init__(self, program: Program) -> None:
        self._program = program

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not _is_parameters(node.value):
            self.generic_visit(node)
            return
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(text)), ctx=ast.Load()):
                self._program.named.add(text)
            case _:
                self._program.any_parameter = True
                self.visit(node.slice)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(
                func=ast.Attribute(value=asked, attr="get"), args=[ast.Constant(value=str(text)), *others]
            ) if _is_parameters(asked):
                self._program.named.add(text)
                for argument in others:
                    self.visit(argument)
                return
            case ast.Call(func=ast.Attribute(value=asked, attr="format"), args=[ast.Constant(value=str(text))]):
                if _OF_SPARK & set(_chain(asked)):
                    self._program.formats.setdefault(text.lower(), node.lineno)
            case _:
                pass
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """``"x" in p.parameters``"""
        match node:
            case ast.Compare(left=ast.Constant(value=str(text)), comparators=[asked]) if _is_parameters(asked):
                self._program.named.add(text)
            case _:
                self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _is_parameters(node):
            # What is left of them here: handed on as a whole.
            self._program.any_parameter = True
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="path") | ast.Attribute(attr="addPyFile"):
                self._program.any_import = True
            case _:
                pass
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._program.any_function = self._program.any_function or node.id in _NAMES_BY_CODE

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._program.any_function = self._program.any_function or node.name in _NAMES_BY_CODE
        self.generic_visit(node)


def _is_parameters(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "parameters"


def _chain(node: ast.AST) -> Iterator[str]:
    """The names in ``p.spark.readStream.option(…)``, from the right."""
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute):
            yield node.attr
            node = node.value
        else:
            node = node.func
