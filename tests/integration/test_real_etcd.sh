#!/usr/bin/env bash
# The registry client's test cases against a real etcd server.
set -euo pipefail
command -v etcd >/dev/null || { echo "skipped: etcd is not installed (Debian: etcd-server)"; exit 77; }
command -v etcdctl >/dev/null || { echo "skipped: etcdctl is not installed (Debian: etcd-client)"; exit 77; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
etcd_pid=
trap 'kill $etcd_pid 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck source=../lib/etcd.sh
. "$here/../lib/etcd.sh"
start_etcd "$work/etcd"
MUSTER_TEST_REGISTRY=$etcd_endpoint "$MUSTER_BINARY_DIR/tests/test_cluster_registry_client"
