"""Runs the fake driver of another release than the runner that starts it: in :data:`DRIVER_PATH` is where it is."""

import os
import runpy
import sys

sys.path[:0] = os.environ["DRIVER_PATH"].split(os.pathsep)
for module in [name for name in sys.modules if name.split(".")[0] in ("tests", "epochal", "epochal_operator")]:
    del sys.modules[module]
runpy.run_module("tests.support.fake_driver", run_name="__main__")
