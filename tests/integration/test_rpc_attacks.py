#!/usr/bin/env python3
"""Hostile clients on real sockets before bench_rpc_server: what each is told, how much memory the process takes at its peak, and that
another client is served all the while.

The unit tests net.rpc_attack_* have more rows, on a virtual clock; here the kernel's buffers and the whole process are in it.
"""
import gzip
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs

BUILD = os.environ.get("MUSTER_BINARY_DIR", "build-asan")
SERVER = os.path.join(BUILD, "bin", "bench_rpc_server")
MIB = 1 << 20
MEMORY = 32 * MIB  # for the calls of all; a connection gets half
UNSENT = 16 * MIB  # of answers that wait to be sent
STALL_MS, HANDSHAKE_MS, CONNECTIONS = 700, 700, 64
LEFT_MAX = 20  # connections of another client that the server may leave in one attack
PATIENCE = 60  # seconds until something is taken for hanging
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONT = 0, 1, 3, 4, 6, 7, 8, 9
END, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, PROTOCOL_ERROR, FLOW, REFUSED, CANCEL, CALM = 0, 1, 3, 7, 8, 11
OK, INVALID, DEADLINE, EXHAUSTED, INTERNAL = 0, 3, 4, 8, 13
HUFFMAN = {"g": "100110", "r": "101100", "p": "101011", "c": "00100", "-": "010110", "s": "01000", "t": "01001", "a": "00011",
           "u": "101101"}


def huffman(text):
    bits = "".join(HUFFMAN[letter] for letter in text)
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[at:at + 8], 2) for at in range(0, len(bits), 8))


STATUS = b"\x40" + bytes([0x80 | len(huffman("grpc-status"))]) + huffman("grpc-status")


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def request(method, encoding=None):
    block = b"\x83\x86" + literal(":path", "/bench.Echo/" + method) + literal(":authority", "x")
    block += literal("content-type", "application/grpc") + literal("te", "trailers")
    return block + (literal("grpc-encoding", encoding) if encoding else b"")


def message(payload, claimed=None, flag=0):
    return struct.pack(">BI", flag, len(payload) if claimed is None else claimed) + payload


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class Peer:
    """A connection; whatever the server does to it, it does not raise."""

    def __init__(self, port, settings=(), greets=True, buffer_bytes=None):
        self.socket = socket.socket()
        if buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self.is_closed, self.received, self.frames = False, b"", []
        if greets:
            payload = b"".join(struct.pack(">HI", name, value) for name, value in settings)
            self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, payload))
            self.until(lambda peer: any(kind == SETTINGS for kind, *_ in peer.frames))
            self.send(frame(SETTINGS, ACK, 0))

    def wait(self, seconds, reads=True, writes=False):
        """Whether it can be read, and written; select knows no more than 1,024 descriptors."""
        poll = select.poll()
        poll.register(self.socket, (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0))
        events = next((events for _, events in poll.poll(seconds * 1000)), 0)
        ended = select.POLLHUP | select.POLLERR
        return bool(events & (select.POLLIN | ended)) and reads, bool(events & (select.POLLOUT | ended)) and writes

    def send(self, data, reads=True):
        """False once the server takes no more."""
        view = memoryview(data)
        deadline = time.monotonic() + PATIENCE
        while len(view) > 0 and not self.is_closed:
            can_read, can_write = self.wait(0.2, reads, writes=True)
            try:
                if can_read:
                    self.take()
                if can_write:
                    view = view[self.socket.send(view[:65536]):]
                elif time.monotonic() > deadline or not reads:
                    return False
            except OSError:
                self.is_closed = True
        return not self.is_closed

    def take(self):
        try:
            data = self.socket.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.is_closed = True
        self.received += data
        while len(self.received) >= 9:
            length = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + length:
                break
            kind, flags, stream = struct.unpack(">BBI", self.received[3:9])
            self.frames.append((kind, flags, stream, self.received[9:9 + length]))
            self.received = self.received[9 + length:]

    def until(self, condition, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while not condition(self) and not self.is_closed and time.monotonic() < deadline:
            if self.wait(0.1)[0]:
                self.take()
        return condition(self)

    def until_closed(self):
        return self.until(lambda peer: peer.is_closed)

    def call(self, stream, method, payload=b"", encoding=None):
        return self.send(frame(HEADERS, END_HEADERS, stream, request(method, encoding)) +
                         frame(DATA, END, stream, message(payload, flag=1 if encoding else 0)))

    def goaway(self):
        codes = [struct.unpack(">I", payload[4:8])[0] for kind, _, _, payload in self.frames if kind == GOAWAY]
        return codes[-1] if codes else None

    def resets(self):
        return {stream: struct.unpack(">I", payload)[0] for kind, _, stream, payload in self.frames if kind == RST}

    def statuses(self):
        """Those that are spelled out: the first of each value on a connection."""
        found = {}
        for kind, _, stream, payload in self.frames:
            at = payload.find(STATUS) if kind == HEADERS else -1
            if at >= 0:
                length = payload[at + len(STATUS)]
                found[stream] = int(payload[at + len(STATUS) + 1:at + len(STATUS) + 1 + length])
        return found

    def has_ended(self, stream):
        return any(at == stream and (kind == RST or kind in (HEADERS, DATA) and flags & END) for kind, flags, at, _ in self.frames)

    def summary(self):
        state = "closed" if self.is_closed else "open"
        return f"{state}, GOAWAY {self.goaway()}, statuses {self.statuses()}, resets {dict(list(self.resets().items())[:3])}"

    def close(self):
        self.socket.close()


class Bystander(threading.Thread):
    """Another client: one call after the other, now and then on a new connection. As any gRPC client it tries again where a server has
    orderly left the connection."""
    peer = Peer

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.is_over, self.served, self.failure, self.worst = port, False, 0, None, 0.0
        self.left = 0

    def run(self):
        peer, stream = self.peer(self.port), 1
        while not self.is_over and self.failure is None:
            began = time.monotonic()
            peer.frames.clear()
            peer.call(stream, "Unary", b"\x0a\x02hi")
            if not peer.until(lambda peer, stream=stream: peer.has_ended(stream)):
                if peer.goaway() == NO_ERROR and self.left < LEFT_MAX:
                    self.left += 1
                    peer, stream = self.peer(self.port), 1
                    continue
                self.failure = f"call {self.served} did not end (closed: {peer.is_closed}, GOAWAY {peer.goaway()})"
            elif not any(kind == DATA and at == stream and payload.endswith(b"hi") for kind, _, at, payload in peer.frames):
                self.failure = f"call {self.served} was not answered ({peer.summary()})"
            self.worst = max(self.worst, time.monotonic() - began)
            self.served, stream = self.served + 1, stream + 2
            if stream > 200:
                peer.close()
                peer, stream = self.peer(self.port), 1
            time.sleep(0.002)
        peer.close()


# Attacks: each returns what is wrong, or None. Peers that it leaves open are closed behind it.

def told(peer, *goaway):
    """The GOAWAY may be lost where the server closes on unread bytes."""
    if not peer.until_closed():
        return "the connection goes on"
    if peer.goaway() not in (*goaway, None):
        return peer.summary()
    return None


def continuations(port):
    peer = Peer(port)
    peer.send(frame(HEADERS, 0, 1, request("Unary")))
    while peer.send(frame(CONT, 0, 1, b"\x83" * 16000)):
        pass
    return told(peer, CALM)


def rapid_reset(port):
    peer = Peer(port)
    for stream in range(1, 60000, 2):
        if not peer.send(frame(HEADERS, END_HEADERS, stream, request("Sink")) + frame(RST, 0, stream, struct.pack(">I", CANCEL))):
            break
    return told(peer, CALM)


def made_you_reset(port):
    peer = Peer(port)
    for stream in range(1, 60000, 2):
        if not peer.send(frame(HEADERS, END_HEADERS, stream, request("Sink")) + frame(WINDOW, 0, stream, b"\x7f\xff\xff\xff")):
            break
    return told(peer, CALM, PROTOCOL_ERROR)  # or more streams than allowed: those reset count until they are told


def unread(port, one):
    peer = Peer(port, buffer_bytes=4096)
    sent = 0
    while sent < 64 * MIB and peer.send(one * 1000, reads=False):
        sent += len(one) * 1000
    return "64 MiB of them were taken" if sent >= 64 * MIB else None


def settings(port):
    peer = Peer(port)
    for _ in range(100):
        if not peer.send(frame(SETTINGS, 0, 0) * 1000):
            break
    return told(peer, CALM)


def empty_data(port):
    peer = Peer(port)
    peer.send(frame(HEADERS, END_HEADERS, 1, request("Sink")))
    for _ in range(100):
        if not peer.send(frame(DATA, 0, 1) * 1000):
            break
    return told(peer, CALM)


def hpack_bomb(port):
    peer = Peer(port)
    block = request("Unary") + b"\x40\x01a\x7f\xbd\x1d" + b"v" * 3900 + b"\xbe" * 50000
    for stream in range(1, 400, 2):
        if not peer.send(frame(HEADERS, END_HEADERS, stream, block)):
            break
    return told(peer, CALM)


def slow_handshakes(port):
    words = [b"", b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00"]
    peers = [Peer(port, greets=False) for _ in range(CONNECTIONS // 2)]
    for at, peer in enumerate(peers):
        peer.send(words[at % len(words)])
    still = sum(not peer.until_closed() for peer in peers)
    return f"{still} connections are still there" if still else None


def half_headers(port):
    peer = Peer(port)
    peer.send(frame(HEADERS, 0, 1, request("Unary")))
    return told(peer, CALM)


def dribble(port):
    peer = Peer(port)
    peer.send(frame(HEADERS, END_HEADERS, 1, request("Unary")) + frame(DATA, 0, 1, message(b"", MIB)))
    while not peer.has_ended(1) and peer.send(frame(DATA, 0, 1, b"x")):
        peer.until(lambda peer: peer.has_ended(1), 0.05)
    return None if peer.statuses().get(1) == DEADLINE else peer.summary()


def gzip_bomb(port):
    bomb = gzip.compress(bytes(200 * MIB), 9)
    problems = []
    for _ in range(4):
        peer = Peer(port)
        peer.send(frame(HEADERS, END_HEADERS, 1, request("Unary", "gzip")))
        data = message(bomb, flag=1)
        for at in range(0, len(data), 16384):
            peer.send(frame(DATA, END if at + 16384 >= len(data) else 0, 1, data[at:at + 16384]))
        peer.until(lambda peer: peer.has_ended(1))
        if peer.statuses().get(1) != EXHAUSTED:
            problems.append(peer.summary())
        peer.close()
    return problems[0] if problems else None


def lengths(port):
    peer = Peer(port)
    for stream in range(1, 1000, 2):
        claimed = (0xFFFFFFFF, 60 * MIB)[stream // 2 % 2]
        peer.send(frame(HEADERS, END_HEADERS, stream, request("Unary")) + frame(DATA, 0, stream, message(b"hi", claimed)))
    peer.until(lambda peer: peer.has_ended(999) and peer.has_ended(997))
    return None if peer.statuses().get(1) == EXHAUSTED else peer.summary()


def protobuf_bombs(port):
    bombs = {OK: b"\x78\x00" * 500000, INVALID: b"\x0a\xff\xff\xff\x0f" + b"x" * 100}  # unknown fields; a field that is cut
    problems = []
    for expected, bomb in bombs.items():
        peer = Peer(port)
        data = message(bomb)
        peer.send(frame(HEADERS, END_HEADERS, 1, request("Unary")))
        for at in range(0, len(data), 16384):
            peer.send(frame(DATA, END if at + 16384 >= len(data) else 0, 1, data[at:at + 16384]))
        peer.until(lambda peer: peer.has_ended(1))
        if peer.statuses().get(1) != expected:
            problems.append(f"{peer.summary()}, not {expected}")
        peer.close()
    return problems[0] if problems else None


def no_window(port):
    peer = Peer(port, settings=[(4, 0)])
    asked = b"\x08" + varint(MIB)
    for stream in range(1, 400, 2):
        peer.call(stream, "Down", asked)
    peer.until(lambda peer: len(peer.resets()) > 0)
    if not peer.until(lambda peer: all(peer.has_ended(stream) for stream in range(1, 400, 2))):
        return "answers are still held"
    return None if CANCEL in peer.resets().values() and EXHAUSTED in peer.statuses().values() else peer.summary()


def crowd_without_windows(port):
    """All of them at once: the server finds 1 GiB of answers asked for. Refusals come first; then those who hold most are ended."""
    peers = [Peer(port, settings=[(4, 0)]) for _ in range(CONNECTIONS - 20)]
    asked = b"\x08" + varint(MIB)
    calls = b"".join(frame(HEADERS, END_HEADERS, stream, request("Down")) + frame(DATA, END, stream, message(asked))
                     for stream in range(1, 51, 2))
    for peer in peers:
        peer.send(calls, reads=False)
    deadline = time.monotonic() + PATIENCE
    refused = ended = 0
    while not (refused and ended) and time.monotonic() < deadline:
        for peer in peers:
            peer.until(lambda peer: False, 0.02)
        refused = sum(EXHAUSTED in peer.statuses().values() for peer in peers)
        ended = sum(peer.goaway() == CALM or peer.is_closed for peer in peers)
    if ended == len(peers):
        return "all of them are ended"
    return None if refused and ended else f"{refused} were refused a call, {ended} were ended"


def window_dribble(port):
    peer = Peer(port, settings=[(4, 1)])
    peer.call(1, "Down", b"\x08" + varint(MIB))
    while not peer.has_ended(1) and peer.send(frame(WINDOW, 0, 1, struct.pack(">I", 1))):
        peer.until(lambda peer: peer.has_ended(1), 0.02)
    return None if peer.resets().get(1) == CANCEL else peer.summary()


def socket_unread(port):
    """They hold no more than is allowed to all. When they read at last, each is ended, or has an end of each of its calls."""
    peers = [Peer(port, settings=[(4, 0x7FFFFFFF)], buffer_bytes=4096) for _ in range(6)]
    for peer in peers:
        peer.send(frame(WINDOW, 0, 0, struct.pack(">I", 0x7FFF0000 - 65535)))
        for stream in range(1, 200, 2):
            peer.send(frame(HEADERS, END_HEADERS, stream, request("Down")) +
                      frame(DATA, END, stream, message(b"\x08" + varint(MIB))), reads=False)
    deadline = time.monotonic() + PATIENCE
    while not all(peer.is_closed or all(peer.has_ended(stream) for stream in range(1, 200, 2)) for peer in peers):
        for peer in peers:
            peer.until(lambda peer: peer.is_closed, 0.05)
        if time.monotonic() > deadline:
            return "answers are still held"
    return None


def idle_connections(port):
    peers = []
    for _ in range(4 * CONNECTIONS):
        peers.append(Peer(port, greets=len(peers) % 2 == 0))
    gone = sum(peer.until_closed() for peer in peers[:2 * CONNECTIONS])
    for peer in peers:
        peer.close()
    return None if gone == 2 * CONNECTIONS else f"only {gone} made room"


def last_stream_id(port):
    peer = Peer(port)
    peer.send(frame(HEADERS, END_HEADERS, 0x7FFFFFFF, request("Sink")) + frame(HEADERS, END_HEADERS, 1, request("Sink")))
    return told(peer, PROTOCOL_ERROR)


def endless_streams(port):
    peer = Peer(port)
    peer.send(frame(WINDOW, 0, 0, struct.pack(">I", 0x70000000)))
    for stream in range(1, 40001, 2):
        peer.frames = peer.frames[-1:]
        if not peer.call(stream, "Unary", b"\x0a\x02hi"):
            return f"closed at stream {stream}: GOAWAY {peer.goaway()}"
        if stream % 200 == 1:
            peer.until(lambda peer, stream=stream: peer.has_ended(stream))
    return None


ATTACKS = [  # name, attack, MiB that the process may grow by at its peak
    ("continuations", continuations, 16),
    ("rapid reset", rapid_reset, 16),
    ("made you reset", made_you_reset, 16),
    ("pings that are not read", lambda port: unread(port, frame(PING, 0, 0, b"12345678")), 16),
    ("settings that are not read", lambda port: unread(port, frame(SETTINGS, 0, 0)), 16),
    ("settings", settings, 16),
    ("empty DATA", empty_data, 16),
    ("HPACK bombs", hpack_bomb, 16),
    ("slow handshakes", slow_handshakes, 16),
    ("half of the headers", half_headers, 16),
    ("a dribbled message", dribble, 16),
    ("gzip bombs", gzip_bomb, 128 + 64),  # a message may have 64 MiB here
    ("lengths that lie", lengths, 32),
    ("protobuf bombs", protobuf_bombs, 64),
    ("no window", no_window, 48),
    ("a crowd without windows", crowd_without_windows, 64),  # twice the budget, and what the allocator keeps
    ("window dribble", window_dribble, 16),
    ("sockets that are not read", socket_unread, 96),
    ("idle connections", idle_connections, 32),
    ("the last stream id first", last_stream_id, 16),
    ("streams without end", endless_streams, 16),
]


def memory_kib(pid, key):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key))


def reset_peak(pid):
    """Where the kernel does not allow it, the peak of all attacks so far counts."""
    try:
        with open(f"/proc/{pid}/clear_refs", "w") as refs:
            refs.write("5")
    except OSError:
        pass


def run(name, attack, mib_max, server, port, bystander_class=Bystander):
    before = memory_kib(server.pid, "VmRSS")
    reset_peak(server.pid)
    bystander = bystander_class(port)
    bystander.start()
    while bystander.served == 0 and bystander.failure is None:
        time.sleep(0.001)
    began = time.monotonic()
    problem = attack(port)
    took = time.monotonic() - began
    served = bystander.served
    while bystander.is_alive() and bystander.failure is None and bystander.served < served + 3:
        time.sleep(0.01)
    bystander.is_over = True
    bystander.join(PATIENCE)
    grown = (memory_kib(server.pid, "VmHWM") - before) / 1024
    if server.poll() is not None:
        problem = f"the server ended with {server.returncode}"
    elif bystander.failure:
        problem = f"another client: {bystander.failure}"
    elif problem is None and grown > mib_max:
        problem = f"the process grew by {grown:.1f} MiB"
    print(f"{'FAILED' if problem else 'ok'} {name}: +{grown:.1f} MiB (at most {mib_max}), {took:.1f} s, {bystander.served} calls of "
          f"another client, the slowest {bystander.worst * 1000:.0f} ms{': ' + problem if problem else ''}", flush=True)
    return problem is None


def main():
    needs.program("bench_rpc_server")
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=1:malloc_context_size=2")
    server = subprocess.Popen([SERVER, "--port", "0", "--memory-max-bytes", str(MEMORY), "--unsent-max-bytes", str(UNSENT), "--stall-ms",
                               str(STALL_MS), "--handshake-ms", str(HANDSHAKE_MS), "--connections-max", str(CONNECTIONS)], stdout=subprocess.PIPE, text=True,
                              env=environment)
    port = int(server.stdout.readline().rsplit(":", 1)[1])
    wanted = sys.argv[1:]
    try:
        passed = [run(*row, server, port) for row in ATTACKS if not wanted or row[0] in wanted]
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(PATIENCE)
    if code != 0:
        print(f"FAILED the server ended with {code}")
    return 0 if all(passed) and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
