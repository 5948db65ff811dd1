#!/usr/bin/env python3
"""A job of which all workers are killed goes on by itself from its newest whole checkpoint."""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

STEPPER = os.path.join(PROGRAMS, "stepper")
COUNTER = os.path.join(os.path.dirname(MUSTER), "counter")
DIGITS = os.path.join(os.path.dirname(MUSTER), "digits")
STEPS, COUNT = "60", "300000"


def children(pid):
    return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_stepper(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(STEPPER.encode())
    except OSError:
        return False


def steppers(pid):
    """Workers stand below the launcher, perhaps with a process between."""
    found = []
    for child in children(pid):
        found += [child] if is_stepper(child) else []
        found += steppers(child)
    return found


class NearTheEnd(unittest.TestCase):
    def test_members_that_are_done_wait_for_no_joiner_of_a_later_step(self):
        """Workers come back about when the others close: nobody waits for a step that no member commits any more, nor for the shard of
        a member that names the checkpoint by another view."""
        data = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "examples", "data", "digits.csv")
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([MUSTER, "run", "-n", "4", "--checkpoint-dir", folder, "--checkpoint-every", "5", "--constant-batch", "8",
                                       "--kill", "2@step=6", "--kill", "0@step=9", "--", DIGITS, "--data", data, "--batch", "64", "--steps", "20"],
                                      env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            for text in ("catch_up_waits", "state is lost", "does not save this step"):
                self.assertNotIn(text, done.stderr)
            self.assertIn("step 20 is saved in ", done.stderr)


class RunCheckpoint(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.checkpoints = os.path.join(self.folder.name, "checkpoints")
        self.hurry = os.path.join(self.folder.name, "hurry")

    def start(self, *options, steps=STEPS, count=COUNT, **variables):
        run = subprocess.Popen([MUSTER, "run", "-n", "3", "--json", "-", *options, "--", STEPPER, steps, count],
                               env=dict(CLEAN, **variables), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(run.kill)
        return run

    def finish(self, run):
        out, errors = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 0, errors)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]), errors

    def finish_quietly(self, run):
        _, errors = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 0, errors)

    def show(self, *words):
        return subprocess.run([MUSTER, "checkpoint", *words], env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)

    def check_what_is_there_is_kept(self, exported):
        """A file where the state is exported to, and one where a folder is expected."""
        whole = pathlib.Path(exported).read_bytes()
        pathlib.Path(exported).write_text("kept")
        done = self.show("export", self.checkpoints, exported)
        self.assertEqual((done.returncode, pathlib.Path(exported).read_text()), (4, "kept"), done)
        self.assertIn(f"{exported} is there already; give another name, or --force to replace it", done.stderr)
        for command in ("list", "verify", "show"):
            done = self.show(command, exported)
            self.assertEqual(done.returncode, 3, done)
            self.assertIn(f"{exported} is a file, and must be the folder of the checkpoints (that of --checkpoint-dir)", done.stderr)
        self.assertEqual(self.show("export", self.checkpoints, exported, "--force").returncode, 0)
        self.assertEqual(pathlib.Path(exported).read_bytes(), whole)

    def steps(self):
        names = sorted(os.listdir(self.checkpoints)) if os.path.exists(self.checkpoints) else []
        return [int(found[1]) for name in names if (found := re.fullmatch(r"checkpoint-(\d+)-[0-9a-f]{16}\.manifest", name))]

    def test_all_are_killed_and_the_end_is_as_without_a_kill(self):
        plain, _ = self.finish(self.start())
        run = self.start("--checkpoint-dir", self.checkpoints, "--checkpoint-every", "5", "--checkpoint-keep", "2", "--max-restarts", "9",
                         STEPPER_HURRY=self.hurry, STEPPER_LINGER_MS="50")
        while not self.steps():  # a step lasts 50 ms at least, so that the job does not end before
            self.assertIsNone(run.poll())
        workers = steppers(run.pid)
        self.assertEqual(len(workers), 3)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        pathlib.Path(self.hurry).touch()

        summary, errors = self.finish(run)

        self.assertEqual(summary["kills"], 3)
        self.assertRegex(errors, r"the job begins with the checkpoint of step \d+, view \d+")
        began = int(re.search(r"begins with the checkpoint of step (\d+)", errors)[1])
        self.assertEqual(began % 5, 0)
        self.assertEqual(len(summary["begun_anew_at"]), 1)
        lost = re.search(r"step (\d+) as last reported, \1 steps? lost unless a checkpoint has them", errors)
        self.assertEqual(int(lost[1]), summary["begun_anew_at"][0])
        self.assertRegex(errors, rf"begins with the checkpoint of step {began}, view \d+: {summary['steps_lost']} steps? lost\n")
        self.assertEqual(summary["steps_lost"], max(summary["begun_anew_at"][0] - began, 0))
        self.assertEqual(set(digests(summary)), set(digests(plain)))
        self.assertLessEqual(len(self.steps()), 2)

    def test_another_number_of_workers_goes_on_in_a_later_run(self):
        plain, _ = self.finish(self.start(steps="80"))
        self.finish(self.start("--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1000"))
        self.assertEqual(self.steps(), [60])  # the last one, which is not due
        run = self.start("-n", "2", "--checkpoint-dir", self.checkpoints, steps="80")
        later, errors = self.finish(run)

        self.assertIn("the job begins with the checkpoint of step 60", errors)
        self.assertEqual(set(digests(later)), set(digests(plain)))
        self.assertEqual(self.steps(), [60, 80])

    def test_the_same_command_again_does_no_step_beyond_the_last(self):
        for _ in range(2):
            done = subprocess.run([MUSTER, "run", "-n", "2", "--checkpoint-dir", self.checkpoints, "--", COUNTER], env=CLEAN, text=True,
                                  capture_output=True, timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stdout), (0, "[worker:0] total 2000\n"), done.stderr)
            self.assertIn(f"step 1000 is saved in {self.checkpoints}", done.stderr)
            self.assertIn("done: 1000 steps", done.stderr)
            self.assertEqual(self.steps(), [1000])

    def test_the_command_lists_shows_and_verifies(self):
        self.finish(self.start("--checkpoint-dir", self.checkpoints, "--checkpoint-every", "20", "--checkpoint-keep", "0"))
        listed = [json.loads(line) for line in self.show("list", self.checkpoints, "--json").stdout.splitlines()]
        self.assertEqual([each["step"] for each in listed], self.steps()[::-1])
        self.assertTrue(all(each["is_complete"] and each["files"] == 4 for each in listed))
        self.assertIn("complete", self.show("list", self.checkpoints).stdout)

        newest = json.loads(self.show("show", self.checkpoints, "--json").stdout)
        self.assertEqual(newest["step"], listed[0]["step"])
        self.assertEqual(newest["tensors"], [{"name": "total", "dtype": "f64", "count": int(COUNT), "offset": 0}])
        self.assertEqual(sum(each["bytes"] for each in newest["shards"]), 8 * int(COUNT))
        self.assertIn("tensor f64", self.show("show", self.checkpoints, "--step", str(newest["step"])).stdout)
        self.assertEqual(self.show("show", self.checkpoints, "--step", "7").returncode, 3)

        exported = os.path.join(self.folder.name, "state.safetensors")
        self.assertEqual(self.show("export", self.checkpoints, exported).returncode, 0)
        data = pathlib.Path(exported).read_bytes()
        length = int.from_bytes(data[:8], "little")
        self.assertEqual(length % 8, 0)
        self.assertEqual(json.loads(data[8:8 + length]), {
            "__metadata__": {"step": str(newest["step"])},
            "total": {"dtype": "F64", "shape": [int(COUNT)], "data_offsets": [0, 8 * int(COUNT)]}})
        self.assertEqual(data[8 + length:], struct.pack("<d", newest["step"]) * int(COUNT))  # a step adds 1
        self.check_what_is_there_is_kept(exported)

        self.assertEqual(self.show("verify", self.checkpoints).returncode, 0)
        shard = os.path.join(self.checkpoints, newest["name"] + ".shard-00001-of-00003")
        away = os.path.join(self.folder.name, "away")
        os.rename(shard, away)
        listed = [json.loads(line) for line in self.show("list", self.checkpoints, "--json").stdout.splitlines()]
        self.assertEqual([each["is_complete"] for each in listed], [False] + [True] * (len(listed) - 1))
        self.assertIn("shards missing", self.show("list", self.checkpoints).stdout)
        os.rename(away, shard)
        with open(shard, "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))
        done = self.show("verify", self.checkpoints, "--step", str(newest["step"]), "--json")
        self.assertEqual(done.returncode, 3)
        self.assertFalse(json.loads(done.stdout)["is_whole"])
        self.assertEqual(self.show("export", self.checkpoints, exported + "2").returncode, 3)
        self.assertFalse(os.path.exists(exported + "2"))
        self.assertIn("shard-00001-of-00003 is damaged in chunk 0 of 1", json.loads(done.stdout)["error"])
        os.remove(os.path.join(self.checkpoints, newest["name"] + ".manifest"))
        self.assertIn("half-written", self.show("verify", self.checkpoints).stdout)
        self.assertIn("half-written", self.show("list", self.checkpoints).stdout)
        self.assertEqual(self.show("list").returncode, 2)
        self.assertEqual(self.show("gather", self.checkpoints).returncode, 2)

    def test_what_a_running_job_writes_or_deletes_is_not_damaged(self):
        hold = os.path.join(self.folder.name, "hold")
        run = self.start("-n", "1", "--job", "day", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1", "--quiet", steps="2",
                         STEPPER_HOLD=hold)
        while not self.steps():
            self.assertIsNone(run.poll())
        written = os.path.join(self.checkpoints, "checkpoint-000000000007-00000000000000aa.shard-00000-of-00002")
        deleted = os.path.join(self.checkpoints, "checkpoint-000000000006-00000000000000aa.manifest")
        pathlib.Path(written).touch()
        os.symlink("nowhere", deleted)  # found by its name, and not there when it is read

        done = self.show("verify", self.checkpoints, "--json")
        self.assertEqual(done.returncode, 0, done)
        found = {each["step"]: each for each in map(json.loads, done.stdout.splitlines())}
        self.assertEqual([found[step]["is_whole"] for step in (7, 6, 1)], [None, None, True])
        self.assertEqual(found[7]["error"], "half-written: job day, which runs, writes it, or deletes it later")
        self.assertEqual(found[6]["error"], "job day, which runs, has deleted it meanwhile")
        self.assertEqual(self.show("verify", self.checkpoints, "--step", "7").returncode, 3)
        pathlib.Path(hold).touch()
        self.finish_quietly(run)
        done = self.show("verify", self.checkpoints)
        self.assertEqual(done.returncode, 3)
        self.assertIn("half-written: it has no manifest", done.stdout)
        self.assertIn("6-00000000000000aa.manifest: not found", done.stdout)

    def test_a_directory_that_cannot_be_used_is_refused_before_a_worker_starts(self):
        pathlib.Path(self.checkpoints).touch()
        for folder, why in ((self.checkpoints, "Not a directory"), ("/proc/nothing", "No such file or directory")):
            done = subprocess.run([MUSTER, "run", "--checkpoint-dir", folder, "--", "echo", "started"], env=CLEAN, text=True,
                                  capture_output=True, timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn(f"cannot make the directory {folder}: {why} (choose another --checkpoint-dir)", done.stderr)

    def test_a_program_that_does_not_use_muster_is_told_that_nothing_is_saved(self):
        text = f"nothing is saved in {self.checkpoints}: no worker has opened a strategy"
        for words, is_told in ((["--checkpoint-dir", self.checkpoints], True), ([], False)):
            done = subprocess.run([MUSTER, "run", "-n", "2", *words, "--", "true"], env=CLEAN, text=True, capture_output=True,
                                  timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(text in done.stderr, is_told, done.stderr)

    def test_the_end_says_whether_the_last_step_is_saved(self):
        told = self.finish(self.start("--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1h", steps="5"))[1]
        self.assertIn(f"step 5 is saved in {self.checkpoints}", told)
        for name in os.listdir(self.checkpoints):
            os.remove(os.path.join(self.checkpoints, name))

    def test_a_run_that_is_stopped_says_from_where_it_goes_on(self):
        run = self.start("--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1", "--preemption-grace", "0", steps="100000", count="100",
                         STEPPER_HURRY=self.hurry, STEPPER_LINGER_MS="50")
        while not self.steps():
            self.assertIsNone(run.poll())
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, errors)
        self.assertRegex(errors, rf"step \d+ is (saved in|not saved: the newest checkpoint in) {self.checkpoints}")

    def test_a_relative_directory_is_the_same_for_workers_that_go_elsewhere(self):
        words = ["bash", "-c", f"cd /; exec {STEPPER} 5 1000"]
        for options, variables in ((["--checkpoint-dir", "checkpoints"], {}), ([], {"MUSTER_CHECKPOINT_DIR": "checkpoints"})):
            run = subprocess.run([MUSTER, "run", "-n", "2", *options, "--", *words], cwd=self.folder.name, env=dict(CLEAN, **variables),
                                 text=True, capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(f"step 5 is saved in {os.path.realpath(self.checkpoints)}", run.stderr)
            self.assertEqual(self.steps(), [5])
            shutil.rmtree(self.checkpoints)

    def test_a_job_whose_last_step_is_in_no_checkpoint_ends_with_1(self):
        self.finish(self.start("--checkpoint-dir", self.checkpoints, steps="3"))
        words = ["bash", "-c", f"{STEPPER} 5 {COUNT} && rm {self.checkpoints}/checkpoint-*5-*"]
        run = subprocess.run([MUSTER, "run", "--checkpoint-dir", self.checkpoints, "--json", "-", "--", *words], env=CLEAN, text=True,
                             capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("step 5 is not saved: the newest checkpoint", run.stderr)
        summary = json.loads([line for line in run.stdout.splitlines() if line.startswith("{")][-1])
        self.assertEqual((summary["exit_code"], summary["not_saved"]["step"]), (1, 5))

    def run_full(self, *options, **variables):
        """On a disk that has no room for the last checkpoint."""
        full = ["bash", "-c", f"ulimit -f 1; trap '' XFSZ; exec {STEPPER} 5 {COUNT}"]
        return subprocess.run([MUSTER, "run", "-n", "2", "--checkpoint-dir", self.checkpoints, *options, "--", *full],
                              env=dict(CLEAN, **variables), text=True, capture_output=True, timeout=PATIENCE_S)

    def check_lost(self, run, remedy):
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("THE LAST CHECKPOINT FAILED, exit code of this run 1", run.stderr)
        self.assertRegex(run.stderr, rf"step       5\n  reason     worker:\d: .*cannot write {self.checkpoints}/.*File too large")
        self.assertIn(remedy, run.stderr)

    def test_a_job_whose_last_checkpoint_fails_ends_with_1_and_trains_nothing_again(self):
        for variables in ({}, {"STEPPER_IGNORES": "1"}):  # the program ends with 1, or with 0
            run = self.run_full("--json", "-", "--quiet", **variables)
            self.check_lost(run, "it begins with step 1")
            summary = json.loads([line for line in run.stdout.splitlines() if line.startswith("{")][-1])
            self.assertEqual((summary["exit_code"], summary["restarts"], summary["steps"]), (1, 0, 5))
            self.assertEqual(summary["not_saved"]["step"], 5)
            self.assertIsNone(summary["first_failure"])
        self.check_lost(self.run_full("--restart", "all"), "it begins with step 1")

    def test_a_file_limit_ends_no_program_and_is_told_with_the_remedy(self):
        """SIGXFSZ is as the program has it, which has no handler."""
        limited = ["bash", "-c", f"ulimit -f 1; exec {STEPPER} 5 {COUNT}"]
        run = subprocess.run([MUSTER, "run", "-n", "2", "--checkpoint-dir", self.checkpoints, "--", *limited], env=CLEAN, text=True,
                             capture_output=True, timeout=PATIENCE_S)
        self.check_lost(run, "File too large; raise the limit of file sizes (ulimit -f)")
        self.assertNotIn("SIGXFSZ", run.stderr)

    def test_a_job_whose_last_checkpoint_failed_goes_on_by_the_same_command(self):
        self.finish(self.start("--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1h", steps="3"))
        self.check_lost(self.run_full(), "it goes on after step 3")

        summary, told = self.finish(self.start("--checkpoint-dir", self.checkpoints, steps="5"))

        self.assertIn("the job begins with the checkpoint of step 3", told)
        self.assertIsNone(summary["not_saved"])
        self.assertEqual(self.steps(), [3, 5])

    def test_a_damaged_newer_checkpoint_does_not_hide_that_the_last_step_is_lost(self):
        for steps in ("3", "9"):
            self.finish(self.start("--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1h", steps=steps))
        shard = next(pathlib.Path(self.checkpoints).glob("checkpoint-*9-*.shard-00000-*"))
        data = bytearray(shard.read_bytes())
        data[5000] ^= 1
        shard.write_bytes(data)

        run = self.run_full("--json", "-")
        self.check_lost(run, "it goes on after step 3")
        self.assertEqual(json.loads(run.stdout.splitlines()[-1])["not_saved"]["step"], 5)
        self.assertIn(f"reads the checkpoint of step 9 in {self.checkpoints}, to see whether it is whole", run.stderr)
        words = ["bash", "-c", f"{STEPPER} 5 {COUNT} && rm {self.checkpoints}/checkpoint-*5-*"]
        run = subprocess.run([MUSTER, "run", "--checkpoint-dir", self.checkpoints, "--", *words], env=CLEAN, text=True, capture_output=True,
                             timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn(f"step 5 is not saved: the newest checkpoint in {self.checkpoints} is of step 3", run.stderr)

    def run_alone(self, *words, **variables):
        return subprocess.run(words, env=dict(CLEAN, MUSTER_CHECKPOINT_DIR=self.checkpoints, MUSTER_CHECKPOINT_KEEP="9", **variables),
                              text=True, capture_output=True, timeout=PATIENCE_S)

    def test_a_program_without_a_launcher_saves_and_goes_on_and_fails_alike(self):
        self.assertEqual(self.run_alone(STEPPER, "3", COUNT).returncode, 0)
        self.assertEqual(self.steps(), [3])
        self.assertEqual(self.run_alone(STEPPER, "5", COUNT).stdout, "total 5\n")
        self.assertEqual(self.steps(), [3, 5])

        full = ("bash", "-c", f"ulimit -f 1; trap '' XFSZ; exec {STEPPER} 7 {COUNT}")
        run = self.run_alone(*full)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("stepper: the checkpoint of step 7 failed; mend the cause and start the job again: cannot write", run.stderr)

        run = self.run_alone(*full, STEPPER_IGNORES="1")  # muster_strategy_close tells the log alone
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, "error last_checkpoint_failed step=7 .*cannot write")

    def test_a_program_without_a_launcher_learns_of_a_bad_folder_at_its_first_begin(self):
        file = os.path.join(self.folder.name, "file")
        pathlib.Path(file).touch()
        for place, why in ((file, f"not a folder, name another one or move that file away: {file}"),
                           (f"{file}/below", f"cannot make the folder (not found, its parent must be there): {file}/below"),
                           (f"{self.folder.name}/not/there", f"its parent must be there): {self.folder.name}/not/there")):
            run = subprocess.run([STEPPER, "3", COUNT], env=dict(CLEAN, MUSTER_CHECKPOINT_DIR=place, MUSTER_CHECKPOINT_EVERY="1h"), text=True,
                                 capture_output=True, timeout=PATIENCE_S)
            self.assertEqual((run.returncode, run.stdout), (1, ""), run.stderr)
            self.assertRegex(run.stderr, "INVALID_ARGUMENT: .* cannot save checkpoints; mend that, or name another directory .MUSTER_CHECKPOINT_DIR.: ")
            self.assertIn(why, run.stderr)

    def check_for_good(self, run, reason):
        """All workers end the same way, and none is started again."""
        out, errors = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 1, errors)
        summary = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
        self.assertEqual(summary["restarts"], 0, errors)
        self.assertRegex(summary["first_failure"]["reason"], reason)
        self.assertRegex(errors, rf"  reason     .*{reason}")
        self.assertNotIn("restart 1 of", errors)

    def test_a_job_that_no_restart_would_mend_ends_at_once_and_says_why(self):
        self.finish(self.start("--checkpoint-dir", self.checkpoints, steps="3"))
        run = self.start("--checkpoint-dir", self.checkpoints, steps="5", count="1000")
        self.check_for_good(run, r"the checkpoint of step 3 in .* does not fit: its tensor total is f64 x 300000, "
                                 r"this program's f64 x 1000; register what it has, or name an empty folder")
        for shard in pathlib.Path(self.checkpoints).glob("*.shard-*"):
            shard.write_bytes(shard.read_bytes()[:5000])
        run = self.start("--checkpoint-dir", self.checkpoints, steps="5")
        self.check_for_good(run, r"no checkpoint is whole: .* is damaged: .*; name an empty folder to begin anew")

    def test_a_job_that_waits_for_a_folder_says_whose_it_is(self):
        hold = os.path.join(self.folder.name, "hold")
        words = ["--checkpoint-dir", self.checkpoints, "--quiet"]
        self.start("-n", "1", "--job", "day", *words, steps="2", STEPPER_HOLD=hold)
        while not list(pathlib.Path(self.folder.name).glob("checkpoints/used-by-day-*")):
            pass
        second = self.start("-n", "1", "--job", "night", *words, steps="2")

        line = next((line for line in second.stderr if "begin_waits" in line), "")

        self.assertIn(f'waits_for="the checkpoint directory {self.checkpoints}, which is in use by another job, day"', line)

    def test_options_that_make_no_sense_are_refused(self):
        for words, text in ((["--checkpoint-every", "5"], "--checkpoint-every needs --checkpoint-dir"),
                            (["--checkpoint-dir", "/tmp", "--checkpoint-every", "often"], "must be a number of steps (100) or a time"),
                            (["--checkpoint-dir", "/tmp", "--checkpoint-keep", "-1"], "--checkpoint-keep")):
            done = subprocess.run([MUSTER, "run", *words, "--", "true"], env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(text, done.stderr)


def digests(summary):
    return summary["digests"]


if __name__ == "__main__":
    unittest.main()
