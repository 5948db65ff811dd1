#!/usr/bin/env python3
"""The recovery time that `muster run` tells is the one that the survivors measure."""
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

TOLD = re.compile(r"worker:(\d) killed by SIGKILL at step (\d+),.*view \d+ with 2 members after ([\d.]+) ms \(detection ([\d.]+) ms\)")
GAP = re.compile(r"(?m)^\[worker:(\d)\] gap (\d+) ([\d.]+)$")
KILLS = {1: 60, 2: 180, 0: 300}


class Recovery(unittest.TestCase):
    def run_with_kills(self, **variables):
        kills = [word for rank, step in KILLS.items() for word in ("--kill", f"{rank}@step={step}")]
        done = subprocess.run([MUSTER, "run", "-n", "3", "--json", "-", *kills, "--", os.path.join(PROGRAMS, "stepper"), "420"],
                              env=dict(CLEAN, STEPPER_GAPS="1", STEPPER_HURRY="/nowhere", **variables), text=True,
                              capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        gaps = {}
        for rank, step, ms in GAP.findall(done.stdout):
            gaps.setdefault((int(rank), int(step)), float(ms))
        return TOLD.findall(done.stderr), gaps, json.loads(done.stdout.splitlines()[-1]), done.stderr

    def check_time(self, victim, step, told_ms, gaps):
        """What a survivor stood still lies between its last result before the death and its first one behind it."""
        survivors = [rank for rank in range(3) if rank != victim]
        stood = [gaps[rank, step] for rank in survivors]
        # The victim may have been in the next step before a survivor saw the result of the one before.
        self.assertLessEqual(told_ms, max(gaps[rank, step - 1] + gaps[rank, step] for rank in survivors) + 1)
        self.assertGreaterEqual(told_ms, min(stood) / 20)

    def test_each_death_has_its_own_time(self):
        for wire in ("auto", "tcp"):
            with self.subTest(wire=wire):
                told, gaps, summary, err = self.run_with_kills(MUSTER_WIRE=wire)
                self.assertEqual([(int(victim), int(step)) for victim, step, _, _ in told], list(KILLS.items()), err)
                for victim, step, told_ms, detection_ms in told:
                    self.assertLessEqual(float(detection_ms), float(told_ms))
                    self.check_time(int(victim), int(step), float(told_ms), gaps)
                for key, index in (("recovery_ms", 2), ("detection_ms", 3)):
                    self.assertAlmostEqual(summary[key]["max"], max(float(line[index]) for line in told), delta=0.06)
                    self.assertLessEqual(summary[key]["median"], summary[key]["max"])


if __name__ == "__main__":
    unittest.main()
