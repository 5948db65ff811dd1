#!/usr/bin/env python3
"""`muster params serve --registry`: servers share the tables of a job; one that is killed, stopped or added loses and doubles nothing."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

BINARIES = os.environ["MUSTER_BINARY_DIR"]
MUSTER = os.path.join(BINARIES, "bin", "muster")
LEDGER = os.path.join(BINARIES, "tests", "programs", "params_ledger")
PATIENCE_S = 120


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


class Cluster(unittest.TestCase):
    def setUp(self):
        registry = self.start("registry", "--listen", "127.0.0.1:0")
        self.registry = registry.stdout.readline().split()[1]

    def start(self, *words, log=subprocess.PIPE):
        process = subprocess.Popen([MUSTER, *words], stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def server(self, *words):
        """A keeper and the address of its server; its log is read by nobody, and kept by the pipe."""
        process = self.start("params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--registry", self.registry, "--job", "j",
                             "--log-level", "warn", *words)
        word, address = process.stdout.readline().split()
        self.assertEqual(word, "listening")
        return process, address

    def logged_server(self, *words):
        """The same; the log says which maps it has seen."""
        log = tempfile.NamedTemporaryFile("w+")
        self.addCleanup(log.close)
        process = self.start("params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--registry", self.registry, "--job", "j",
                             *words, log=log)
        return process, process.stdout.readline().split()[1], log.name

    def wait_for_copies(self, log, maps):
        """Until a map beyond the first `maps` ones says that all shards have their replicas. Returns how many there were."""
        until = time.monotonic() + PATIENCE_S
        while True:
            with open(log, encoding="utf-8") as file:
                lines = [line for line in file if " params_map " in line and line.endswith("\n")]
            if len(lines) > maps and "servers=3 " in lines[-1] and "short_shards=0\n" in lines[-1]:
                return len(lines)
            self.assertLess(time.monotonic(), until, lines[-1:])
            time.sleep(0.01)

    def servers(self, count, *words):
        keepers, addresses = zip(*[self.server(*(words if "--expect" in words else ("--expect", str(count), *words))) for _ in range(count)])
        return keepers, ",".join(addresses)

    def ledger(self, addresses, element, pushes):
        process = subprocess.Popen([LEDGER, addresses, "j", str(element), str(pushes)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "begun\n")
        return process

    def assert_nothing_lost(self, ledgers):
        for ledger in ledgers:
            out, err = ledger.communicate(timeout=PATIENCE_S)
            self.assertEqual((ledger.returncode, err), (0, ""), out)
            self.assertRegex(out, r"^done \d+ lost 0 doubled 0 ")

    def wait_for_new(self, keeper, before):
        """Until another process than `before` serves."""
        until = time.monotonic() + PATIENCE_S
        while before in children_of(keeper.pid) or not children_of(keeper.pid):
            self.assertLess(time.monotonic(), until, "the keeper starts nobody")
            time.sleep(0.01)

    def test_rows_are_spread_over_servers(self):
        _, addresses = self.servers(3)
        self.assert_nothing_lost([self.ledger(addresses, i, 300) for i in range(2)])

    def test_any_server_tells_of_the_others(self):
        _, addresses = self.servers(3)
        self.assert_nothing_lost([self.ledger(addresses.split(",")[i], i, 300) for i in range(2)])

    def test_the_example_of_the_docs_counts(self):
        _, addresses = self.servers(3, "--replicas", "2")
        for _ in range(2):
            done = subprocess.run([os.path.join(BINARIES, "bin", "counter_params"), addresses.split(",")[0], "j"], capture_output=True, text=True,
                                  timeout=PATIENCE_S, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "totals 200 200 200 200\n")

    def test_a_killed_server_with_replicas_loses_and_doubles_nothing(self):
        witness, first, log = self.logged_server("--replicas", "2", "--expect", "3")
        keepers, others = self.servers(2, "--replicas", "2", "--expect", "3")
        ledgers = [self.ledger(f"{first},{others}", i, 20000) for i in range(2)]
        maps = self.wait_for_copies(log, 0)
        for keeper in keepers:
            victim = children_of(keeper.pid)[0]
            os.kill(victim, signal.SIGKILL)
            self.wait_for_new(keeper, victim)
            maps = self.wait_for_copies(log, maps)  # a second loss before that could take both copies of a row
        self.assert_nothing_lost(ledgers)
        self.assertIsNone(witness.poll())

    def test_a_lost_keeper_with_replicas_loses_and_doubles_nothing(self):
        keepers, addresses = self.servers(3, "--replicas", "2")
        ledgers = [self.ledger(addresses, i, 10000) for i in range(2)]
        keepers[1].kill()  # its server ends with it
        self.assert_nothing_lost(ledgers)

    def test_a_killed_server_without_replicas_goes_on_in_its_memory(self):
        keepers, addresses = self.servers(3)
        ledgers = [self.ledger(addresses, i, 20000) for i in range(2)]
        for keeper in keepers:
            os.kill(children_of(keeper.pid)[0], signal.SIGKILL)
        self.assert_nothing_lost(ledgers)

    def test_servers_come_and_go_amid_pushes(self):
        keepers, addresses = self.servers(2)
        ledgers = [self.ledger(addresses, i, 20000) for i in range(2)]
        self.server()
        keepers[0].send_signal(signal.SIGTERM)
        _, err = keepers[0].communicate(timeout=PATIENCE_S)
        self.assertEqual((keepers[0].returncode, err), (0, ""))
        self.assert_nothing_lost(ledgers)

    def test_servers_that_all_end_wait_for_nobody(self):
        keepers, _ = self.servers(2)
        for keeper in keepers:
            keeper.send_signal(signal.SIGTERM)
        for keeper in keepers:
            _, err = keeper.communicate(timeout=PATIENCE_S)
            self.assertEqual((keeper.returncode, err), (0, ""))

    def test_wrong_options_are_refused_with_what_to_do(self):
        for words, text in ((("--replicas", "2"), "need --registry HOST:PORT"), (("--expect", "2"), "need --registry HOST:PORT"),
                            (("--registry", self.registry), "--registry needs --job NAME"),
                            (("--registry", "nowhere", "--job", "j"), "--registry: "),
                            (("--registry", self.registry, "--job", "j", "--listen", "0.0.0.0:0"), "--reach must say by which HOST:PORT"),
                            (("--registry", self.registry, "--job", "j", "--replicas", "3"), "--replicas")):
            done = subprocess.run([MUSTER, "params", "serve", *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(text, done.stderr)


unittest.main(verbosity=0)
