"""Both source roots are importable, and `operator/` hides nothing of the standard library."""

import operator

import epochal
import epochal_operator


def test_both_packages_are_installed() -> None:
    assert epochal.__version__
    assert epochal_operator.__doc__


def test_the_standard_operator_module_is_not_shadowed() -> None:
    assert operator.add(1, 2) == 3
