#!/usr/bin/env python3
"""The batch script of docs/preemption.md, word for word, where the test plays Slurm: srun, scontrol, the signal before the
time limit to all processes of the step, and a site that ends a step when one of its tasks fails (KillOnBadExit=1)."""
import contextlib
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS
from watched_job import registry

STEPPER = os.path.join(PROGRAMS, "stepper")
PAGE = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "docs", "preemption.md")

# One task on each node, each in a session of its own; the code is the highest of the tasks'.
SRUN = f"""#!{sys.executable}
import os, signal, subprocess, sys
words = sys.argv[1:]
is_ended_by_one = True  # slurm.conf
while words[0].startswith("-"):
    word = words.pop(0)
    assert word in ("--kill-on-bad-exit=0", "-K0"), word
    is_ended_by_one = False
nodes = ["127.0.0.1", "127.0.0.2"]
tasks = [subprocess.Popen(words, start_new_session=True, env=dict(os.environ, SLURM_PROCID=str(rank), SLURM_LOCALID="0",
                          SLURMD_NODENAME=node, SLURM_STEP_NODELIST=",".join(nodes), SLURM_STEP_NUM_TASKS="2",
                          SLURM_STEP_TASKS_PER_NODE="1(x2)")) for rank, node in enumerate(nodes)]
with open(os.environ["PLAYED_SLURM"] + "/tasks.new", "w") as file:
    file.write(" ".join(str(task.pid) for task in tasks))
os.rename(os.environ["PLAYED_SLURM"] + "/tasks.new", os.environ["PLAYED_SLURM"] + "/tasks")
left, codes = len(tasks), []
while left > 0:
    pid, status = os.wait()
    for task in tasks:
        if task.pid == pid:
            left -= 1
            codes.append(os.waitstatus_to_exitcode(status))
            task.returncode = codes[-1]
            if codes[-1] != 0 and is_ended_by_one:
                for other in tasks:
                    if other.returncode is None:
                        os.killpg(other.pid, signal.SIGKILL)
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
"""
SCONTROL = """#!/bin/sh
echo "$@" >> "$PLAYED_SLURM/requeued"
"""


def example():
    """Its lines, which stand four columns to the right."""
    text = pathlib.Path(PAGE).read_text(encoding="utf-8").split("\n## Slurm\n")[1]
    block = re.search(r"(?:^(?:    .*)?\n)+", text[text.index("    #!"):], re.M)[0]
    return "".join(line[4:] if line.startswith("    ") else line for line in block.splitlines(keepends=True))


def descendants(pid):
    try:
        below = [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return below + [each for child in below for each in descendants(child)]


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            path = self.folder / "bin" / name
            path.write_text(text, encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (self.folder / "bin" / "muster").symlink_to(MUSTER)
        self.hurry = self.folder / "hurry"
        text = example()
        for shown, meant in (("HOST:PORT", registry(self)), ("-n 4", "-n 2"), ("/data/job", str(self.folder / "data")),
                             ("PROGRAM", f"{STEPPER} 60 30000")):
            self.assertEqual(text.count(shown), 1, text)
            text = text.replace(shown, meant)
        self.script = self.folder / "job.sh"
        self.script.write_text(text, encoding="utf-8")
        self.log = open(self.folder / "slurm.out", "w+", encoding="utf-8")
        self.addCleanup(self.log.close)

    def said(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def submit(self):
        (self.folder / "tasks").unlink(missing_ok=True)
        env = dict(CLEAN, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", SLURM_JOB_ID="4711", PLAYED_SLURM=str(self.folder),
                   STEPPER_GAPS="1", STEPPER_HURRY=str(self.hurry), STEPPER_LINGER_MS="50")
        job = subprocess.Popen(["bash", str(self.script)], env=env, stdout=self.log, stderr=self.log, start_new_session=True)
        self.addCleanup(job.wait)
        self.addCleanup(self.end_all, job)
        return job

    def end_all(self, job):
        for pid in [*descendants(job.pid), job.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def signal_step(self, number):
        tasks = [int(pid) for pid in (self.folder / "tasks").read_text().split()]
        for pid in [below for task in tasks for below in descendants(task)] + tasks:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, number)

    def wait_for(self, job, words):
        while words not in self.said():
            self.assertIsNone(job.poll(), self.said())

    def requeued(self):
        path = self.folder / "requeued"
        return path.read_text().splitlines() if path.exists() else []

    def stop(self, number):
        job = self.submit()
        self.wait_for(job, " gap ")
        self.signal_step(number)
        self.assertEqual(job.wait(timeout=PATIENCE_S), 42, self.said())
        saved = [int(step) for step in re.findall(r"preempted after step (\d+), which is saved", self.said())]
        self.assertEqual(len(saved), 2, self.said())  # each launcher has come to its end
        self.assertEqual(saved[0], saved[1])
        self.assertEqual(self.requeued(), ["requeue 4711"])

        self.hurry.touch()
        again = self.submit()
        self.assertEqual(again.wait(timeout=PATIENCE_S), 0, self.said())
        self.assertIn(f"the job begins with the checkpoint of step {saved[0]},", self.said())
        self.assertEqual(self.requeued(), ["requeue 4711"])

    def test_the_signal_before_the_time_limit(self):
        self.stop(signal.SIGUSR1)

    def test_a_job_with_a_higher_priority(self):
        self.stop(signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
