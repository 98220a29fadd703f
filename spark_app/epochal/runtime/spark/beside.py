"""Modules that lie beside a job's program: they are found after all others, and go to executors with the functions that
use them."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle


def find_modules_in(directory: Path) -> None:
    """From now on, and in no other directory that was named before."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Beside)]
    sys.meta_path.append(_Beside(directory))


class _Beside(MetaPathFinder):
    """Asked last: a program named kafka.py, say, must not hide a library of that name from others."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None:
            return None  # in a package, which is found already
        spec = PathFinder.find_spec(fullname, [self._directory], target)
        if spec is not None:
            spec.loader = _Whole(spec.loader)
        return spec


class _Whole(Loader):
    """Loads as another loader does. Executors may not have the file: its functions are sent to them whole."""

    def __init__(self, loader: Loader | None) -> None:
        self._loader = loader  # None of a directory without __init__.py

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec) if self._loader is not None else None

    def exec_module(self, module: ModuleType) -> None:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        if self._loader is not None:
            self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        """Its text, for traces of the stack, and the like."""
        return getattr(self._loader, name)
