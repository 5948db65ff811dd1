#!/usr/bin/env python3
"""The whole programs of docs/rpc.md and docs/registry.md, taken from the pages word for word, built against the installed library
and run: answers, TLS, an end by signals, clients that leave while a thread works, and peers that come and go."""
import atexit
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard
from tls_files import TlsFiles

BUILD = os.environ.get("MUSTER_BINARY_DIR", "build-asan")
SOURCE = os.environ.get("MUSTER_SOURCE_DIR", ".")
PATIENCE = 60

guard.enter()
import needs

needs.run_with("grpc", "python3-grpcio")
import grpc


def expect(what, is_right):
    print(("ok " if is_right else "FAILED ") + what, flush=True)
    if not is_right:
        sys.exit(1)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout, done.stderr)
        sys.exit(f"FAILED {' '.join(command)}")


def blocks(page, language):
    with open(os.path.join(SOURCE, "docs", page)) as file:
        return re.findall(rf"^```{language}\n(.*?)^```$", file.read(), re.M | re.S)


def program(page, name):
    return next(text for text in blocks(page, "c") if text.startswith(f"/* {name}: "))


def build(work):
    files = {"greeter.proto": blocks("rpc.md", "proto")[0], "greeter.c": program("rpc.md", "greeter.c"),
             "pool.c": program("rpc.md", "pool.c"), "peers.c": program("registry.md", "peers.c")}
    files["CMakeLists.txt"] = ("cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES C)\nfind_package(muster REQUIRED)\n" +
                               blocks("rpc.md", "cmake")[0] +
                               "add_executable(pool pool.c)\nmuster_generate(pool greeter.proto)\n"
                               "target_link_libraries(pool muster::muster protobuf-c pthread)\n"
                               "add_executable(peers peers.c)\ntarget_link_libraries(peers muster::muster)\n")
    for name, text in files.items():
        with open(os.path.join(work, name), "w") as file:
            file.write(text)
    with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
        sanitize = next((line.split("=", 1)[1].strip() for line in cache if line.startswith("MUSTER_SANITIZE:")), "")
    flags = "-Wall -Wextra -Werror" + (f" -fsanitize={sanitize}" if sanitize else "")
    usr = os.path.join(work, "usr")
    run("cmake", "--install", BUILD, "--prefix", usr)
    run("cmake", "-S", work, "-B", os.path.join(work, "b"), "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={usr}", f"-DCMAKE_C_FLAGS={flags}")
    run("cmake", "--build", os.path.join(work, "b"))


def start(work, name, *words):
    return subprocess.Popen([os.path.join(work, "b", name), *words], stdout=subprocess.PIPE, text=True)


def address_of(server):
    word, address = server.stdout.readline().split()
    assert word == "listening", word
    return address


def greet(channel, name):
    call = channel.unary_unary("/greet.Greeter/Greet")
    return call(b"\x0a" + bytes([len(name)]) + name.encode(), timeout=PATIENCE, wait_for_ready=True)[2:].decode()


def check_greeter(work):
    server = start(work, "greeter", "127.0.0.1:0")
    with grpc.insecure_channel(address_of(server)) as channel:
        expect("the greeter answers", greet(channel, "you") == "hello you")
        server.send_signal(signal.SIGTERM)
        expect("SIGTERM ends the greeter in order", server.wait(PATIENCE) == 0)
    files = TlsFiles(atexit.register)
    cert, key = files.issue("localhost")
    server = start(work, "greeter", "127.0.0.1:0", cert, key)
    with open(files.ca, "rb") as roots:
        credentials = grpc.ssl_channel_credentials(roots.read())
    with grpc.secure_channel(address_of(server), credentials, [("grpc.ssl_target_name_override", "localhost")]) as channel:
        expect("the greeter answers under TLS", greet(channel, "you") == "hello you")
    server.send_signal(signal.SIGINT)
    expect("SIGINT, too", server.wait(PATIENCE) == 0)
    expect("what is not an address is refused", start(work, "greeter", "nowhere").wait(PATIENCE) == 1)


def check_pool(work):
    server = start(work, "pool", "127.0.0.1:0")
    address = address_of(server)
    with grpc.insecure_channel(address) as channel, concurrent.futures.ThreadPoolExecutor(16) as threads:
        names = [f"number {i}" for i in range(300)]
        expect("300 answers of the pool", list(threads.map(lambda name: greet(channel, name), names)) == ["hello " + n for n in names])
        calls = [channel.unary_unary("/greet.Greeter/Greet").future(b"\x0a\x01x", timeout=PATIENCE) for _ in range(100)]
        for call in calls:
            call.cancel()
        expect("clients that leave harm nobody", greet(channel, "still") == "hello still")
    server.send_signal(signal.SIGTERM)
    expect("the pool ends in order", server.wait(PATIENCE) == 0)


def check_peers(work):
    registry = subprocess.Popen([os.path.join(BUILD, "bin", "muster"), "registry", "--listen", "127.0.0.1:0"],
                                stdout=subprocess.PIPE, text=True)
    address = address_of(registry)
    one = start(work, "peers", address, "one")
    expect("a peer sees itself", one.stdout.readline() == "here one\n")
    two = start(work, "peers", address, "two")
    expect("the second sees both", [two.stdout.readline(), two.stdout.readline()] == ["here one\n", "here two\n"])
    expect("the first is told of it", one.stdout.readline() == "here two\n")
    two.send_signal(signal.SIGTERM)
    expect("the second ends in order", two.wait(PATIENCE) == 0)
    expect("the first is told at once", one.stdout.readline() == "gone two\n")
    one.send_signal(signal.SIGTERM)
    expect("the first ends in order", one.wait(PATIENCE) == 0)
    registry.terminate()
    registry.wait(PATIENCE)


def main():
    with tempfile.TemporaryDirectory() as work:
        build(work)
        os.environ["LD_LIBRARY_PATH"] = os.path.join(work, "usr", "lib")
        check_greeter(work)
        check_pool(work)
        check_peers(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
