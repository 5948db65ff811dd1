"""Servers of parameters for test cases: `muster params serve`, alone or several of a job, with a registry of their own."""
import os
import signal
import subprocess
import tempfile
import time
import unittest

SOURCE = os.environ["MUSTER_SOURCE_DIR"]
BINARIES = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin")
MUSTER = os.path.join(BINARIES, "muster")
PATIENCE_S = 120


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def page_shows(page, program):
    """Whether docs/ shows a program of examples/ word for word."""
    with open(os.path.join(SOURCE, "examples", program), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(SOURCE, "docs", page), encoding="utf-8") as file:
        return f"```c\n{text}```\n" in file.read()


class ParamsCluster(unittest.TestCase):
    memory = "64M"

    def setUp(self):
        self.registry = self.start_registry()

    def start_registry(self):
        return self.start(MUSTER, "registry", "--listen", "127.0.0.1:0").stdout.readline().split()[1]

    def start(self, *words, output=subprocess.PIPE, log=subprocess.PIPE, source=None):
        process = subprocess.Popen(words, stdin=source, stdout=output, stderr=log, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def serve(self, *words, log=subprocess.PIPE):
        process = self.start(MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", self.memory, *words, log=log)
        word, address = process.stdout.readline().split()
        self.assertEqual(word, "listening")
        return process, address

    def server(self, *words):
        """A keeper and the address of its server; its log is read by nobody, and kept by the pipe."""
        return self.serve("--registry", self.registry, "--job", "j", "--log-level", "warn", *words)

    def log_file(self):
        log = tempfile.NamedTemporaryFile("w+")
        self.addCleanup(log.close)
        return log

    def logged_server(self, *words):
        """The same; the log says which maps it has seen."""
        log = self.log_file()
        return *self.serve("--registry", self.registry, "--job", "j", *words, log=log), log.name

    def servers(self, count, *words):
        keepers, addresses = zip(*[self.server(*(words if "--expect" in words else ("--expect", str(count), *words))) for _ in range(count)])
        return keepers, ",".join(addresses)

    def wait_until(self, is_so, text):
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            self.assertLess(time.monotonic(), until, text)
            time.sleep(0.01)

    def lines_of(self, log, event):
        with open(log, encoding="utf-8") as file:
            return [line for line in file if f" {event} " in line and line.endswith("\n")]

    def maps_of(self, log):
        return self.lines_of(log, "params_map")

    def wait_for_copies(self, log, maps=None):
        """Until all shards have their replicas on three servers. With `maps`, those of before a death: and have lacked some since then,
        because a second loss before that could take both copies of a row."""
        until = time.monotonic() + PATIENCE_S
        while True:
            seen = self.maps_of(log)[len(maps or []):]
            lacked = maps is None or any("short_shards=0\n" not in line for line in seen)
            if lacked and seen and "servers=3 " in seen[-1] and "short_shards=0\n" in seen[-1]:
                return
            self.assertLess(time.monotonic(), until, "".join(seen[-5:]))
            time.sleep(0.01)

    def kill_server(self, keeper):
        """Its keeper has started another one when this returns."""
        victim = children_of(keeper.pid)[0]
        os.kill(victim, signal.SIGKILL)
        self.wait_until(lambda: children_of(keeper.pid) and victim not in children_of(keeper.pid), "the keeper starts nobody")
