#!/usr/bin/env bash
# --status of `muster registry` and `muster coordinator`: /healthz, and /metrics with gRPC's names (A66), which a page in
# Prometheus' format may have.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
need_tool curl curl
curl --version | grep -q HTTP2 || skip "curl is built without HTTP/2"
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
bin=$MUSTER_BINARY_DIR/bin

# serve COMMAND…: sets address, status, pid.
serve() {
    : >"$work/out"
    "$@" --listen 127.0.0.1:0 --status 127.0.0.1:0 >"$work/out" 2>"$work/log" &
    pid=$!
    for _ in $(seq 600); do
        status=$(sed -n 's/^status //p' "$work/out")
        address=$(sed -n 's/^listening //p' "$work/out") # stands before it
        [ -z "$status" ] || return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "does not serve: $(cat "$work/out" "$work/log")"
}
call() { # PATH: an empty message
    printf '\0\0\0\0\0' | curl -sS --http2-prior-knowledge -H 'content-type: application/grpc' -H 'te: trailers' \
        --data-binary @- -o "$work/answer" "http://$address/$1"
}
counts() { grep -qF -- "$1" "$work/page" || fail "the page lacks '$1': $(grep -v '^#' "$work/page" | head -40)"; }
check() { # SERVICE-METHOD
    [ "$(curl -sS "$status/healthz")" = ok ] || fail "/healthz: $(curl -sS "$status/healthz")"
    call grpc.health.v1.Health/Check
    call grpc.health.v1.Health/Check
    call "$1"
    call no.Such/Method 2>/dev/null || true # answered amid the request, which some versions of curl take ill
    for _ in $(seq 100); do # a call ends when its last bytes are out
        curl -sS "$status/metrics" >"$work/page"
        ! grep -q 'duration_seconds_count{grpc_method="other"' "$work/page" || break
    done
    counts 'grpc_server_call_started_total{grpc_method="grpc.health.v1.Health/Check"} 2'
    counts 'grpc_server_call_duration_seconds_count{grpc_method="grpc.health.v1.Health/Check",grpc_status="OK"} 2'
    counts 'grpc_server_call_sent_total_compressed_message_size_bytes_sum{grpc_method="grpc.health.v1.Health/Check",grpc_status="OK"} 4'
    counts 'grpc_server_call_rcvd_total_compressed_message_size_bytes_bucket{grpc_method="grpc.health.v1.Health/Check",grpc_status="OK",le="0"} 2'
    counts "grpc_server_call_started_total{grpc_method=\"$1\"} 1"
    counts 'grpc_server_call_duration_seconds_count{grpc_method="other",grpc_status="UNIMPLEMENTED"} 1'
    counts "muster_rpc_server_connections_opened_total{server=\"$address\"} 4"
    counts "muster_rpc_server_streams_started_total{server=\"$address\"} 4"
    ! grep -vE '^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[0-9.e+-]+)$' "$work/page" ||
        fail "lines that are not Prometheus'"
    [ "$(grep '^# TYPE' "$work/page" | sort | uniq -d)" = "" ] || fail "series of one name do not stand together"
    kill "$pid"
    wait "$pid" || fail "did not end well: $(cat "$work/log")"
    pid=
}

serve "$bin/muster" registry
check etcdserverpb.KV/Range
serve "$bin/muster" coordinator --tasks 1
check xla.coordination.CoordinationService/TryGetKeyValue

"$bin/muster" registry --listen 127.0.0.1:0 --status nowhere >"$work/out" 2>"$work/log" && fail "took a status of nowhere"
grep -q nowhere "$work/log" || fail "said: $(cat "$work/log")"
echo "status pages count calls and connections"
