#!/usr/bin/env python3
"""examples/weights and `muster bench publish`: publishers and readers are killed with SIGKILL; readers show whole versions in order, and go
on. docs/publications.md shows the program word for word."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import BINARIES, MUSTER, PATIENCE_S, ParamsCluster, page_shows

PROGRAM = os.path.join(BINARIES, "weights")
WAITING = os.path.join(BINARIES, "weights_wait")
READERS = 3


class Weights(ParamsCluster):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def play(self, role, name):
        """A process whose output is in the file of this name."""
        with open(self.path(name), "w", encoding="utf-8") as output:
            return self.start(PROGRAM, role, self.registry, output=output, log=subprocess.STDOUT)

    def versions(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            found = re.findall(r"^version (\d+): all weights are (\d+), but for (\d+)\n", file.read(), re.M)
        return [tuple(int(word) for word in row) for row in found]

    def newest(self, name):
        return max((row[0] for row in self.versions(name)), default=0)

    def wait_for(self, names, version):
        self.wait_until(lambda: all(self.newest(name) >= version for name in names), f"not all readers have version {version}")

    def check(self, names):
        for name in names:
            rows = self.versions(name)
            self.assertEqual([row for row in rows if row[2] != 0 or row[0] != row[1]], [], "torn, or of another version")
            self.assertEqual([row[0] for row in rows], sorted({row[0] for row in rows}), "not in order")

    def test_readers_go_on_when_publishers_and_readers_are_killed(self):
        names = [f"reader{i}" for i in range(READERS)]
        readers = [self.play("read", name) for name in names]
        for life in range(3):
            publisher = self.play("publish", f"publisher{life}")
            before = max(self.newest(name) for name in names)
            self.wait_for(names, before + 2)
            if life == 1:
                readers[0].send_signal(signal.SIGKILL)
                names[0] = "reader0_again"
                readers[0] = self.play("read", names[0])
                self.wait_for(names, before + 4)
            publisher.send_signal(signal.SIGKILL)
        self.check(names + ["reader0"])

    def test_the_publisher_that_came_first_is_fenced(self):
        first = self.play("publish", "first")
        self.play("read", "reader")
        self.wait_for(["reader"], 2)
        self.play("publish", "second")
        self.assertEqual(first.wait(timeout=PATIENCE_S), 1)
        with open(self.path("first"), encoding="utf-8") as file:
            self.assertIn("another publisher at 127.0.0.1:", file.read())
        self.wait_for(["reader"], self.newest("reader") + 2)
        self.check(["reader"])

    def test_the_bench_kills_readers_and_finds_no_torn_version(self):
        done = subprocess.run([MUSTER, "bench", "publish", "--readers", "3", "--bytes", "1M", "--changed", "5", "--versions", "3", "--kills", "3",
                               "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual((result["bench"], result["readers"], result["kills"], result["torn"], result["stale"]), ("publish", 3, 3, 0, 0))
        self.assertLess(result["wire_bytes"], 3 * 1048576 * 0.25)  # changes of 5 %
        self.assertGreater(result["all_ms"], result["lower_bound_ms"])

    def test_a_program_without_a_loop_publishes_and_reads(self):
        reader = self.start(WAITING, "read", self.registry)
        publisher = self.start(WAITING, "publish", self.registry)
        self.assertEqual((publisher.wait(timeout=PATIENCE_S), publisher.stdout.read()), (0, "version 10 has a reader\n"))
        self.assertEqual(reader.wait(timeout=PATIENCE_S), 0)
        lines = reader.stdout.read().splitlines()
        self.assertEqual(lines, sorted(set(lines), key=lines.index))
        for line in lines:
            self.assertRegex(line, r"^version (\d+): \1$")
        self.assertEqual(lines[-1], "version 10: 10")

    def test_the_page_shows_the_program_word_for_word(self):
        self.assertTrue(page_shows("publications.md", "weights.c"))


if __name__ == "__main__":
    unittest.main()
