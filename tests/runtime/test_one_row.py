"""Rows for Spark are right, and made without pandas."""

import subprocess
import sys

from epochal.runtime.spark.one_row import one_row


def test_values_are_what_was_given() -> None:
    row = one_row(object="s3://ä/b", rows=2**40, bytes=-1, file=b"\x00\xff", empty="", nothing=b"")
    expected = {"object": "s3://ä/b", "rows": 2**40, "bytes": -1, "file": b"\x00\xff", "empty": "", "nothing": b""}
    assert row.to_pylist() == [expected]
    row.validate(full=True)


WRITING = """
import sys
from epochal.runtime import warm_up
from epochal.runtime.spark.one_row import one_row
from epochal.runtime.state.parquet_run import _pack, unpacked
(packed,) = _pack(iter([one_row(key="a", n=1)]))
assert [rows for _, rows in unpacked(packed)] == [1]
list(warm_up._ready(iter([packed])))
print("pandas" in sys.modules)
"""


def test_a_worker_that_writes_state_does_not_import_pandas() -> None:
    said = subprocess.run([sys.executable, "-c", WRITING], check=True, text=True, stdout=subprocess.PIPE).stdout
    assert said == "False\n"
