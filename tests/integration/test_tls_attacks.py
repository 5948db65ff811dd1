#!/usr/bin/env python3
"""Floods of TLS handshakes on real sockets before bench_rpc_server: that they end, how much memory the process takes at its peak, and that
another client is served all the while. What comes after a handshake is in integration.rpc_attacks and unit net.tls.handshake."""
import os
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
import test_rpc_attacks as plain
from tls_files import TlsFiles

FLOOD = 1500  # above the 1,024 handshakes that a server has at a time
HANDSHAKE_MS = 3000
SHAKING_S = 3  # what a handshake may take while others wait (docs/tls.md)


def client_context(ca):
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    return context


class TlsPeer(plain.Peer):
    """The client of the plain attacks, over TLS."""
    context = None

    def __init__(self, port):
        super().__init__(port, greets=False)
        self.socket = self.context.wrap_socket(self.socket, server_hostname="localhost")
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + plain.frame(plain.SETTINGS, 0, 0))
        self.until(lambda peer: any(kind == plain.SETTINGS for kind, *_ in peer.frames))
        self.send(plain.frame(plain.SETTINGS, plain.ACK, 0))

    def take(self):
        super().take()
        while not self.is_closed and self.socket.pending() > 0:
            super().take()


class Bystander(plain.Bystander):
    peer = TlsPeer


def hello(context):
    """A ClientHello, as it stands on the wire."""
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def until_closed(sockets):
    """How many the server leaves open."""
    poll = select.poll()
    left = {each.fileno(): each for each in sockets}
    for fd in left:
        poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + plain.PATIENCE
    while left and time.monotonic() < deadline:
        for fd, _ in poll.poll(1000):
            try:
                is_open = left[fd].recv(1 << 16) != b""
            except OSError:
                is_open = False
            if not is_open:
                poll.unregister(fd)
                del left[fd]
    return len(left)


def flood(port, words):
    """FLOOD connections that say words and no more: the oldest make room, the rest ends by itself."""
    sockets = []
    for _ in range(FLOOD):
        sockets.append(socket.create_connection(("127.0.0.1", port), timeout=plain.PATIENCE))
        try:
            sockets[-1].sendall(words)
        except OSError:
            pass
    still = until_closed(sockets)
    for each in sockets:
        each.close()
    return f"{still} connections are still there" if still else None


def claim(bytes_claimed):
    """The beginning of a ClientHello that has as many bytes."""
    start = b"\x01" + struct.pack(">I", bytes_claimed)[1:] + b"\x03\x03"
    return b"\x16\x03\x01" + struct.pack(">H", len(start)) + start


def in_pieces(port):
    """ClientHellos that grow byte by byte, in records of one byte each."""
    words = hello(TlsPeer.context)[5:]
    records = b"".join(b"\x16\x03\x01\x00\x01" + words[at:at + 1] for at in range(len(words) - 1))
    return flood(port, records)


def shaken_and_left(port):
    """Whole handshakes, one after the other, that ask for nothing."""
    for _ in range(FLOOD // 5):
        with socket.create_connection(("127.0.0.1", port), timeout=plain.PATIENCE) as inner:
            with TlsPeer.context.wrap_socket(inner, server_hostname="localhost"):
                pass
    return None


def honest(port):
    """FLOOD clients that begin a handshake at the same moment: all are served. One that takes longer than SHAKING_S, on a busy machine, may
    lose its place to those that wait, and dials again."""
    sockets, began, waiting = {}, {}, select.poll()

    def dial():
        inner = socket.create_connection(("127.0.0.1", port), timeout=plain.PATIENCE)
        inner.setblocking(False)
        each = TlsPeer.context.wrap_socket(inner, server_hostname="localhost", do_handshake_on_connect=False)
        sockets[each.fileno()], began[each.fileno()] = each, time.monotonic()
        waiting.register(each, select.POLLIN | select.POLLOUT)
        return each.fileno()

    left = {dial() for _ in range(FLOOD)}
    ready, end = list(left), time.monotonic() + 5 * plain.PATIENCE
    while left and ready and time.monotonic() < end:
        for fd in ready:
            try:
                sockets[fd].do_handshake()
                waiting.unregister(fd)
                left.discard(fd)
            except ssl.SSLWantReadError:
                waiting.modify(fd, select.POLLIN)
            except OSError as error:
                if time.monotonic() - began[fd] < SHAKING_S:
                    return f"a handshake failed: {error}"
                waiting.unregister(fd)
                left.discard(fd)
                sockets.pop(fd).close()
                left.add(dial())
        ready = [fd for fd, _ in waiting.poll(int(1000 * plain.PATIENCE))] if left else []
    for each in sockets.values():
        each.close()
    return f"{len(left)} of {FLOOD} were not served" if left else None


ATTACKS = [  # name, attack, MiB that the process may grow by at its peak; what the first has needed, the others find there
    ("silence", lambda port: flood(port, b""), 160),
    ("half a ClientHello", lambda port: flood(port, hello(TlsPeer.context)[:100]), 96),
    ("a ClientHello of 128 KiB", lambda port: flood(port, claim(131000)), 96),
    ("a ClientHello in records of one byte", in_pieces, 96),
    ("a ClientHello, and then silence", lambda port: flood(port, hello(TlsPeer.context)), 96),
    ("handshakes that ask for nothing", shaken_and_left, 32),
]
HONEST = [("honest clients at once", honest, 192)]


def attack(rows, handshake_ms, cert, key):
    """On a server of their own; returns whether all was well."""
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=1:malloc_context_size=2")
    server = subprocess.Popen([plain.SERVER, "--port", "0", "--handshake-ms", str(handshake_ms), "--tls-cert", cert, "--tls-key", key],
                              stdout=subprocess.PIPE, text=True, env=environment)
    port = int(server.stdout.readline().rsplit(":", 1)[1])
    try:
        passed = [plain.run(*row, server, port, Bystander) for row in rows]
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(plain.PATIENCE)
    if code != 0:
        print(f"FAILED the server ended with {code}")
    return all(passed) and code == 0


def main():
    needs.tool("openssl", "openssl")
    needs.program("bench_rpc_server")
    cleanups = []
    files = TlsFiles(lambda *words: cleanups.append(words))
    cert, key = files.issue("server")
    TlsPeer.context = client_context(files.ca)
    wanted = sys.argv[1:]
    choices = [([row for row in rows if not wanted or row[0] in wanted], handshake_ms)
               for rows, handshake_ms in ((ATTACKS, HANDSHAKE_MS), (HONEST, int(1000 * plain.PATIENCE)))]
    try:
        passed = [attack(rows, handshake_ms, cert, key) for rows, handshake_ms in choices if rows]
    finally:
        for function, *words in cleanups:
            function(*words)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
