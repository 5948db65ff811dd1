#!/usr/bin/env python3
"""A server for the negative HTTP/2 interop cases: strict_peer.py CASE, on python3-h2, which knows every rule of the protocol.

It prints `listening HOST:PORT`, answers each request with a SimpleResponse as the case has it (doc/http2-interop-test-descriptions.md
of gRPC), and at SIGTERM exits with 0 if the client kept all rules and did what the case asks of it, else with 1 and the reasons.
"""
import signal
import socket
import sys
import threading

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame

BODY = 314159
SLICE = 5
PADDING = 255

CASES = ("goaway", "rst_after_header", "rst_during_data", "rst_after_data", "ping", "max_streams", "data_frame_padding",
         "no_df_padding_sanity_test")


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def answer():
    message = field(1, field(2, bytes(BODY)))
    return b"\0" + len(message).to_bytes(4, "big") + message


class Peer:
    """What is known of all connections."""

    def __init__(self, case):
        self.case = case
        self.lock = threading.Lock()
        self.faults = []
        self.connections = self.requests = self.pings = self.pongs = self.streams_max = 0

    def count(self, name, by=1):
        with self.lock:
            setattr(self, name, getattr(self, name) + by)

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def verdict(self):
        if self.case == "goaway" and self.connections != 2:
            self.fault(f"{self.connections} connections were used, expected 2")
        if self.case == "ping" and (self.pings == 0 or self.pings != self.pongs):
            self.fault(f"{self.pongs} of {self.pings} pings were answered")
        if self.case == "max_streams" and self.streams_max != 1:
            self.fault(f"{self.streams_max} streams were open at a time, 1 is allowed")
        if self.requests == 0:
            self.fault("no request came")
        return self.faults


class Connection:
    def __init__(self, peer, sock):
        self.peer, self.sock = peer, sock
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        if peer.case == "max_streams":
            self.h2.local_settings = h2.settings.Settings(
                client=False, initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 1})
        self.sending = {}  # stream -> what is left of the answer
        self.received = {}
        self.waiting = None  # a stream whose status waits

    def run(self):
        try:
            self.h2.initiate_connection()
            self.flush()
            while True:
                data = self.sock.recv(65536)
                if not data:
                    return
                for event in self.h2.receive_data(data):
                    self.take(event)
                self.flush()
        except h2.exceptions.ProtocolError as error:
            self.peer.fault(f"the client broke a rule: {type(error).__name__}: {error}")
        except OSError:
            pass
        finally:
            self.sock.close()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def take(self, event):
        if isinstance(event, h2.events.RequestReceived):
            self.received[event.stream_id] = 0
            self.peer.streams_max = max(self.peer.streams_max, len(self.received))
            if ("te", "trailers") not in event.headers:
                self.peer.fault("te: trailers is missing")
        elif isinstance(event, h2.events.DataReceived):
            self.received[event.stream_id] += len(event.data)
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.peer.count("requests")
            self.begin(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.peer.fault(f"the client reset stream {event.stream_id} with {event.error_code}")
        elif isinstance(event, h2.events.PingAckReceived):
            self.peer.count("pongs")
            if self.waiting is not None and self.peer.pongs == self.peer.pings:
                self.finish(self.waiting)
        elif isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            for stream in list(self.sending):
                self.pump(stream)

    def ping(self):
        if self.peer.case == "ping":
            self.peer.count("pings")
            self.h2.ping(b"12345678")

    def begin(self, stream):
        case = self.peer.case
        if case == "goaway" and self.peer.requests == 1:
            self.flush()  # the library itself would end the connection with it
            self.sock.sendall(GoAwayFrame(0, last_stream_id=stream, error_code=0).serialize())
        self.ping()
        self.h2.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        self.ping()
        whole = answer()
        self.sending[stream] = {"rst_after_header": b"", "rst_during_data": whole[:len(whole) // 2]}.get(case, whole)
        self.pump(stream)

    def pump(self, stream):
        sliced = self.peer.case in ("data_frame_padding", "no_df_padding_sanity_test")
        padding = PADDING if self.peer.case == "data_frame_padding" else None
        extra = 0 if padding is None else padding + 1
        rest = self.sending[stream]
        at = 0
        while at < len(rest):
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            size = min(SLICE if sliced else room, len(rest) - at)
            if size <= 0 or size + extra > room:
                break
            self.h2.send_data(stream, rest[at:at + size], pad_length=padding)
            at += size
        self.sending[stream] = rest[at:]
        if at == len(rest):
            del self.sending[stream], self.received[stream]
            self.end(stream)

    def end(self, stream):
        """The status waits for the answers to all pings: a client that has it may leave."""
        self.ping()
        if self.peer.case == "ping":
            self.waiting = stream
        elif self.peer.case.startswith("rst_"):
            self.h2.reset_stream(stream, error_code=0)
        else:
            self.finish(stream)

    def finish(self, stream):
        self.h2.send_headers(stream, [("grpc-status", "0")], end_stream=True)


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in CASES:
        sys.exit("usage: strict_peer.py " + "|".join(CASES))
    peer = Peer(sys.argv[1])

    def stop(number, frame):
        faults = peer.verdict()
        print(f"{peer.case}: {peer.connections} connections, {peer.requests} requests, {peer.pongs} pongs", *faults, sep="\n",
              flush=True)
        sys.exit(1 if faults else 0)

    signal.signal(signal.SIGTERM, stop)
    listener = socket.create_server(("127.0.0.1", 0))
    print("listening 127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.count("connections")
        threading.Thread(target=Connection(peer, sock).run, daemon=True).start()


main()
