#!/usr/bin/env python3
"""The interop roles on grpcio (gRPC's C core): `interop_python.py server --port P` and `client --server_port P --test_case NAME`.

Messages are encoded by hand: no generated code is needed.
"""
import argparse
import queue
import struct
import sys
import threading
import uuid
from concurrent import futures

import grpc

SERVICE = "/grpc.testing.TestService/"
ORCA = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"
REQUESTS, ANSWERS = (27182, 8, 1828, 45904), (31415, 9, 2653, 58979)
LARGE_REQUEST, LARGE_ANSWER = 271828, 314159
INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
LOAD = "endpoint-load-metrics-bin"
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
TIMEOUT = 60


# Protocol Buffers encoding.

def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def content(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def double(field, value):
    return varint(field << 3 | 1) + struct.pack("<d", value)


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """field -> its values in order: numbers, and bytes of contents and doubles."""
    found, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        else:
            size, at = (8, at) if key & 7 == 1 else read_varint(data, at)
            value, at = data[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def first(message, field, otherwise):
    return message.get(field, [otherwise])[0]


def payload(size):
    return content(2, bytes(size))


def truth(value):
    return number(1, 1) if value else b""


def body(answer):
    return first(fields(first(fields(answer), 1, b"")), 2, b"")


# The server.

class TestService(grpc.GenericRpcHandler):
    def __init__(self):
        self.id = uuid.uuid4().hex.encode()
        self.load = b""

    def service(self, details):
        name = details.method[len(SERVICE):] if details.method.startswith(SERVICE) else details.method
        return {
            "EmptyCall": grpc.unary_unary_rpc_method_handler(lambda data, context: b""),
            "UnaryCall": grpc.unary_unary_rpc_method_handler(self.unary),
            "StreamingInputCall": grpc.stream_unary_rpc_method_handler(self.streaming_input),
            "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(lambda data, context: self.duplex([data], context)),
            "FullDuplexCall": grpc.stream_stream_rpc_method_handler(self.duplex),
            ORCA: grpc.unary_stream_rpc_method_handler(self.reports),
        }.get(name)

    def begin(self, context, more=()):
        metadata = dict(context.invocation_metadata())
        context.set_trailing_metadata([(name, metadata[name]) for name in (TRAILING,) if name in metadata] + list(more))
        context.set_compression(grpc.Compression.Gzip)
        if INITIAL in metadata:
            context.send_initial_metadata([(INITIAL, metadata[INITIAL])])

    def refuse(self, status, context):
        status = fields(status)
        code = {item.value[0]: item for item in grpc.StatusCode}[first(status, 1, 0)]
        if code is not grpc.StatusCode.OK:
            context.abort(code, first(status, 2, b"").decode())

    def report(self, wanted):
        wanted = fields(wanted)
        doubles = b"".join(varint(field << 3 | 1) + wanted[field][0] for field in (1, 2) if field in wanted)
        return doubles + b"".join(content(to, entry) for at, to in ((3, 4), (4, 5)) for entry in wanted.get(at, []))

    def unary(self, data, context):
        request = fields(data)
        self.begin(context, [(LOAD, self.report(request[11][0]))] if 11 in request else [])
        self.refuse(first(request, 7, b""), context)
        if first(fields(first(request, 6, b"")), 1, 0) == 0:
            context.disable_next_message_compression()
        answer = content(1, payload(first(request, 2, 0)))
        return answer + (content(4, self.id) if 9 in request else b"")

    def streaming_input(self, stream, context):
        self.begin(context)
        return number(1, sum(len(body(data)) for data in stream))

    def duplex(self, stream, context):
        self.begin(context)
        for data in stream:
            request = fields(data)
            if 8 in request:
                self.load = self.report(request[8][0])
            self.refuse(first(request, 7, b""), context)
            for wanted in map(fields, request.get(2, [])):
                if first(fields(first(wanted, 3, b"")), 1, 0) == 0:
                    context.disable_next_message_compression()
                yield content(1, payload(first(wanted, 1, 0)))

    def reports(self, data, context):
        ended = threading.Event()
        context.add_callback(ended.set)
        while not ended.wait(0.1):
            yield self.load


def serve(options):
    server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[TestService()],
                         options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)])  # a port that is lost shows
    address = f"127.0.0.1:{options.port}"
    if options.use_tls:
        pair = (open(options.tls_key_file, "rb").read(), open(options.tls_cert_file, "rb").read())
        bound = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        bound = server.add_insecure_port(address)
    if bound != int(options.port):
        sys.exit(f"port {options.port} is taken")
    server.start()
    server.wait_for_termination()


# The client.

def expect(what, seen, expected):
    if seen != expected:
        raise AssertionError(f"{what} is {seen!r}, expected {expected!r}")


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


class Cases:
    def __init__(self, channel):
        self.channel = channel

    def call(self, kind, name):
        return getattr(self.channel, kind)(name if name.startswith("/") else SERVICE + name)

    def unary(self, request, **more):
        return self.call("unary_unary", "UnaryCall")(request, timeout=TIMEOUT, **more)

    def wish(self, payload_size, *sizes):
        return b"".join(content(2, number(1, size)) for size in sizes) + content(3, payload(payload_size))

    def large(self, more=b"", **how):
        answer = self.unary(number(2, LARGE_ANSWER) + content(3, payload(LARGE_REQUEST)) + more, **how)
        expect("the payload", body(answer), bytes(LARGE_ANSWER))

    def empty_unary(self):
        expect("the answer", self.call("unary_unary", "EmptyCall")(b"", timeout=TIMEOUT), b"")

    def large_unary(self):
        self.large()

    def very_large_request(self):
        answer = self.unary(number(2, 10) + content(3, payload(10 << 20)))
        expect("the payload", body(answer), bytes(10))

    def client_compressed_unary(self):
        probe = code_of(lambda: self.large(content(8, truth(True))))
        expect("the code", probe[0], grpc.StatusCode.INVALID_ARGUMENT)
        self.large(content(8, truth(True)), compression=grpc.Compression.Gzip)
        self.large(content(8, truth(False)))

    def server_compressed_unary(self):
        self.large(content(6, truth(True)))
        self.large(content(6, truth(False)))

    def client_streaming(self):
        stream = iter([content(1, payload(size)) for size in REQUESTS])
        answer = self.call("stream_unary", "StreamingInputCall")(stream, timeout=TIMEOUT)
        expect("the sum", first(fields(answer), 1, 0), sum(REQUESTS))

    def server_streaming(self):
        answers = self.call("unary_stream", "StreamingOutputCall")(self.wish(0, *ANSWERS), timeout=TIMEOUT)
        expect("the sizes", tuple(len(body(answer)) for answer in answers), ANSWERS)

    def server_compressed_streaming(self):
        wish = content(2, number(1, 31415) + content(3, truth(True))) + content(2, number(1, 92653) + content(3, truth(False)))
        answers = self.call("unary_stream", "StreamingOutputCall")(wish, timeout=TIMEOUT)
        expect("the sizes", [len(body(answer)) for answer in answers], [31415, 92653])

    def duplex(self, timeout=TIMEOUT, **more):
        """A FullDuplexCall, and how to say something to it (None: no more)."""
        said = queue.Queue()
        return self.call("stream_stream", "FullDuplexCall")(iter(said.get, None), timeout=timeout, **more), said.put

    def ping_pong(self):
        stream, say = self.duplex()
        for request, size in zip(REQUESTS, ANSWERS):
            say(self.wish(request, size))
            expect("the size", len(body(next(stream))), size)
        say(None)
        expect("what is left", list(stream), [])

    def empty_stream(self):
        stream, say = self.duplex()
        say(None)
        expect("the answers", list(stream), [])

    def custom_metadata(self):
        sent = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
        request = number(2, LARGE_ANSWER) + content(3, payload(LARGE_REQUEST))
        _, unary = self.call("unary_unary", "UnaryCall").with_call(request, timeout=TIMEOUT, metadata=sent)
        stream, say = self.duplex(metadata=sent)
        say(self.wish(LARGE_REQUEST, LARGE_ANSWER))
        say(None)
        list(stream)
        for call in (unary, stream):
            expect("the initial metadata", dict(call.initial_metadata()).get(INITIAL), sent[0][1])
            expect("the trailing metadata", dict(call.trailing_metadata()).get(TRAILING), sent[1][1])

    def check_status(self, text):
        status = content(7, number(1, 2) + content(2, text.encode()))
        expect("the status", code_of(lambda: self.unary(status)), (grpc.StatusCode.UNKNOWN, text))
        return status

    def status_code_and_message(self):
        status = self.check_status("test status message")
        stream, say = self.duplex()
        say(status)
        say(None)
        expect("the status", code_of(lambda: list(stream)), (grpc.StatusCode.UNKNOWN, "test status message"))

    def special_status_message(self):
        self.check_status(SPECIAL)

    def check_missing(self, name):
        code, _ = code_of(lambda: self.call("unary_unary", name)(b"", timeout=TIMEOUT))
        expect("the code", code, grpc.StatusCode.UNIMPLEMENTED)

    def unimplemented_method(self):
        self.check_missing("UnimplementedCall")

    def unimplemented_service(self):
        self.check_missing("/grpc.testing.UnimplementedService/UnimplementedCall")

    def cancel_after_begin(self):
        hold = threading.Event()
        call = self.call("stream_unary", "StreamingInputCall").future(iter(hold.wait, True), timeout=TIMEOUT)
        call.cancel()
        hold.set()
        expect("cancelled", (call.cancelled(), call.code()), (True, grpc.StatusCode.CANCELLED))

    def cancel_after_first_response(self):
        stream, say = self.duplex()
        say(self.wish(REQUESTS[0], ANSWERS[0]))
        next(stream)
        stream.cancel()
        say(None)
        expect("the code", code_of(lambda: next(stream))[0], grpc.StatusCode.CANCELLED)

    def timeout_on_sleeping_server(self):
        stream, say = self.duplex(timeout=0.001)
        say(self.wish(REQUESTS[0]))
        expect("the code", code_of(lambda: next(stream))[0], grpc.StatusCode.DEADLINE_EXCEEDED)
        say(None)

    def pick_first_unary(self):
        ids = {first(fields(self.unary(number(2, 1) + number(9, 1))), 4, b"") for _ in range(100)}
        expect("servers", (len(ids), b"" in ids), (1, False))

    def orca_oob(self):
        reports = self.call("unary_stream", ORCA)(content(1, number(2, 100000000)), timeout=TIMEOUT)
        stream, say = self.duplex()
        for cpu in (0.8210, 0.29309):
            say(content(8, double(1, cpu)) + content(2, number(1, 1)))
            next(stream)
            wanted = fields(double(1, cpu))[1]
            expect("a report", any(fields(report).get(1) == wanted for report in reports), True)
        say(None)
        expect("what is left", list(stream), [])
        reports.cancel()


def ask(options):
    target = f"{options.server_host}:{options.server_port}"
    settings = [("grpc.max_receive_message_length", -1)]
    if options.use_tls:
        trust = grpc.ssl_channel_credentials(open(options.ca_file, "rb").read())
        settings.append(("grpc.ssl_target_name_override", options.server_host_override))
        channel = grpc.secure_channel(target, trust, options=settings)
    else:
        channel = grpc.insecure_channel(target, options=settings)
    with channel:
        getattr(Cases(channel), options.test_case)()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    for name in ("port", "server_port", "server_host", "test_case", "tls_cert_file", "tls_key_file", "ca_file",
                 "server_host_override"):
        parser.add_argument("--" + name)
    parser.add_argument("--use_tls", action="store_true")
    parser.add_argument("--use_test_ca", action="store_true")
    options = parser.parse_args()
    serve(options) if options.role == "server" else ask(options)


if __name__ == "__main__":
    sys.exit(main())
