#!/usr/bin/env python3
"""muster inside epoll, libevent and libuv programs: each serves, each asks, from a pipe and from a file; SIGTERM drains."""
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

BUILD = os.environ.get("MUSTER_BINARY_DIR", "build-asan")
LINES = ["", "one", "two words", "x" * 4000] + [f"line {i}" for i in range(500)]
LIMIT_S = 120


def program(loop):
    path = os.path.join(BUILD, "bin", f"embed_{loop}")
    return path if os.path.exists(path) else None


def serve(loop):
    server = subprocess.Popen([program(loop), "serve", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    word, address = server.stdout.readline().split()
    assert word == "listening", word
    return server, address


def ask(loop, address, text, stdin_file):
    command = [program(loop), "ask", address]
    if not stdin_file:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=LIMIT_S)
    with tempfile.TemporaryFile("w+") as file:
        file.write(text)
        file.seek(0)
        return subprocess.run(command, stdin=file, capture_output=True, text=True, timeout=LIMIT_S)


def check(server_loop, client_loop, address, stdin_file):
    result = ask(client_loop, address, "\n".join(LINES), stdin_file)
    expected = sorted(f"{len(line)} bytes" for line in LINES)
    assert result.returncode == 0, (server_loop, client_loop, result.returncode, result.stderr)
    assert sorted(result.stdout.splitlines()) == expected, (server_loop, client_loop)


def main():
    loops = [loop for loop in ("epoll", "libevent", "libuv") if program(loop)]
    assert "epoll" in loops and "libevent" in loops, "not built"
    for server_loop in loops:
        server, address = serve(server_loop)
        try:
            for client_loop in loops:
                check(server_loop, client_loop, address, False)
                check(server_loop, client_loop, address, True)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(timeout=LIMIT_S)
        assert code == 0, (server_loop, code)
        assert ask(server_loop, address, "nobody is there\n", False).returncode == 1
        bad = subprocess.run([program(server_loop), "serve", "nonsense:port"], capture_output=True, text=True)
        assert bad.returncode == 2 and "nonsense" in bad.stderr, bad
    if "libuv" not in loops:
        print("without libuv (libuv1-dev was not there when it was built)")


sys.exit(main())
