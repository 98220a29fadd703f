#!/bin/sh
# Installs what uv.lock names for some extras of the project into /app/.venv, for the Dockerfile only. The project
# itself is installed by reference: its directories get their content in later layers.
#
#   install-dependencies.sh EXTRA...
set -eu

UV_VERSION=0.13.7

python -m venv /tmp/uv
/tmp/uv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check "uv==$UV_VERSION"

# The project's build asks for these files.
mkdir -p crds spark_app/epochal operator/epochal_operator
touch README.md LICENSE crds/streamingjobs.epochal.dev.yaml
# Certificates of the system, so that a build behind a proxy can be given that proxy's.
UV_PROJECT_ENVIRONMENT=/app/.venv UV_LINK_MODE=copy UV_NATIVE_TLS=1 UV_PYTHON_DOWNLOADS=never \
    /tmp/uv/bin/uv sync --quiet --no-cache --frozen --no-dev $(printf -- " --extra %s" "$@") --compile-bytecode

if [ -e unused-jars.txt ]; then
    cd .venv/lib/python3*/site-packages/pyspark/jars
    # The one of Hive's that Spark's own ORC reader needs.
    mv hive-storage-api-*.jar /tmp
    grep -v '^#' /app/unused-jars.txt | xargs -I PATTERN sh -c 'rm -r PATTERN'
    mv /tmp/hive-storage-api-*.jar .
    rm -r ../examples ../data
fi
rm -rf /tmp/uv
