"""Every link of a page leads somewhere, and each claim of docs/comparison.md and docs/reliability.md is shown by a test
that is there."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
COMPARISON = ROOT / "docs" / "comparison.md"
RELIABILITY = ROOT / "docs" / "reliability.md"

INLINE = re.compile(r"\]\(([\w./#:-]+)\)")
DEFINED = re.compile(r'^\[([^]]+)\]: (\S+)(?: "([^"]+)")?$', re.MULTILINE)
USED = re.compile(r"\[[^]]+\]\[([^]]+)\]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    targets = [*INLINE.findall(text), *(target for _, target, _ in DEFINED.findall(text))]
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [target for target in files if not (page.parent / target).exists()] == []
    sections = [target.partition("#")[::2] for target in targets if "://" not in target and "#" in target]
    pages = [(page.parent / file if file else page, section) for file, section in sections]
    assert [(file, section) for file, section in pages if file.suffix == ".md" and section not in anchors(file)] == []


@functools.cache
def anchors(page: Path) -> set[str]:
    """Of headings, as the site and code hosts make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"(?:name|id)=\"([^\"]+)\"", text))
    heads = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head) for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return named | {re.sub(r"\s", "-", re.sub(r"[^\w\- ]", "", head.strip().lower())) for head in heads}


@pytest.mark.parametrize("page", [COMPARISON, RELIABILITY], ids=lambda page: page.stem)
def test_a_page_names_tests_that_are_there(page: Path) -> None:
    text = page.read_text()
    defined = {name: (page.parent / target, test) for name, target, test in DEFINED.findall(text)}
    missing = {name: test for name, (path, test) in defined.items() if test not in functions(path)}
    assert not missing
    assert set(USED.findall(text)) == set(defined), "a link without a definition, or the reverse"


def test_the_comparison_shows_all_that_it_says_of_epochal() -> None:
    lines = [line for line in COMPARISON.read_text().splitlines() if line.startswith("| ")]
    tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [cells for cells in tables if cells[1] != "Epochal"]
    assert len(rows) > 40
    assert all(len(cells) == 5 for cells in rows)
    claimed = [cells for cells in rows if not cells[1].startswith("no")]
    assert [cells[0] for cells in claimed if not USED.search(cells[1])] == []


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
