#!/usr/bin/env python3
"""The lines of `muster run` about its members: each death in one line with one step, who joins for the first time and who
comes back. The workers are scripts that report what members would."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
CLEAN = {k: v for k, v in os.environ.items() if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR|TEST_GUARD)|TF_CONFIG|RANK$|WORLD_SIZE", k)}
LOST = dict(report="view", epoch=2, members=2, lost=["worker:2"], joined=[], recovery_ms=1.5, op="all_reduce 150/0",
            phase="reduce", verdict="retry", step=150)


class Worker:
    """A fake member: rank and life from the environment, reports on descriptor 3, and files to meet the test."""

    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.life = int(os.environ["MUSTER_RESTART_COUNT"])
        self.where = os.environ["FAKE_DIR"]

    def report(self, **fields):
        os.write(3, (json.dumps(fields) + "\n").encode())

    def enter(self, epoch, reason="first view"):
        self.report(report="view", epoch=epoch, members=3, lost=[], joined=[], reason=reason)

    def begin(self):
        self.enter(1)
        self.report(report="progress", step=149, epoch=1, members=3, values={})
        open(f"{self.where}/begun-{self.rank}", "w", encoding="utf-8").close()

    def wait_for(self, *names):
        while not all(os.path.exists(f"{self.where}/{name}") for name in names):
            time.sleep(0.01)

    def end(self):
        self.report(report="result", steps=900, steps_lost=0, values={}, digest="00112233aabbccdd")

    def die(self):
        self.wait_for("begun-0", "begun-1", "begun-2")
        os.kill(os.getpid(), signal.SIGKILL)


def members_speak_late(worker):
    if worker.life == 0:
        worker.begin()
    if worker.rank == 2 and worker.life == 0:
        worker.die()
    worker.wait_for("go")
    if worker.rank != 2:
        worker.report(**LOST)
    worker.end()


def one_is_excluded(worker, cause="silent"):
    if worker.life == 0:
        worker.begin()
    if worker.rank != 2:
        worker.report(**LOST, reason=f"worker:2 lost ({cause})")
    worker.wait_for("go")
    if worker.rank == 2 and worker.life == 0:
        worker.die()
    worker.end()


def one_is_seen_to_end(worker):
    one_is_excluded(worker, "process ended")


def all_die(worker):
    if worker.life == 0:
        worker.begin()
        worker.die()
    print("reborn", file=sys.stderr, flush=True)
    open(f"{worker.where}/reborn-{worker.rank}", "w", encoding="utf-8").close()
    worker.wait_for("reborn-0", "reborn-1", "reborn-2")
    worker.enter(2, reason="new beginning")
    worker.report(report="progress", step=7, epoch=2, members=3, values={})
    worker.end()


def two_die_and_one_view_is_told_late(worker):
    """Views 2 and 3 lose one each; who is back has told of view 4 before the others speak."""
    if worker.life == 0:
        worker.begin()
        if worker.rank > 0:
            worker.die()
        worker.wait_for("back-1")
        worker.report(report="view", epoch=2, members=2, lost=["worker:1"], joined=[], step=150, op="all_reduce 150/0", phase="reduce", verdict="retry")
        worker.report(report="view", epoch=3, members=1, lost=["worker:2"], joined=[], step=150, op="all_reduce 150/1", phase="reduce", verdict="retry")
        worker.enter(4, reason="worker:1 joined")
    elif worker.rank == 1:
        worker.enter(4, reason="worker:1 joined")
        open(f"{worker.where}/back-1", "w", encoding="utf-8").close()
    worker.wait_for("go")
    worker.end()


def one_view_is_skipped(worker):
    """A member goes from view 1 to 3, and so tells a death again that is told, of a worker that has come back."""
    if worker.life == 0:
        worker.begin()
        if worker.rank > 0:
            worker.wait_for(*(("begun-0", "begun-1", "begun-2") if worker.rank == 1 else ("die",)))
            os.kill(os.getpid(), signal.SIGKILL)
        worker.wait_for("begun-0", "begun-1", "begun-2")
        worker.report(report="view", epoch=2, members=2, lost=["worker:1"], joined=[], step=150)
        worker.wait_for("back-1")
        worker.report(report="view", epoch=3, members=2, lost=["worker:1", "worker:2"], joined=[], step=151)
    elif worker.rank == 1:
        worker.enter(3, reason="worker:2 lost (SIGKILL), worker:1 joined")
        open(f"{worker.where}/back-1", "w", encoding="utf-8").close()
    worker.wait_for("go")
    worker.end()


def one_leaves(worker):
    worker.begin()
    worker.wait_for("begun-0", "begun-1", "begun-2")
    if worker.rank == 2:
        return
    worker.report(**dict(LOST, verdict="retry"), reason="worker:2 left")
    worker.wait_for("go")
    worker.end()


def one_joins_twice(worker):
    if worker.rank == 2:
        worker.wait_for(*(("begun-0", "begun-1") if worker.life == 0 else ("told-0", "told-1")))
        worker.report(report="view", epoch=2 + 2 * worker.life, members=3, lost=[], joined=[])
        worker.report(report="rejoined", epoch=2 + 2 * worker.life, catch_up_ms=41.0, from_step=151)
        if worker.life == 0:
            worker.wait_for("go")
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        worker.begin()
        worker.report(report="view", epoch=2, members=3, lost=[], joined=["worker:2", "other:7"])
        worker.wait_for("dead")
        worker.report(report="view", epoch=3, members=2, lost=["worker:2", "other:7"], joined=[], step=150)
        worker.report(report="view", epoch=4, members=3, lost=[], joined=["worker:2", "other:7"])
        open(f"{worker.where}/told-{worker.rank}", "w", encoding="utf-8").close()
    worker.end()


class Told(unittest.TestCase):
    def play(self, play, steps, *args):
        """Run it; each of steps is (text to wait for, name of the file that answers it). Returns the lines and the summary."""
        with tempfile.TemporaryDirectory() as where:
            command = [MUSTER, "run", "-n", "3", "--json", f"{where}/summary", *args, "--", sys.executable,
                       os.path.abspath(__file__), "play", play]
            with subprocess.Popen(command, env=dict(CLEAN, FAKE_DIR=where), stderr=subprocess.PIPE, text=True) as launcher:
                self.addCleanup(launcher.kill)
                lines = []
                steps = list(steps)
                for line in launcher.stderr:
                    lines.append(line.rstrip("\n"))
                    while steps and steps[0][0] in lines[-1]:
                        open(f"{where}/{steps.pop(0)[1]}", "w", encoding="utf-8").close()
            self.assertEqual(steps, [], lines)
            with open(f"{where}/summary", encoding="utf-8") as file:
                return lines, json.load(file)

    def test_a_death_told_before_the_members_speak_is_not_told_again(self):
        lines, summary = self.play("members_speak_late", [("worker:2 killed", "go")])
        self.assertEqual(sum("worker:2" in line and "killed" in line for line in lines), 1, lines)
        self.assertEqual(sum("worker:2 lost" in line for line in lines), 0, lines)
        after = [line for line in lines if "view 2 with 2 members" in line]
        self.assertEqual(len(after), 1, lines)
        self.assertIn("operation all_reduce 150/0 (reduce phase) retried without it", after[0])
        self.assertEqual(sum(" at step " in line for line in lines), 1, lines)
        self.assertEqual(summary["recovery_ms"], {"median": 1.5, "max": 1.5})

    def test_a_living_worker_that_the_view_leaves_out_is_excluded_and_its_death_is_told_when_it_comes(self):
        lines, _ = self.play("one_is_excluded", [("worker:2 left out although its process lives (the others did not hear from it) at step 150", "go")])
        self.assertEqual(sum("worker:2 killed by SIGKILL" in line for line in lines), 1, lines)

    def test_a_death_that_the_members_see_before_the_launcher_is_not_told_as_a_life(self):
        self.play("one_is_seen_to_end", [("worker:2 left out (its process has ended) at step 150", "go")])

    def test_a_job_without_a_member_begins_anew(self):
        lines, summary = self.play("all_die", ())
        told = [line for line in lines if "the job begins anew" in line]
        self.assertEqual(len(told), 1, lines)
        self.assertIn("it stood at step 149 as last reported, 149 steps lost unless a checkpoint has them, view 2 with 3 members", told[0])
        self.assertTrue(any("3 kills, the job had to begin anew when it stood at step 149, 149 steps lost, 0 survivors" in line
                            for line in lines), lines)
        self.assertEqual((summary["steps_lost"], summary["begun_anew_at"], summary["rejoins"]), (149, [149], 0))
        self.assertEqual(summary["recovery_ms"], {"median": None, "max": None})

    def test_deaths_that_nobody_can_explain_are_told_at_once(self):
        lines, _ = self.play("all_die", ())
        self.assertEqual(sum("killed by SIGKILL at step 149" in line for line in lines), 3, lines)
        before = [rank for rank in range(3) if next(i for i, line in enumerate(lines) if f"worker:{rank} killed" in line) <
                  next(i for i, line in enumerate(lines) if line == f"[worker:{rank}] reborn")]
        self.assertGreaterEqual(len(before), 2, lines)  # the first one to be reaped may wait for the others' word

    def test_a_view_that_is_told_late_explains_its_deaths(self):
        lines, _ = self.play("two_die_and_one_view_is_told_late", [("worker:2 killed", "go")])
        for rank in (1, 2):
            self.assertEqual([line for line in lines if f"worker:{rank} killed" in line and f"all_reduce 150/{rank - 1}" in line and
                              f"view {rank + 1} with" in line][1:], [], lines)
            self.assertTrue(any(f"worker:{rank} killed" in line and f"view {rank + 1} with" in line for line in lines), lines)

    def test_a_death_that_two_views_tell_is_told_once(self):
        lines, _ = self.play("one_view_is_skipped", [("worker:1 killed", "die"), ("worker:2 killed", "go")])
        self.assertEqual(sum("worker:1" in line and ("killed" in line or "left out" in line) for line in lines), 1, lines)
        self.assertTrue(any("worker:2 killed by SIGKILL at step 151, view 3 with" in line for line in lines), lines)

    def test_a_leave_is_no_recovery(self):
        lines, summary = self.play("one_leaves", [("worker:2 left at step 150", "go")])
        self.assertFalse(any(" after 1.5 ms" in line for line in lines), lines)
        self.assertEqual((summary["recovery_ms"], summary["kills"]), ({"median": None, "max": None}, 0))

    def test_the_first_time_is_joined_and_the_next_rejoined(self):
        lines, summary = self.play("one_joins_twice", [("worker:2 joined in 41 ms, view 2", "go"),
                                                       ("worker:2 killed", "dead")])
        self.assertTrue(any("other:7 joined, view 2 with 3 members" in line for line in lines), lines)
        self.assertTrue(any("worker:2 rejoined in 41 ms, view 4" in line for line in lines), lines)
        self.assertTrue(any("other:7 rejoined, view 4 with 3 members" in line for line in lines), lines)
        self.assertEqual((summary["joins"], summary["rejoins"], summary["views"]), (1, 1, 4))


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        globals()[sys.argv[2]](Worker())
    else:
        unittest.main()
