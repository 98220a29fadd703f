#!/usr/bin/env bash
# Runs the tests of what is needed of Spark beyond its public API with other versions of Spark, each in an environment of
# its own that is thrown away.
#
#   scripts/newest-sparks.sh 4.2.1 4.3.0
set -uo pipefail
cd "$(dirname "$0")/.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=""
for version in "$@"; do
    echo "--- Spark $version ---"
    echo "pyspark==$version" >"$place/override"
    .venv/bin/uv venv --quiet --clear --python .venv/bin/python "$place/env" &&
        .venv/bin/uv pip install --quiet --python "$place/env/bin/python" --override "$place/override" \
            --group dev -e ".[operator,spark]" &&
        EPOCHAL_NO_JARS=1 PYSPARK_PYTHON="$place/env/bin/python" \
            "$place/env/bin/pytest" tests/runtime/test_spark_contract.py || failed="$failed $version"
done
[ -z "$failed" ] || { echo "What Epochal needs is not all there in Spark$failed" >&2; exit 1; }
