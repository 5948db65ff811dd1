#!/usr/bin/env bash
# grpcurl, which knows no .proto file, lists, describes and calls what our servers serve, by reflection (v1 and v1alpha).
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
need_stranger grpcurl
PATH=$(dirname "$stranger"):$PATH
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

# serve NAME COMMAND…: sets address.
serve() {
    local name=$1
    shift
    : >"$work/$name"
    "$@" >"$work/$name" 2>"$work/$name.log" &
    pids+=($!)
    for _ in $(seq 600); do
        address=$(sed -n 's/^listening //p' "$work/$name")
        [ -z "$address" ] || return 0
        kill -0 "${pids[-1]}" 2>/dev/null || break
        sleep 0.1
    done
    fail "$name does not serve: $(cat "$work/$name.log")"
}
# says TEXT ARGS…: what grpcurl prints has TEXT.
says() {
    local text=$1 out
    shift
    out=$(grpcurl -plaintext "$@" 2>&1) || true
    grep -qF -- "$text" <<<"$out" || fail "grpcurl $*: expected '$text', got: $out"
}
lists() {
    [ "$(grpcurl -plaintext "$address" list)" = "$(printf '%s\n' "$@")" ] || fail "listed: $(grpcurl -plaintext "$address" list)"
}

bin=$MUSTER_BINARY_DIR/bin
serve bench "$bin/bench_rpc_server" --port 0
lists bench.Echo grpc.health.v1.Health grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection
says 'rpc Source ( .bench.Req ) returns ( stream .bench.Msg );' "$address" describe bench.Echo
says 'bytes payload = 1;' "$address" describe bench.Msg
says '"payload": "Zm9v"' -d '{"payload":"Zm9v"}' "$address" bench.Echo/Unary
says '"count": 2' -d '{"payload":"Zm9v"}{"payload":"Zm9v"}' "$address" bench.Echo/Sink
[ "$(grpcurl -plaintext -d '{"size":3,"count":2}' "$address" bench.Echo/Source | grep -c AAAA)" = 2 ] || fail "Source"
says 'Symbol not found: bench.Nothing' "$address" describe bench.Nothing
says '"status": "SERVING"' "$address" grpc.health.v1.Health/Check
says 'rpc ServerReflectionInfo' "$address" describe grpc.reflection.v1.ServerReflection
says 'rpc ServerReflectionInfo' "$address" describe grpc.reflection.v1alpha.ServerReflection
alpha=grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo
says '"name": "bench.Echo"' -d '{"listServices":"*"}' "$address" $alpha
says '"errorCode": 5' -d '{"fileByFilename":"nothing.proto"}' "$address" $alpha
says '"baseTypeName": "bench.Msg"' -d '{"allExtensionNumbersOfType":"bench.Msg"}' "$address" $alpha
says '"errorCode": 5' -d '{"fileContainingExtension":{"containingType":"bench.Msg","extensionNumber":9}}' "$address" $alpha
says 'InvalidArgument' -d '{}' "$address" $alpha

serve registry "$bin/muster" registry --listen 127.0.0.1:0
lists etcdserverpb.Auth etcdserverpb.Cluster etcdserverpb.KV etcdserverpb.Lease etcdserverpb.Maintenance etcdserverpb.Watch \
    grpc.health.v1.Health grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection v3electionpb.Election v3lockpb.Lock
says 'mvccpb.KeyValue is a message' "$address" describe mvccpb.KeyValue
says '"revision": "2"' -d '{"key":"Zm9v","value":"YmFy"}' "$address" etcdserverpb.KV/Put
says '"value": "YmFy"' -d '{"key":"Zm9v"}' "$address" etcdserverpb.KV/Range
says '"status": "SERVING"' -d '{"service":"etcdserverpb.KV"}' "$address" grpc.health.v1.Health/Check
says 'Code: NotFound' -d '{"service":"etcdserverpb.Nothing"}' "$address" grpc.health.v1.Health/Check
says '"etcdserverpb.Lease"' "$address" grpc.health.v1.Health/List
for service in etcdserverpb.{Auth,Cluster,KV,Lease,Maintenance,Watch} v3electionpb.Election v3lockpb.Lock; do
    says "$service is a service" "$address" describe "$service"
done
says '"key": "bS' -d '{"name":"bQ=="}' "$address" v3lockpb.Lock/Lock
says 'election: no leader' -d '{"name":"ZQ=="}' "$address" v3electionpb.Election/Leader
says '"hash":' "$address" etcdserverpb.Maintenance/Hash
says '"authRevision": "1"' "$address" etcdserverpb.Auth/AuthStatus

serve coordinator "$bin/muster" coordinator --listen 127.0.0.1:0 --tasks 1
lists grpc.health.v1.Health grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection \
    tensorflow.CoordinationService xla.coordination.CoordinationService
xla=xla.coordination.CoordinationService
says '"serviceIncarnation"' -d '{"incarnation":7,"source_task":0}' "$address" $xla/RegisterTask
says '{}' -d '{"kv":{"key":"a/b","value":"YmFy"}}' "$address" tensorflow.CoordinationService/InsertKeyValue
says '"value": "YmFy"' -d '{"key":"a/b"}' "$address" tensorflow.CoordinationService/GetKeyValue
says '"value": "YmFy"' -d '{"key":"a"}' "$address" tensorflow.CoordinationService/GetKeyValueDir
says '"taskState"' -d '{}' "$address" $xla/WatchJobState
says 'rpc Barrier ( .tensorflow.BarrierRequest )' "$address" describe tensorflow.CoordinationService.Barrier
says '"status": "SERVING"' -d "{\"service\":\"$xla\"}" "$address" grpc.health.v1.Health/Check
echo "grpcurl lists, describes and calls bench_rpc_server, muster registry and muster coordinator"
