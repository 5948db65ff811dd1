#!/usr/bin/env python3
"""The load of tests/bench/peers against `muster params serve`: it speaks the messages of this version; and a load that
asks for much and reads nothing costs a server its share of memory, and delays no other client."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import BINARIES, PATIENCE_S, SOURCE, ParamsCluster

LOAD = os.path.join(SOURCE, "tests", "bench", "peers", "params")
RECEIVE_MAX = 8 << 20


class Load(ParamsCluster):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.program = os.path.join(cls.folder.name, "load")
        subprocess.run(["cc", "-std=gnu17", "-O1", f"-I{SOURCE}", "-o", cls.program, os.path.join(LOAD, "load.c"),
                        os.path.join(LOAD, "load_muster.c"), "-lm"], check=True)

    def setUp(self):
        self.process, self.address = self.serve("--status", "127.0.0.1:0", "--receive-max", str(RECEIVE_MAX))
        self.page = self.process.stdout.readline().split()[1].rstrip("/")

    def metric(self, name):
        with urllib.request.urlopen(f"{self.page}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.startswith(f"{name} "))

    def load(self, connections, depth, batch, value_bytes, keys, seconds):
        """It has filled its rows, and waits for a line."""
        load = subprocess.Popen([self.program, "muster", "read", self.address.rsplit(":", 1)[1],
                                 *map(str, (connections, depth, batch, value_bytes, keys, seconds, 0))],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(load.communicate)
        self.addCleanup(load.kill)
        self.assertEqual(load.stdout.readline(), "ready\n")
        return load

    def test_it_reads_rows_of_a_server(self):
        out, err = self.load(2, 4, 8, 64, 100, 0.2).communicate("begin\n", timeout=PATIENCE_S)
        self.assertGreater(json.loads(out)["rows"], 0, err)

    def test_clients_that_stop_reading_cost_their_share_and_delay_nobody(self):
        load = self.load(4, 2000, 64, 4096, 400, 3600)
        load.stdin.write("begin\n")
        load.stdin.flush()
        self.wait_until(lambda: self.metric("muster_params_pulls_total") > 0, "nothing is pulled")
        load.send_signal(signal.SIGSTOP)
        self.wait_until(lambda: self.metric("muster_params_credit_waits_total") >= 4, "nobody is waited for")
        counted = subprocess.run([os.path.join(BINARIES, "counter_params"), self.address], capture_output=True, text=True,
                                 timeout=PATIENCE_S, check=False)
        self.assertEqual((counted.returncode, counted.stdout), (0, "totals 100 100 100 100\n"), counted.stderr)
        self.assertLessEqual(self.metric("muster_params_held_bytes"), RECEIVE_MAX)
        self.assertGreater(self.metric("muster_params_held_bytes"), 0)
        load.send_signal(signal.SIGCONT)
        before = self.metric("muster_params_pulls_total")
        self.wait_until(lambda: self.metric("muster_params_pulls_total") > before + 100, "those that read are not answered")


if __name__ == "__main__":
    unittest.main()
