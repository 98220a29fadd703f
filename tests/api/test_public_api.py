"""What users import: a change of it is a change of docs/python-api.md, so nobody makes one by accident."""

import subprocess
import sys
import warnings

import pytest

import epochal
from epochal.deprecation import deprecated
from tests.api.python_api import PAGE, page


def test_the_page_has_every_name_and_signature() -> None:
    assert PAGE.read_text() == page(), "the public API has changed: python -m tests.api.python_api --write"


def test_every_listed_name_is_there_and_others_are_not() -> None:
    for name in epochal.__all__:
        assert getattr(epochal, name) is not None
    assert dir(epochal) == sorted(epochal.__all__)
    with pytest.raises(AttributeError, match="module 'epochal' has no attribute 'pipeline'"):
        _ = epochal.pipeline  # type: ignore[attr-defined]


def test_importing_epochal_imports_no_spark() -> None:
    """The operator's image has none."""
    program = "import sys, epochal; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_what_is_deprecated_works_and_says_what_to_use() -> None:
    @deprecated(instead="new", as_of="0.2", removed_in="0.4")
    def old(number: int) -> int:
        return number + 1

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert old(1) == 2
    (warning,) = seen
    assert warning.category is DeprecationWarning
    assert warning.filename == __file__
    assert str(warning.message).endswith("old is deprecated since Epochal 0.2 and will be removed in 0.4: use new")
