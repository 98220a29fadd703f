"""Where benchmarks put their results, and under which conditions these came about."""

import json
import os
import platform
from pathlib import Path
from typing import Any

BUILD = Path("build/bench")
PAGES = Path("docs/benchmarks")


def conditions(**more: Any) -> dict[str, Any]:
    import pyspark

    return {
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        **more,
    }


def write_json(name: str, document: dict[str, Any] | list[Any], *, directory: Path = BUILD) -> Path:
    path = directory / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def write_page(name: str, text: str) -> Path:
    path = PAGES / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + "\n")
    return path


def read_json(name: str, *, directory: Path = BUILD) -> Any:
    """What :func:`write_json` wrote; None if there is nothing."""
    path = directory / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def listed(conditions: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in conditions.items())


def conditions_line(found: dict[str, Any]) -> str:
    return f"Conditions: {listed(found)}. The machine is shared: ratios count, times do not."
