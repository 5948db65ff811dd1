#!/usr/bin/env bash
# The registry client's test cases against real etcd: three members, then two of them.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
need_tool etcd etcd-server
need_tool etcdctl etcd-client
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
etcd_pids=()
trap 'kill "${etcd_pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=../lib/etcd.sh
. "$here/../lib/etcd.sh"
start_etcd_cluster "$work/etcd"
export MUSTER_TEST_REGISTRY=$etcd_endpoints
run_cases() {
    local cases
    for cases in registry_client watch lock election; do
        "$MUSTER_BINARY_DIR/tests/test_cluster_client_$cases" || return
    done
}

run_cases

kill -9 "${etcd_pids[0]}"
wait "${etcd_pids[0]}" 2>/dev/null || true
for _ in $(seq 100); do # until the others have a leader
    ETCDCTL_API=3 etcdctl --endpoints "${etcd_endpoints#*,}" --dial-timeout=1s endpoint health >/dev/null 2>&1 && break
done
run_cases
