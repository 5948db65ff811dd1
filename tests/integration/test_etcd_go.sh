#!/usr/bin/env bash
# etcd's Go client and its recipes (tests/programs/etcd_walk.go) on the embedded registry, in plain text and over TLS: every answer is
# the one that etcd gives.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
here=$(cd "$(dirname "$0")" && pwd)
need_tool etcd etcd-server
need_tool etcdctl etcd-client
need_tool go golang
need_stranger etcd_go
module=$stranger
work=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
# shellcheck source=../lib/etcd.sh
. "$here/../lib/etcd.sh"

cp "$module"/go.{mod,sum} "$here/../programs/etcd_walk.go" "$work"
(cd "$work" && GOFLAGS=-mod=mod GOPROXY=off go build -o walk .) || { echo "the walk could not be built"; exit 1; }

# serve NAME ARGS…: a registry; sets endpoint.
serve() {
    local name=$1 word
    shift
    exec 3< <(exec "$MUSTER_BINARY_DIR/bin/muster" registry --log-level warn --listen 127.0.0.1:0 --data "$work/$name.db" "$@" 2>"$work/$name.log")
    pids+=($!)
    read -r -t 60 word endpoint <&3 && [ "$word" = listening ] || { cat "$work/$name.log"; echo "the registry did not start"; exit 1; }
}
# same NAME: its answers and etcd's.
same() {
    [ ! -s "$work/$1.log" ] || { cat "$work/$1.log"; echo "the registry complained"; exit 1; }
    diff "$work/etcd.answers" "$work/$1.answers" || { echo "$1: answers differ from etcd's (<)"; exit 1; }
}

start_etcd "$work/etcd"
pids+=("$etcd_pid")
"$work/walk" --endpoint "$etcd_endpoint" >"$work/etcd.answers"
serve plain
"$work/walk" --endpoint "$endpoint" >"$work/plain.answers"
same plain

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -subj /CN=registry \
    -addext subjectAltName=IP:127.0.0.1 -days 2 2>/dev/null
serve tls --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
"$work/walk" --endpoint "https://$endpoint" --ca "$work/cert.pem" >"$work/tls.answers"
same tls
echo "$(wc -l <"$work/etcd.answers") lines as etcd says them, in plain text and over TLS"
