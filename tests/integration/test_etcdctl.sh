#!/usr/bin/env bash
# Stock etcdctl on the embedded registry: every answer as recorded, and, where etcd is installed, as etcd answers it.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
need_tool etcdctl etcd-client
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT

exec 3< <(exec "$MUSTER_BINARY_DIR/bin/muster" registry --log-level warn --listen 127.0.0.1:0 --data "$work/registry.db" 2>"$work/log")
registry=$!
pids+=("$registry")
read -r -t 60 word endpoint <&3 || { cat "$work/log"; echo "the registry did not start"; exit 1; }
[ "$word" = listening ] || { echo "unexpected first line: $word $endpoint"; exit 1; }

"$here/../lib/etcdctl_cases.sh" "$endpoint" >"$work/ours"
case $(etcdctl version 2>&1) in
*"version: 3.4."*)
    diff "$here/../lib/etcdctl_answers.txt" "$work/ours" >"$work/diff" ||
        { cat "$work/diff"; echo "answers differ from those recorded"; exit 1; } ;;
esac

kill -TERM "$registry"
wait "$registry" || { cat "$work/log"; echo "SIGTERM did not end the registry cleanly"; exit 1; }
[ ! -s "$work/log" ] || { cat "$work/log"; echo "the registry complained"; exit 1; }

if command -v etcd >/dev/null; then
    # shellcheck source=../lib/etcd.sh
    . "$here/../lib/etcd.sh"
    start_etcd "$work/etcd"
    pids+=("$etcd_pid")
    "$here/../lib/etcdctl_cases.sh" "$etcd_endpoint" >"$work/theirs"
    diff "$work/theirs" "$work/ours" >"$work/diff" ||
        { cat "$work/diff"; echo "answers differ from etcd's (<)"; exit 1; }
    echo "etcdctl gets the recorded answers, the same as from etcd"
else
    echo "etcdctl gets the recorded answers (etcd itself is not installed)"
fi
