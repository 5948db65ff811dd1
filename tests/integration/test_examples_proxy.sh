#!/usr/bin/env bash
# examples/proxy.c between etcdctl and a registry: unary calls, a stream that stays open, a status with its text, the far side gone.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
build=${MUSTER_BINARY_DIR:-build-asan}
need_tool etcdctl etcd-client
folder=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

serve() { # NAME COMMAND…: sets address to where it listens
    local name=$1
    shift
    : >"$folder/$name.out"
    "$@" >"$folder/$name.out" 2>"$folder/$name.err" &
    pids+=($!)
    for _ in $(seq 600); do
        address=$(sed -n 's/^listening //p' "$folder/$name.out")
        [ -n "$address" ] && return
        kill -0 "${pids[-1]}" 2>/dev/null || break
        read -rt 0.1 <> <(:) || true
    done
    cat "$folder/$name.err" >&2
    exit 1
}

serve registry "$build/bin/muster" registry --listen 127.0.0.1:0
registry_pid=${pids[-1]}
serve proxy "$build/bin/proxy" --listen 127.0.0.1:0 --to "$address"
proxy_pid=${pids[-1]}
export ETCDCTL_API=3
etcd() { timeout 60 etcdctl --endpoints "http://$address" --command-timeout 20s "$@"; }

[ "$(etcd put colour green)" = OK ]
[ "$(etcd get --print-value-only colour)" = green ]
# A stream: what the watch hears while puts go by.
(exec timeout 600 etcdctl --endpoints "http://$address" watch --prefix count/) >"$folder/watch" 2>&1 &
watch_pid=$!
pids+=("$watch_pid")
until [ "$(grep -c '^count/' "$folder/watch" || true)" -ge 1 ]; do etcd put count/0 first >/dev/null; done
for i in $(seq 20); do etcd put "count/$i" "v$i" >/dev/null; done
until grep -q '^count/20$' "$folder/watch"; do read -rt 0.1 <> <(:) || true; done
# A large value both ways, and an error with its text.
head -c 1000000 /dev/zero | tr '\0' x | etcd put large >/dev/null
[ "$(etcd get --print-value-only large | wc -c)" -eq 1000001 ]
etcd lease revoke 1234 2>"$folder/error" && exit 1
grep -q "lease not found" "$folder/error"
# The far side goes: calls fail at once, the proxy lives.
kill "$registry_pid"
wait "$registry_pid" 2>/dev/null || true
etcd --command-timeout 5s get colour 2>/dev/null && exit 1
kill -0 "$proxy_pid"
kill "$proxy_pid"
wait "$proxy_pid"
if grep -q "ERROR: AddressSanitizer\|LeakSanitizer" "$folder/proxy.err"; then cat "$folder/proxy.err" >&2; exit 1; fi
