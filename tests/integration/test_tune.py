#!/usr/bin/env python3
"""Tables of algorithms: measured by `muster bench tune`, refused with line and remedy, used by `muster run`;
`muster bench scale` plays them."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

STEPPER = os.path.join(PROGRAMS, "stepper")


def muster(*args, **variables):
    return subprocess.run([MUSTER, *args], env=dict(CLEAN, **variables), text=True, capture_output=True,
                          timeout=PATIENCE_S)


class Tune(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.file = os.path.join(where.name, "table")

    def write(self, text):
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(text)

    def test_what_was_measured_can_be_used(self):
        done = muster("bench", "--tune", "-n", "2,3", "--bytes", "1K,256K", "--iters", "3", "--out", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.file, encoding="utf-8") as file:
            rules = [line.split() for line in file if line.startswith("rule")]
        self.assertEqual([rule[4] for rule in rules], sorted((rule[4] for rule in rules), reverse=True))
        self.assertEqual({rule[4] for rule in rules}, {"2", "3"})
        for algorithm in ("direct", "blocks", "halving", "double_tree", "ring"):
            self.assertIn(algorithm, done.stderr)
        done = muster("run", "-n", "3", "--tune-file", self.file, "--reproducible", "view", "--", STEPPER, "3")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_cannot_be_written_is_told_before_anything_is_measured(self):
        done = muster("bench", "tune", "-n", "2", "--out", "/nonexistent/x")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr, "muster bench tune: --out /nonexistent/x: No such file or directory\n")

    def test_a_folder_is_no_table(self):
        done = muster("run", "-n", "2", "--tune-file", os.path.dirname(self.file), "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("it is a folder", done.stderr)

    def test_every_algorithm_trains(self):
        for algorithm in ("ring", "halving", "double_tree", "blocks", "two_level"):
            self.write(f"algorithm {algorithm}\ndirect_max_bytes 1\n")
            done = muster("run", "-n", "3", "--tune-file", self.file, "--", STEPPER, "3")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_members_that_share_hosts_train(self):
        self.write("direct_max_bytes 1\nrule all_reduce any hosts 0 - two_level\n")
        script = f"MUSTER_HOST_KEY=host$((RANK / 2)) exec {STEPPER} 3"
        done = muster("run", "-n", "5", "--tune-file", self.file, "--", "sh", "-c", script)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_bad_table_is_told_before_anybody_starts(self):
        self.write("\nrule all_reduce tcp any 2 64K tree\n")
        for done in (muster("run", "-n", "2", "--tune-file", self.file, "--", "true"),
                     muster("bench", "scale", "--tune-file", self.file)):
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"--tune-file {self.file}: line 2: 'tree': write one of direct ring halving", done.stderr)
        done = muster("run", "-n", "2", "--tune-file", self.file + ".not", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("muster bench tune", done.stderr)

    def test_a_bad_table_in_the_environment_names_the_variable(self):
        self.write("chunks 3\n")
        env = dict(CLEAN, MUSTER_REGISTRY="127.0.0.1:1", RANK="0", WORLD_SIZE="1")
        for name, value, text in (("MUSTER_TUNE_FILE", self.file, "line 1: 'chunks'"),
                                  ("MUSTER_REPRODUCIBLE", "global", "must be view or no")):
            done = subprocess.run([STEPPER, "1"], env=dict(env, **{name: value}), text=True, capture_output=True,
                                  timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 1)
            self.assertIn(name, done.stderr)
            self.assertIn(value, done.stderr)
            self.assertIn(text, done.stderr)


class Scale(unittest.TestCase):
    def play(self, *args):
        done = muster("bench", "scale", "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_a_thousand_members(self):
        lines = self.play("-n", "1024", "--bytes", "1M", "--ranks-per-host", "8", "--latency-us", "20", "--gbps", "25",
                          "--algorithm", "auto")
        self.assertEqual(len(lines), 1)
        self.assertEqual((lines[0]["n"], lines[0]["hosts"], lines[0]["is_auto"]), (1024, 128, True))
        self.assertGreaterEqual(lines[0]["times_bound"], 1)

    def test_all_that_can_run_it(self):
        lines = self.play("-n", "4,16", "--bytes", "64K,16M")
        self.assertEqual({line["algorithm"] for line in lines if line["bytes"] == 64 << 10},
                         {"direct", "ring", "halving", "double_tree", "blocks", "two_level"})
        self.assertNotIn("direct", {line["algorithm"] for line in lines if line["bytes"] == 16 << 20})
        for n in (4, 16):
            for size in (64 << 10, 16 << 20):
                self.assertEqual(sum(line["is_auto"] for line in lines if (line["n"], line["bytes"]) == (n, size)), 1)

    def test_bad_input(self):
        for args in (["-n", "0"], ["-n", "1"], ["-n", "5000"], ["--bytes", "x"], ["-n", ""]):
            self.assertEqual(muster("bench", "scale", *args).returncode, 2, args)
        done = muster("bench", "scale", "--gbps", "0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("more than 0", done.stderr)


if __name__ == "__main__":
    needs.program("muster")
    unittest.main()
