"""YAML with the lines that its fields stand in, so that a problem of ``spec.env[0].name`` can name a line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml


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
            path = re.sub(r"(\[\d+\]|\.?[^.\[\]]*)$", "", path)
        return self.line


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is set twice, as a cluster does: YAML itself forbids it, and PyYAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is set twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


def read_documents(text: str) -> list[Document]:
    """All documents that are not empty; :class:`yaml.YAMLError` if it is no YAML."""
    loader = _StrictLoader(text)
    found = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            lines = dict(_lines(node, ""))
            value = loader.construct_document(node)
            if value is not None:
                found.append(Document(value, node.start_mark.line + 1, lines))
    finally:
        loader.dispose()
    return found


def _lines(node: yaml.Node, path: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    if depth > 100:
        return  # an alias that holds itself
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                here = f"{path}.{key.value}" if path else str(key.value)
                yield here, key.start_mark.line + 1
                yield from _lines(value, here, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            here = f"{path}[{number}]"
            yield here, item.start_mark.line + 1
            yield from _lines(item, here, depth + 1)
