#!/usr/bin/env bash
# Prints `version=…` for a tag, if every file that names the version agrees with it.
#
#   scripts/release-version.sh v0.2.0
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1#v}
status=0

# agrees FILE PATTERN: the first group of the pattern must be the version.
agrees() {
    local found
    found=$(sed -nE "s/$2/\1/p" "$1" | head -n 1)
    if [ "$found" != "$version" ]; then
        echo "$1 says ${found:-nothing}, and the tag $version" >&2
        status=1
    fi
}

agrees pyproject.toml '^version = "(.*)"$'
agrees charts/epochal/Chart.yaml '^version: (.*)$'
agrees charts/epochal/Chart.yaml '^appVersion: "?([^"]*)"?$'
agrees CHANGELOG.md '^## \[([0-9][^]]*)\].*$'
[ "$status" = 0 ] && echo "version=$version"
exit "$status"
