#!/usr/bin/env python3
"""tests/bench/publish_hosts: a publication to hosts whose links have a speed. Few bytes at a low speed: what all receive, not how fast."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
from puppets import MUSTER, PATIENCE_S
from shaped_hosts import why_not

SCRIPT = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "bench", "publish_hosts")
READERS = 3
BYTES = 4 << 20


class PublishHosts(unittest.TestCase):
    def measure(self, *words):
        done = subprocess.run([SCRIPT, "--muster", MUSTER, "--readers", str(READERS), "--mbit", "200", "--bytes", str(BYTES), "--versions", "2",
                               *words], text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        line = json.loads(done.stdout)
        self.assertEqual((line["torn"], line["stale"], line["stream_gb_per_s"]), (0, 0, 0.025))
        return line

    def test_each_host_receives_a_version_once_and_none_is_faster_than_its_link(self):
        line = self.measure()
        self.assertGreaterEqual(line["all_ms"], line["lower_bound_ms"])
        self.assertGreater(line["lower_bound_ms"], BYTES * 8 / 200e6 * 1e3)
        self.assertLess(READERS * BYTES, line["wire_bytes"])
        self.assertLess(line["wire_bytes"], READERS * (BYTES + 64))

    def test_one_percent_changed_is_at_most_two_percent_of_the_bytes(self):
        line = self.measure("--changed", "1")
        self.assertLess(line["wire_bytes"], READERS * BYTES * 0.02)


reason = why_not()
if reason:
    needs.skip(reason)
unittest.main(verbosity=0)
