# Sourced first by shell scripts of tests: starts the script anew below guard.py, which ends all that the script starts.
# shellcheck shell=sh
[ -n "${TEST_GUARD:-}" ] || exec "$(dirname "$0")/../lib/guard.py" "$0" "$@"

# skip REASON: before anything is started.
skip() {
    echo "skipped: $*"
    exit 77
}
# need_tool NAME PACKAGE: skips where this machine lacks the program.
need_tool() {
    command -v "$1" >/dev/null || skip "$1 is not installed (Debian: $2)"
}
# need_stranger NAME: sets stranger to the path of what tests/tools/install-strangers has installed.
need_stranger() {
    stranger=${MUSTER_STRANGERS:-$HOME/.cache/muster-strangers}/bin/$1
    [ -e "$stranger" ] || skip "$1 is not installed (tests/tools/install-strangers $1)"
}
