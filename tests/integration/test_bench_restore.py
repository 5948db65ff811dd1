#!/usr/bin/env python3
"""tests/bench/checkpoint_restore: a state of few bytes is saved, restored by one worker and by two, and told beside plain reads."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
from puppets import MUSTER, PATIENCE_S

SCRIPT = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "bench", "checkpoint_restore")
BYTES = 5 << 20


class Restore(unittest.TestCase):
    def test_rates_of_each_number_of_workers_and_of_plain_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SCRIPT, "--folder", folder, "--json", "--bytes", str(BYTES), "-n", "1,2", "--rounds", "1",
                                   "--build", os.path.dirname(os.path.dirname(MUSTER))], text=True, capture_output=True, timeout=PATIENCE_S)

            self.assertEqual((done.returncode, done.stderr, os.listdir(folder)), (0, "", []))
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(row["n"], row["bytes"]) for row in rows], [(1, BYTES), (2, BYTES)])
        for row in rows:
            asked = min(1e9, row["disk_bytes_per_s"])
            self.assertAlmostEqual(row["ratio"], row["restore_bytes_per_s"] / asked, delta=0.006)
            self.assertEqual(row["met"], row["restore_bytes_per_s"] >= asked)

    def test_a_folder_that_is_not_there_is_named(self):
        done = subprocess.run([SCRIPT, "--folder", "/nowhere"], text=True, capture_output=True, timeout=PATIENCE_S)

        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--folder: /nowhere is not a folder", done.stderr)


if __name__ == "__main__":
    unittest.main()
