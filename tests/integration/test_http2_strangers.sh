#!/bin/bash
# curl, nghttp and h2load as strangers in front of the gRPC server's port.
set -u
. "$(dirname "$0")/../lib/guard.sh"
bin=${MUSTER_BINARY_DIR:-build-asan}/bin/bench_rpc_server
need_tool curl curl
need_tool nghttp nghttp2-client
need_tool h2load nghttp2-client
[ -x "$bin" ] || skip "$bin is not built"
work=$(mktemp -d)
"$bin" --port 0 > "$work/ready" &
server=$!
trap 'kill $server 2> /dev/null; rm -rf "$work"' EXIT
for _ in $(seq 500); do
    [ -s "$work/ready" ] && break
    kill -0 $server 2> /dev/null || break
    sleep 0.02
done
base=http://127.0.0.1:$(sed 's/.*://' "$work/ready")
failed=0
expect() { # what expected seen
    if [ "$2" = "$3" ]; then echo "ok $1"; else echo "FAILED $1: expected $2, seen $3"; failed=1; fi
}
status() { curl -s -o "$work/body" -w '%{http_code} %{http_version}' --http2-prior-knowledge "$@"; }

expect "GET / is answered" "200 2" "$(status "$base/")"
expect "the page is not empty" yes "$([ -s "$work/body" ] && echo yes)"
expect "HEAD / is answered without a body" "200 2" "$(status -I "$base/")"
expect "GET of anything else is not" "404 2" "$(status "$base/x")"
# Refused without a body: curl 7.88 takes an answer that comes before the end of its upload for an error.
expect "PUT is no call" "405 2" "$(status -X PUT "$base/bench.Echo/Unary")"
expect "another content-type is no call" "415 2" "$(status -X POST "$base/bench.Echo/Unary")"
grpc=(-H 'content-type: application/grpc' -H 'te: trailers')
printf '\0\0\0\0\4\12\2hi' > "$work/hi"
expect "a call is answered" "200 2" "$(status "${grpc[@]}" --data-binary "@$work/hi" "$base/bench.Echo/Unary")"
expect "with the same bytes" "$(od -An -tx1 < "$work/hi")" "$(od -An -tx1 < "$work/body")"
curl -s -D "$work/head" -o /dev/null --http2-prior-knowledge "${grpc[@]}" -d '' "$base/no.Such/Method"
expect "an unknown method is told in the headers" "grpc-status: 12" \
    "$(tr -d '\r' < "$work/head" | grep '^grpc-status')"
curl -s -D "$work/head" -o /dev/null --http2-prior-knowledge "${grpc[@]}" -H 'grpc-encoding: snappy' \
    -X POST "$base/bench.Echo/Unary"
expect "an unknown compression is told with what is known" yes \
    "$(grep -q '^grpc-accept-encoding: .*identity' "$work/head" && echo yes)"
nghttp -v "${grpc[@]}" -d "$work/hi" "$base/bench.Echo/Unary" > "$work/frames" 2>&1
expect "the trailers carry the status" yes "$(grep -q 'grpc-status: 0' "$work/frames" && echo yes)"
h2load -n 3000 -c 8 -m 32 "${grpc[@]}" -d "$work/hi" "$base/bench.Echo/Unary" > "$work/load" 2>&1
expect "3000 calls over 8 connections" "3000 succeeded" "$(grep -o '3000 succeeded' "$work/load")"
kill $server
wait $server
expect "the server ends in order" 0 $?
exit $failed
