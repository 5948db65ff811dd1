#!/usr/bin/env python3
"""A job that is preempted stops behind one step on all members, saves its state, and goes on from there when it is started again."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

SOURCE = os.environ["MUSTER_SOURCE_DIR"]
STEPPER = os.path.join(PROGRAMS, "stepper")
DIGITS = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "digits")
STEPS, COUNT = "60", "30000"
PREEMPTED = 42


def children(pid):
    try:
        return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def workers(pid, program=STEPPER):
    """Workers stand below the launcher, perhaps with a process between."""
    found = []
    for child in children(pid):
        try:
            is_worker = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().startswith(program.encode())
        except OSError:
            continue
        found += [child] if is_worker else workers(child, program)
    return found


class Launcher:
    """muster run, whose standard error is kept in a file: it can be looked at while it runs."""

    def __init__(self, case, words, program, **variables):
        self.case = case
        self.errors = tempfile.TemporaryFile("w+")
        self.json = os.path.join(case.folder.name, f"summary.{len(case.launchers)}.json")
        case.launchers.append(self)
        self.child = subprocess.Popen([MUSTER, "run", "--json", self.json, *words, "--", *program], env=dict(CLEAN, **variables), cwd=SOURCE,
                                      stdout=subprocess.DEVNULL, stderr=self.errors)
        case.addCleanup(self.errors.close)
        case.addCleanup(self.child.wait)
        case.addCleanup(self.child.kill)

    def said(self):
        return os.pread(self.errors.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_for(self, is_there, what):
        """Without a limit of its own: the test's ends it."""
        while not is_there():
            self.case.assertIsNone(self.child.poll(), f"{what} has not come: {self.said()}")

    def signal(self, number):
        self.child.send_signal(number)

    def end(self, code):
        self.child.wait(timeout=PATIENCE_S)
        self.case.assertEqual(self.child.returncode, code, self.said())
        return json.loads(pathlib.Path(self.json).read_text())


class Preemption(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.checkpoints = os.path.join(self.folder.name, "checkpoints")
        self.hurry = os.path.join(self.folder.name, "hurry")
        self.launchers = []

    def start(self, *words, program=(STEPPER, STEPS, COUNT), **variables):
        return Launcher(self, words, program, **variables)

    def start_slowly(self, *words, **variables):
        """A step takes 50 ms at least until the file is there, so that the job does not end before."""
        return self.start(*words, STEPPER_HURRY=self.hurry, STEPPER_LINGER_MS="50", **variables)

    def saved_steps(self):
        names = sorted(os.listdir(self.checkpoints)) if os.path.exists(self.checkpoints) else []
        return [int(found[1]) for name in names if (found := re.fullmatch(r"checkpoint-(\d+)-[0-9a-f]{16}\.manifest", name))]

    def wait_for_step(self, run, words=("--checkpoint-every", "2")):
        run.wait_for(self.saved_steps, "a checkpoint")

    def goes_on(self, step, *words, **variables):
        """The same command goes on behind the step, and ends as a run that was never disturbed."""
        pathlib.Path(self.hurry).touch()
        plain = self.start("-n", "2").end(0)
        run = self.start(*words, **variables)
        summary = run.end(0)
        self.assertIn(f"the job begins with the checkpoint of step {step},", run.said())
        self.assertIsNone(summary["preempted"])
        self.assertEqual(set(summary["digests"]), set(plain["digests"]))


class Signals(Preemption):
    def test_at_sigterm_all_stop_behind_one_step_and_the_same_command_goes_on(self):
        words = ("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "3", "--checkpoint-keep", "0")
        run = self.start_slowly(*words)
        self.wait_for_step(run)
        run.signal(signal.SIGTERM)
        summary = run.end(PREEMPTED)

        step = summary["preempted"]["step"]
        self.assertEqual(summary["preempted"], {"step": step, "saved": True})
        self.assertLess(step, int(STEPS))
        self.assertEqual(self.saved_steps()[-1], step)
        self.assertEqual([task["exit_code"] for task in summary["tasks"]], [PREEMPTED, PREEMPTED])
        self.assertEqual(run.said().count(f"stopped behind step {step}, which is saved in {self.checkpoints}"), 2)
        self.assertIn(f"preempted behind step {step}, which is saved in {self.checkpoints}", run.said())
        self.goes_on(step, *words)


if __name__ == "__main__":
    unittest.main()
