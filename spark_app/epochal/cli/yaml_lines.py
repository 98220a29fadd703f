"""YAML with the lines that its fields stand in, so that a problem of ``spec.env[0].name`` can name a line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

_LAST = re.compile(r"(\[\d+\]|\.?[^.\[\]]+)$")

MOST_NODES = 100_000
"""Of a document, with all that its aliases stand for. A cluster takes less than 2 MB."""


@dataclass(frozen=True, slots=True)
class Document:
    """``lines`` are those of each path, counted from 1; ``line`` is where the document begins."""

    value: Any
    line: int
    lines: Mapping[str, int]

    def line_of(self, path: str) -> int:
        """Of a path, or of what is around it if it is not there."""
        while path:
            if path in self.lines:
                return self.lines[path]
            shorter = _LAST.sub("", path)
            path = shorter if shorter != path else path[:-1]
        return self.line


def read_documents(text: str) -> list[Document]:
    """All documents that are not empty; :class:`yaml.YAMLError` if it is no YAML."""
    loader = yaml.SafeLoader(text)
    found = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            _count(node, {})
            lines = dict(_lines(node, "", set()))
            value = loader.construct_document(node)
            if value is not None:
                found.append(Document(value, node.start_mark.line + 1, lines))
    finally:
        loader.dispose()
    return found


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes there are with aliases written out, which is how a cluster gets it: not too many, and an end."""
    if id(node) in known:
        if not known[id(node)]:
            raise yaml.constructor.ConstructorError(None, None, "it contains itself, by an alias", node.start_mark)
        return known[id(node)]
    known[id(node)] = 0
    total = 1 + sum(_count(part, known) for part in _parts(node))
    if total > MOST_NODES:
        raise yaml.constructor.ConstructorError(None, None, "its aliases stand for too much", node.start_mark)
    known[id(node)] = total
    return total


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _lines(node: yaml.Node, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Of each path. What an alias repeats stands where the alias is. Refuses a key that is set twice, as a cluster
    does: YAML forbids it, and PyYAML takes the last."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is set twice", key.start_mark)
            keys.add(key.value)
            here = f"{path}.{key.value}" if path else str(key.value)
            yield here, key.start_mark.line + 1
            yield from _lines(value, here, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            here = f"{path}[{number}]"
            yield here, item.start_mark.line + 1
            yield from _lines(item, here, seen)
