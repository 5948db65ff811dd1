#!/usr/bin/env python3
"""grpcio (gRPC's C core) as a stranger on both sides: its client against our server, our client against its server; in plain text and
under mutual TLS. Our client repeats calls and takes servers in turn, as its service config says.

Needs bench_rpc_server and bench_rpc_client, and grpcio (MUSTER_GRPC_PYTHON names an interpreter that has it).
"""
import contextlib
import json
import os
import subprocess
import sys
from concurrent import futures

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
from tls_files import OPENSSL, TlsFiles

ENVIRONMENT = dict(os.environ, ASAN_OPTIONS="detect_leaks=1")

needs.run_with("grpc", "python3-grpcio")
import grpc


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(payload):
    return b"\x0a" + varint(len(payload)) + payload if payload else b""


def request(size, count):
    return b"\x08" + varint(size) + b"\x10" + varint(count)


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Number -> value of a flat message of varints and bytes."""
    found, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            found[tag >> 3], at = read_varint(data, at)
        else:
            length, at = read_varint(data, at)
            found[tag >> 3] = data[at:at + length]
            at += length
    return found


def expect(what, is_right):
    print(("ok " if is_right else "FAILED ") + what)
    if not is_right:
        sys.exit(1)


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Identities:
    """Of our side and of grpcio's, under one authority."""

    def __init__(self, files):
        self.ca = files.ca
        self.ours = files.issue("ours")
        self.theirs = files.issue("theirs")

    def flags(self):
        return ["--tls-ca", self.ca, "--tls-cert", self.ours[0], "--tls-key", self.ours[1]]

    def channel_credentials(self):
        return grpc.ssl_channel_credentials(read(self.ca), read(self.theirs[1]), read(self.theirs[0]))

    def server_credentials(self):
        return grpc.ssl_server_credentials([(read(self.theirs[1]), read(self.theirs[0]))], read(self.ca),
                                           require_client_auth=True)


def check_server(identities=None):
    flags = [] if identities is None else identities.flags() + ["--tls-client-ca", identities.ca]
    server = subprocess.Popen([needs.program("bench_rpc_server"), "--port", "0"] + flags, stdout=subprocess.PIPE,
                              text=True, env=ENVIRONMENT)
    try:
        port = server.stdout.readline().rsplit(":", 1)[1].strip()
        options = [("grpc.max_receive_message_length", 64 << 20),
                   ("grpc.keepalive_time_ms", 10000)]
        target = f"127.0.0.1:{port}"
        with (grpc.insecure_channel(target, options=options) if identities is None else
              grpc.secure_channel(target, identities.channel_credentials(), options=options)) as channel:
            call_server(channel)
    finally:
        server.terminate()
        status = server.wait(timeout=60)
    expect("the server ends in order", status == 0)


def call_server(channel):
    unary = channel.unary_unary("/bench.Echo/Unary")
    for size in (0, 1, 1000, 100000, 5 << 20):
        reply = unary(message(b"x" * size), timeout=60)
        expect(f"unary of {size} bytes", reply == message(b"x" * size))
    replies = list(channel.unary_stream("/bench.Echo/Source")(request(70000, 100), timeout=60))
    expect("server stream", len(replies) == 100 and all(len(fields(r)[1]) == 70000 for r in replies))
    answer = channel.stream_unary("/bench.Echo/Sink")((message(b"y" * 999) for _ in range(200)),
                                                      timeout=60)
    expect("client stream", fields(answer) == {1: 999 * 200, 2: 200})
    calls = [unary.future(message(b"%d" % i), timeout=60) for i in range(300)]
    expect("300 calls at once", all(c.result() == message(b"%d" % i) for i, c in enumerate(calls)))
    code, details = code_of(lambda: channel.unary_unary("/bench.Echo/Missing")(b"", timeout=60))
    expect("unknown method", code == grpc.StatusCode.UNIMPLEMENTED and details == "unknown method")
    code, _ = code_of(lambda: unary(b"\x0a\xff", timeout=60))
    expect("malformed message", code == grpc.StatusCode.INVALID_ARGUMENT)
    stream = channel.unary_stream("/bench.Echo/Source")(request(1000, 1 << 30), timeout=60)
    next(stream)
    stream.cancel()
    expect("cancel of a stream", code_of(lambda: next(stream))[0] == grpc.StatusCode.CANCELLED)
    stream = channel.unary_stream("/bench.Echo/Source")(request(1000, 1 << 30), timeout=0.2)
    code, _ = code_of(lambda: [None for _ in stream])
    expect("deadline of a stream", code == grpc.StatusCode.DEADLINE_EXCEEDED)
    code, _ = code_of(lambda: unary(message(b"m"), timeout=60,
                                    metadata=[("x-big", "v" * 7000), ("x-raw-bin", b"\x00\xff")]))
    expect("metadata", code == grpc.StatusCode.OK)
    code, _ = code_of(lambda: unary(message(b"m"), timeout=60, metadata=[("x-big", "v" * 20000)]))
    expect("too much metadata", code == grpc.StatusCode.RESOURCE_EXHAUSTED)
    expect("the connection lives on", unary(message(b"z"), timeout=60) == message(b"z"))


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/bench.Echo/Unary":
            return grpc.unary_unary_rpc_method_handler(lambda data, context: data)
        if details.method == "/bench.Echo/Source":
            return grpc.unary_stream_rpc_method_handler(self.source)
        if details.method == "/bench.Echo/Sink":
            return grpc.stream_unary_rpc_method_handler(self.sink)
        return None

    def source(self, data, context):
        wanted = fields(data)
        for _ in range(wanted[2]):
            yield message(b"s" * wanted[1])

    def sink(self, stream, context):
        sizes = [len(fields(data)[1]) for data in stream]
        return request(sum(sizes), len(sizes))


def check_client(identities=None):
    client = needs.program("bench_rpc_client")
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Echo()],
                         options=[("grpc.max_receive_message_length", 64 << 20)])
    flags = [] if identities is None else identities.flags()
    port = (server.add_insecure_port("127.0.0.1:0") if identities is None else
            server.add_secure_port("127.0.0.1:0", identities.server_credentials()))
    server.start()
    try:
        for extra in (["--check", "1"], ["--calls", "300", "--inflight", "50"],
                      ["--calls", "8", "--inflight", "2", "--bytes", str(6 << 20)]):
            done = subprocess.run([client, "--port", str(port)] + flags + extra, capture_output=True,
                                  text=True, timeout=120, env=ENVIRONMENT)
            print(done.stdout, done.stderr, end="")
            expect("our client " + " ".join(extra), done.returncode == 0)
    finally:
        server.stop(None)


class Counter(grpc.GenericRpcHandler):
    def __init__(self):
        self.count = 0

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.unary)

    def unary(self, data, context):
        self.count += 1
        return data


class Flaky(grpc.GenericRpcHandler):
    """Sends each call away twice, the second time with the wait before the next one."""

    def __init__(self):
        self.attempts = []

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.unary)

    def unary(self, data, context):
        attempt = dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts", "0")
        self.attempts.append(attempt)
        if attempt == "1":
            context.set_trailing_metadata((("grpc-retry-pushback-ms", "1"),))
        if attempt in "01":
            context.abort(grpc.StatusCode.UNAVAILABLE, "come again")
        return data


def serve(handler):
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, str(port)


def run_client(what, flags):
    done = subprocess.run([needs.program("bench_rpc_client")] + flags, capture_output=True, text=True, timeout=120,
                          env=ENVIRONMENT)
    print(done.stdout, done.stderr, end="")
    expect(what, done.returncode == 0)


def check_policies():
    retry = {"name": [{"service": "bench.Echo"}],
             "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.1s",
                             "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}
    flaky = Flaky()
    server, port = serve(flaky)
    run_client("calls that are sent away are repeated",
               ["--port", port, "--calls", "10", "--inflight", "1", "--service-config",
                json.dumps({"methodConfig": [retry]})])
    server.stop(None)
    expect("attempts are numbered", flaky.attempts == ["0", "1", "2"] * 12)
    counters = [Counter(), Counter()]
    servers = [serve(counter) for counter in counters]
    run_client("two servers take calls in turn",
               ["--port", servers[0][1], "--other-port", servers[1][1], "--calls", "1000", "--inflight", "4",
                "--service-config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})])
    for server, _ in servers:
        server.stop(None)
    shares = [counter.count for counter in counters]
    expect(f"shares {shares} are even", min(shares) > 450)


if __name__ == "__main__":
    check_server()
    check_client()
    check_policies()
    if OPENSSL is None:
        print("TLS is left out: the program openssl is not installed")
        sys.exit(0)
    with contextlib.ExitStack() as stack:
        identities = Identities(TlsFiles(stack.callback))
        check_server(identities)
        check_client(identities)
