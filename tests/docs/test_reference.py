"""The reference pages and pictures are those of the code, and the site can be built from all pages."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.reference import DOCS, PAGES, ROOT, VALUES


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run: python -m tests.docs.reference --write"


def test_pictures_are_as_they_are_drawn() -> None:
    drawn = runpy.run_path(str(DOCS / "site" / "pictures.py"))["drawn"]()
    there = {name: (DOCS / "images" / name).read_text() for name in drawn}
    assert there == drawn, "run: python docs/site/pictures.py"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Every page is in the navigation or said not to be, and every link and anchor leads somewhere."""
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "site" / "index.html").read_text()
    assert "https://fonts." not in index, "nothing is fetched from elsewhere"
    crd = (tmp_path / "site" / "crd.html").read_text()
    assert "spec.checkpoint.interval" in crd
    runbook = yaml.safe_load(VALUES.read_text())["metrics"]["prometheusRule"]["runbookUrl"]
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)["site_url"]
    assert runbook.startswith(site), "alerts link to this site"
    text = (tmp_path / "site" / runbook.removeprefix(site)).read_text()
    alerts = re.findall(r"runbookUrl \}\}#(\w+)", (ROOT / "charts/epochal/templates/prometheusrule.yaml").read_text())
    assert [alert for alert in alerts if f'id="{alert}"' not in text] == []
    assert alerts
