"""A class is called by its name alone in conversations, errors and searches: so no two have the same one."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("spark_app/epochal", "operator/epochal_operator")


def test_no_two_public_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 200
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
