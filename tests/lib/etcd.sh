# start_etcd FOLDER: one etcd member on free ports; sets etcd_pid and etcd_endpoint. Sourced by scripts.
free_ports() { # COUNT
    python3 - "$1" <<'PY'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))
PY
}

# start_etcd_cluster FOLDER: three members; sets etcd_pids (in order) and etcd_endpoints (joined by commas).
start_etcd_cluster() {
    local ports cluster="" i attempt
    for attempt in 1 2 3; do
        read -r -a ports < <(free_ports 6)
        etcd_pids=()
        etcd_endpoints=127.0.0.1:${ports[0]},127.0.0.1:${ports[1]},127.0.0.1:${ports[2]}
        cluster="m0=http://127.0.0.1:${ports[3]},m1=http://127.0.0.1:${ports[4]},m2=http://127.0.0.1:${ports[5]}"
        for i in 0 1 2; do
            rm -rf "$1.$i"
            etcd --name "m$i" --data-dir "$1.$i" --heartbeat-interval 50 --election-timeout 500 \
                --listen-client-urls "http://127.0.0.1:${ports[$i]}" \
                --advertise-client-urls "http://127.0.0.1:${ports[$i]}" \
                --listen-peer-urls "http://127.0.0.1:${ports[$((i + 3))]}" \
                --initial-advertise-peer-urls "http://127.0.0.1:${ports[$((i + 3))]}" \
                --initial-cluster "$cluster" >"$1.$i.log" 2>&1 &
            etcd_pids+=($!)
        done
        for _ in $(seq 100); do
            ETCDCTL_API=3 etcdctl --endpoints "$etcd_endpoints" --dial-timeout=1s endpoint health >/dev/null 2>&1 && return 0
            kill -0 "${etcd_pids[@]}" 2>/dev/null || break
        done
        kill "${etcd_pids[@]}" 2>/dev/null || true
    done
    tail -n 5 "$1".*.log
    echo "the etcd cluster did not start"
    return 1
}

start_etcd() {
    local client peer attempt
    # A port may be taken between its choice and its use: then choose again.
    for attempt in 1 2 3; do
        read -r client peer < <(free_ports 2)
        rm -rf "$1"
        etcd --data-dir "$1" --listen-client-urls "http://127.0.0.1:$client" \
            --advertise-client-urls "http://127.0.0.1:$client" \
            --listen-peer-urls "http://127.0.0.1:$peer" \
            --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
            --initial-cluster "default=http://127.0.0.1:$peer" >"$1.log" 2>&1 &
        etcd_pid=$!
        etcd_endpoint=127.0.0.1:$client
        for _ in $(seq 100); do
            ETCDCTL_API=3 etcdctl --endpoints "$etcd_endpoint" --dial-timeout=1s endpoint health >/dev/null 2>&1 && return 0
            kill -0 "$etcd_pid" 2>/dev/null || break
        done
        kill "$etcd_pid" 2>/dev/null || true
    done
    cat "$1.log"
    echo "etcd did not start"
    return 1
}
