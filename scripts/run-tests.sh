#!/usr/bin/env bash
# Runs every test. Those on the cluster wait most of their time, so they run beside the others, which want the cores.
#
#   scripts/run-tests.sh [WORKERS]    WORKERS: how many processes run the tests without pods (2)
#
# Time limits fail on a machine that is busy: what failed is run once more, by itself, and both runs are shown.
set -uo pipefail
# Without it, what runs in the background would not hear of an interrupt.
set -m
cd "$(dirname "$0")/.."

INTERRUPTED=2
workers=${1:-2}
failed=()

# pytest NAME OPTION...: each part remembers its own failures.
pytest() {
    exec .venv/bin/pytest -o "cache_dir=.pytest_cache/$1" --durations=15 "${@:2}"
}

# ended NAME STATUS: note what failed; an interrupt ends it all.
ended() {
    case $2 in
        0) ;;
        "$INTERRUPTED" | 13[0-9] | 14[0-9]) exit "$2" ;;
        *) failed+=("$1") ;;
    esac
}

(pytest pods -m node) > >(sed -u 's/^/pods | /') 2>&1 &
pods=$!
# Interrupted, it still ends its cluster.
trap 'kill -INT "$pods" 2>/dev/null && wait "$pods"' EXIT
# By files, in their order: what a file's tests share is made by one process only.
(pytest others -n "$workers" --dist loadfile --no-loadscope-reorder -m "not node")
ended others $?
wait "$pods"
ended pods $?

status=0
for part in "${failed[@]}"; do
    echo "*** Failed ($part): once more, alone. What passes now is not sound either: please mend it."
    # Where no failure is on record, as after a crash of pytest itself, that is a failure, too.
    (pytest "$part" -m "" --last-failed --last-failed-no-failures=none) || status=1
done
exit "$status"
