#!/usr/bin/env bash
# Sets up what the make targets need, starting from a bare Python 3.11.
#
#   scripts/bootstrap.sh python    .venv with everything uv.lock names
#   scripts/bootstrap.sh java      a Java that Spark can run on
#
# Says nothing and changes nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.7
JAVA_NEEDED=17

say() { echo "bootstrap: $*" >&2; }
fail() { say "$@"; exit 1; }

# install_debian PACKAGE...: only root on Debian can be helped; everyone else is told what to install.
install_debian() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "please install $* (or what your system calls it) and try again"
    fi
    say "installing $*"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$@"; } \
        >/dev/null || fail "apt-get could not install $*"
}

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3.11}" python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed; set PYTHON to one"
}

ensure_python() {
    if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
        local python
        python=$(find_python)
        # Debian ships Python without ensurepip, and a venv without pip is of no use here.
        "$python" -c 'import ensurepip' 2>/dev/null || install_debian python3-venv
        say "creating .venv"
        "$python" -m venv --clear .venv
    fi
    if [ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$UV_VERSION" ]; then
        say "installing uv $UV_VERSION"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
    fi
    # A virtual environment that happens to be active must not be taken for ours.
    env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT=.venv .venv/bin/uv sync --quiet --frozen --all-extras
    touch .venv/.ready
}

java_version() {
    local java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    # No Java at all is an empty answer, not an error.
    { "$java" -version 2>&1 || true; } | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1
}

ensure_java() {
    local found
    found=$(java_version)
    [ "${found:-0}" -lt "$JAVA_NEEDED" ] || return 0
    [ -z "${JAVA_HOME:-}" ] || fail "Spark needs Java $JAVA_NEEDED or newer, and JAVA_HOME points to ${found:-none}"
    # The package's install scripts expect this directory, which slim images leave out.
    [ "$(id -u)" != 0 ] || mkdir -p /usr/share/man/man1
    install_debian "openjdk-$JAVA_NEEDED-jre-headless"
}

case "${1:-}" in
    python) ensure_python ;;
    java) ensure_java ;;
    *) fail "usage: scripts/bootstrap.sh python|java" ;;
esac
