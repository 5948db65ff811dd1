#!/usr/bin/env python3
"""`muster run --resumable DIR`: workers outlive a launcher that is killed, and `--resume DIR` takes them over."""
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
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

NEW, RUNNING = 0, 2  # states of a task in the table
REGROUPING, LEAVING, STOPPING = 1, 2, 3  # of the run
TRAINING_S = 2 * PATIENCE_S  # 60,000 steps, each of which takes 2 ms beside others that do not sleep
STEPPER = os.path.join(PROGRAMS, "stepper")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def lines_until(pipe, count, pattern):
    found = []
    while len(found) < count:
        line = pipe.readline()
        assert line, found
        found += re.findall(pattern, line)
    return found


class Case(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.where = where.name
        self.dir = os.path.join(self.where, "run")
        self.json = os.path.join(self.where, "summary.json")
        self.addCleanup(self.end_all)

    def path(self, name):
        return os.path.join(self.where, name)

    def touch(self, name):
        with open(self.path(name), "w", encoding="utf-8"):
            pass

    def end_all(self):
        """Whatever a test that failed has left: keepers lead the groups of their workers."""
        lives = os.path.join(self.dir, "lives")
        for name in os.listdir(lives) if os.path.isdir(lives) else []:
            if name.endswith(".keeper"):
                with open(os.path.join(lives, name), encoding="utf-8") as file:
                    keeper, worker = map(int, file.read().split())
                if is_alive(worker) and os.getpgid(worker) == keeper:
                    os.killpg(keeper, signal.SIGKILL)

    def ended(self):
        """How many workers' ends are on record: one may be dead before its keeper has written it down."""
        return sum(name.endswith(".end") for name in os.listdir(os.path.join(self.dir, "lives")))

    def start(self, *args):
        child = subprocess.Popen([MUSTER, "run", *args], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=dict(CLEAN, STEPPER=STEPPER, WHERE=self.where))
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def first(self, *args, script):
        return self.start("--resumable", self.dir, "--json", self.json, *args, "--", "sh", "-c", script)

    def table(self):
        with open(os.path.join(self.dir, "table.json"), encoding="utf-8") as file:
            return json.load(file)

    def write_table(self, text):
        with open(os.path.join(self.dir, "table.json"), "w", encoding="utf-8") as file:
            file.write(text)

    def resume(self):
        return self.start("--resume", self.dir)

    def kill(self, launcher):
        launcher.kill()
        return launcher.communicate(timeout=PATIENCE_S)  # ends: nobody else holds its output

    def end(self, launcher, code=0):
        out, err = launcher.communicate(timeout=TRAINING_S)
        self.assertEqual(launcher.returncode, code, err)
        with open(self.json, encoding="utf-8") as file:
            return out, err, json.load(file)


class TakenOver(Case):
    def test_training_goes_on_without_its_launcher_and_with_the_next(self):
        launcher = self.first("-n", "3", script="echo pid $$; exec $STEPPER 60000")
        pids = [int(pid) for pid in lines_until(launcher.stdout, 3, r"pid (\d+)")]
        lines_until(launcher.stderr, 1, "view 1 with 3 members")
        self.kill(launcher)
        self.assertTrue(all(map(is_alive, pids)))
        successor = self.resume()
        out, err, result = self.end(successor)
        self.assertEqual(sorted(int(pid) for pid in re.findall(r"\(pid (\d+)\) taken over", err)), sorted(pids))
        self.assertEqual(out.count("total 60000"), 3)
        self.assertEqual((result["steps"], result["restarts"], result["kills"], result["identical"], len(result["digests"])),
                         (60000, 0, 0, True, 3))
        self.assertFalse(any(map(is_alive, pids)))
        self.assertEqual(os.listdir(os.path.join(self.dir, "lives")), [])
        self.assertFalse(os.path.exists(os.path.join(self.dir, "environment")))

    def test_a_checkpoint_folder_that_is_away_for_a_moment_is_waited_for(self):
        folder, away = self.path("checkpoints"), self.path("away")
        launcher = self.first("-n", "1", "--checkpoint-dir", folder, script="echo started; while [ ! -e $WHERE/go ]; do sleep 0.02; done")
        lines_until(launcher.stdout, 1, "started")
        self.kill(launcher)
        os.rename(folder, away)
        successor = self.resume()
        lines_until(successor.stderr, 1, f"waits up to 60 s for the directory {folder} of --checkpoint-dir: No such file or directory")
        os.rename(away, folder)
        self.touch("go")
        _, _, result = self.end(successor)
        self.assertEqual(result["tasks"][0]["exit_code"], 0)

    def test_a_worker_killed_meanwhile_is_started_again_and_catches_up(self):
        launcher = self.first("-n", "3", script="echo pid $RANK $$; exec $STEPPER 60000")
        pids = dict(lines_until(launcher.stdout, 3, r"pid (\d) (\d+)"))
        lines_until(launcher.stderr, 1, "view 1 with 3 members")
        self.kill(launcher)
        os.kill(int(pids["1"]), signal.SIGKILL)
        wait_until(lambda: self.ended() == 1)
        _, err, result = self.end(self.resume())
        self.assertEqual(err.count("taken over"), 2, err)
        self.assertEqual((result["restarts"], result["kills"], result["identical"]), (1, 1, True), err)
        self.assertEqual(result["rejoins"] + err.count("came back too late"), 1, err)  # the others may be faster
        self.assertIn("worker:1 killed by SIGKILL", err)

    def test_what_ends_meanwhile_is_not_lost(self):
        launcher = self.first("-n", "3", "--max-restarts", "0", script=(
            "echo started; while [ ! -e $WHERE/go ]; do sleep 0.02; done; i=0; while [ $i -lt 2000 ]; do echo line $i; "
            "i=$((i+1)); done; echo '{\"report\":\"result\",\"steps\":7,\"digest\":\"abcd\",\"values\":{\"accuracy\":0.5}}' >&3; "
            "exit $((RANK == 2 ? 7 : 0))"))
        lines_until(launcher.stdout, 3, "started")
        self.kill(launcher)
        self.touch("go")
        wait_until(lambda: self.ended() == 3)
        out, err, result = self.end(self.resume(), 7)
        self.assertEqual(len(re.findall(r"(?m)^\[worker:\d\] line \d+$", out)), 6000)
        self.assertEqual((result["steps"], result["accuracy"], result["digests"]), (7, 0.5, ["abcd"] * 3))
        self.assertEqual([task["exit_code"] for task in result["tasks"]], [0, 0, 7])
        self.assertIn("first failure", err)

    def test_a_successor_knows_where_the_program_saves(self):
        launcher = self.first("-n", "1", script=(
            "echo '{\"report\":\"checkpoint_dir\",\"folder\":\"/nonexistent\"}' >&3; while [ ! -e $WHERE/go ]; do sleep 0.02; done; "
            "echo '{\"report\":\"result\",\"steps\":7,\"digest\":\"abcd\"}' >&3"))
        wait_until(lambda: os.path.exists(os.path.join(self.dir, "table.json")) and self.table()["program_checkpoint_dir"] == "/nonexistent")
        self.kill(launcher)
        self.touch("go")
        _, err, result = self.end(self.resume(), 1)
        self.assertIn("step 7 is not saved: /nonexistent has no checkpoint", err)
        self.assertEqual(result["not_saved"]["step"], 7)

    def test_a_worker_that_the_others_have_refused_is_not_started_again(self):
        launcher = self.first("-n", "2", script=(
            "[ $RANK = 0 ] || echo '{\"report\":\"refused\",\"why\":\"its shape differs\"}' >&3; "
            "while [ ! -e $WHERE/go ]; do sleep 0.02; done; exit $RANK"))
        wait_until(lambda: os.path.exists(os.path.join(self.dir, "table.json")) and self.table()["tasks"][1]["report_taken"] > 0)
        self.kill(launcher)
        self.touch("go")
        _, err, result = self.end(self.resume(), 1)
        self.assertEqual(result["restarts"], 0)
        self.assertIn("reason     its shape differs", err)

    def test_a_reader_that_waits_loses_nothing(self):
        launcher = self.first("-n", "2", script="i=0; while [ $i -lt 3000 ]; do printf '%02000d\\n' $i; i=$((i+1)); done; : > $WHERE/$RANK")
        wait_until(lambda: os.path.exists(self.path("0")) and os.path.exists(self.path("1")))
        wait_until(lambda: os.listdir(os.path.join(self.dir, "lives")) == [])  # all collected, most of it not yet read
        out, _, _ = self.end(launcher)
        self.assertEqual(len(re.findall(r"(?m)^\[worker:\d\] \d{2000}$", out)), 6000)

    def test_a_program_that_cannot_run_leaves_nothing(self):
        launcher = self.start("--resumable", self.dir, "--json", self.json, "--", "/nowhere/prog")
        self.end(launcher, 127)
        self.assertEqual(os.listdir(os.path.join(self.dir, "lives")), [])

    def test_a_launcher_killed_again_and_again_counts_each_death_once(self):
        launcher = self.first("-n", "3", "--max-restarts", "9", "--log-dir", self.path("logs"), script=(
            "echo life $MUSTER_RESTART_COUNT; [ $MUSTER_RESTART_COUNT -ge 4 ] && exit 0; "
            "while [ ! -e $WHERE/$MUSTER_RESTART_COUNT ]; do sleep 0.01; done; kill -9 $$"))
        for life in range(4):
            lines_until(launcher.stdout, 3, f"life {life}")
            if life % 2 == 0:
                self.kill(launcher)
                self.touch(str(life))
            else:
                self.touch(str(life))
                self.kill(launcher)
            launcher = self.resume()
        _, err, result = self.end(launcher)
        self.assertEqual((result["restarts"], result["kills"]), (12, 12), err)
        for rank in range(3):
            for life in range(5):
                with open(self.path(f"logs/attempt_{life}/{rank}/stdout.log"), encoding="utf-8") as file:
                    self.assertIn(f"life {life}\n", file.read())

    def test_a_gang_goes_on_as_a_gang(self):
        launcher = self.first("-n", "2", "--restart", "all", script=(
            "echo gang $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
            "[ $RANK = 1 ] || exec sleep 600; while [ ! -e $WHERE/go ]; do sleep 0.02; done; exit 4"))
        lines_until(launcher.stdout, 2, "gang 0")
        self.kill(launcher)
        self.touch("go")
        out, _, result = self.end(self.resume())
        self.assertEqual((out.count("gang 1"), result["restarts"], result["survivors_restarted"]), (2, 1, 1))

    def test_the_command_goes_on_where_and_as_it_was_started(self):
        os.mkdir(self.path("here"))
        launcher = subprocess.Popen(
            [MUSTER, "run", "--resumable", "../run", "-n", "1", "--json", "../summary.json", "--", "sh", "-c",
             "echo $COLOUR in $PWD; while [ ! -e ../go ]; do sleep 0.02; done; [ $MUSTER_RESTART_COUNT = 1 ] || kill -9 $$"],
            cwd=self.path("here"), env=dict(CLEAN, COLOUR="green"), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(launcher.communicate)
        lines_until(launcher.stdout, 1, "green in .*/here")
        self.kill(launcher)
        self.touch("go")
        out, _, _ = self.end(self.resume())
        self.assertRegex(out, "green in .*/here")


    def test_a_worker_started_last_keeps_its_incarnation(self):
        """The table before its start says that it is new: its launcher is killed before the table is written again."""
        launcher = self.first("-n", "2", script="echo is $MUSTER_INCARNATION; while [ ! -e $WHERE/go ]; do sleep 0.02; done")
        incarnations = lines_until(launcher.stdout, 2, r"is ([0-9a-f]{32})")
        self.kill(launcher)
        table = self.table()
        for task in table["tasks"]:
            task["state"] = NEW
        self.write_table(json.dumps(table))
        successor = self.resume()
        lines_until(successor.stderr, 2, "taken over")
        wait_until(lambda: all(task["state"] != NEW for task in self.table()["tasks"]))
        self.assertEqual(sorted(task["incarnation"] for task in self.table()["tasks"]), sorted(incarnations))
        self.touch("go")
        self.end(successor)

    def test_workers_that_the_table_does_not_know_are_ended(self):
        """Their launcher could not write the table, and was killed: the table is as it was before they were started."""
        launcher = self.first("-n", "2", script="echo is $$; setsid sleep 600 & echo has $!; while [ ! -e $WHERE/go ]; do sleep 0.02; done; kill $!")
        pids = [int(pid) for pid in lines_until(launcher.stdout, 4, r"(?:is|has) (\d+)")]
        self.kill(launcher)
        table = self.table()
        for task in table["tasks"]:
            task.update(state=NEW, lives=0, collected=0)
        self.write_table(json.dumps(table))
        successor = self.resume()
        ended = lines_until(successor.stderr, 2, r"\(pid (\d+)\) is ended, and not taken over: it was started while the table")
        self.assertTrue({int(pid) for pid in ended} <= set(pids))
        wait_until(lambda: not any(map(is_alive, pids)))
        self.touch("go")
        _, _, result = self.end(successor)
        self.assertEqual((result["restarts"], result["kills"]), (0, 0))


class Ended(Case):
    def starts_no_task(self, state):
        launcher = self.first("-n", "2", script=": > $WHERE/started.$RANK; echo up $$; exec sleep 600")
        pids = lines_until(launcher.stdout, 2, r"up (\d+)")
        self.kill(launcher)
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: self.ended() == 2)
        for name in os.listdir(os.path.join(self.dir, "lives")):
            os.unlink(os.path.join(self.dir, "lives", name))
        for rank in range(2):
            os.unlink(self.path(f"started.{rank}"))
        table = self.table()
        table.update(state=state, stop_signal=signal.SIGTERM)
        for task in table["tasks"]:
            task.update(state=NEW, lives=0, collected=0)
        self.write_table(json.dumps(table))
        _, err, _ = self.end(self.resume(), 128 + signal.SIGTERM)
        self.assertEqual([name for name in os.listdir(self.where) if name.startswith("started")], [], err)
        self.assertIn("had begun to end the job", err)

    def test_a_run_that_was_being_stopped_starts_no_task(self):
        self.starts_no_task(STOPPING)

    def test_a_run_that_was_preempted_starts_no_task(self):
        self.starts_no_task(LEAVING)

    def test_a_damaged_table_is_refused(self):
        launcher = self.first("-n", "2", script="echo up; while [ ! -e $WHERE/go ]; do sleep 0.02; done")
        lines_until(launcher.stdout, 2, "up")
        self.kill(launcher)
        whole = self.table()

        def damaged(task=(), **run):
            table = json.loads(json.dumps(whole))
            table["tasks"][1].update(task)
            table.update(run)
            return json.dumps(table)

        text = json.dumps(whole)
        for what, bad in (
            ("empty", ""), ("cut", text[:len(text) // 2]), ("not an object", "[]"), ("of another version", damaged(version=1)),
            ("a state that no run has", damaged(state=7)), ("a gang restart without a gang", damaged(state=REGROUPING)),
            ("without tasks", damaged(tasks=[])), ("a failed task that is not there", damaged(failed=2)),
            ("a state that no task has", damaged({"state": -1})), ("a task without incarnation", damaged({"incarnation": "0" * 32})),
            ("a running task without a life", damaged({"state": RUNNING, "lives": 0, "collected": 0})),
            ("a running task whose life is collected", damaged({"state": RUNNING, "lives": 1, "collected": 1})),
            ("more lives collected than lived", damaged({"lives": 1, "collected": 2})),
            ("two lives at once", damaged({"lives": 2, "collected": 0})), ("output read backwards", damaged({"out_taken": -1})),
        ):
            with self.subTest(what):
                self.write_table(bad)
                done = self.resume()
                _, err = done.communicate(timeout=PATIENCE_S)
                self.assertEqual(done.returncode, 3, err)
                self.assertIn("got a table.json that is damaged or of another version; end its workers", err)
        self.write_table(text)  # the workers have gone on
        self.touch("go")
        self.end(self.resume())

    def test_an_orderly_end_ends_the_workers(self):
        launcher = self.first("-n", "2", script="sleep 600 & echo pid $$ $!; wait")
        pids = [int(pid) for pair in lines_until(launcher.stdout, 2, r"pid (\d+) (\d+)") for pid in pair]
        self.kill(launcher)
        self.assertTrue(all(map(is_alive, pids)))
        successor = self.resume()
        lines_until(successor.stderr, 2, "taken over")
        successor.terminate()
        self.end(successor, 143)
        wait_until(lambda: not any(map(is_alive, pids)))

    def on_a_small_disk(self, disk, *words):
        """In a mount namespace of its own, where the folder is a disk of 256 KiB."""
        return subprocess.run(["unshare", "--mount", "bash", "-c", 'mount -t tmpfs -o size=256k none "$0" && exec "$@"', disk, *words],
                              env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)

    def test_a_full_disk_does_not_change_how_a_worker_has_ended(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if why := self.on_a_small_disk(disk, "true").stderr:
            self.skipTest(f"nothing can be mounted here: {why}")
        for code in (0, 7):
            fill = ["sh", "-c", f"head -c 1000000 /dev/zero > {disk}/filled 2> /dev/null; exit {code}"]
            done = self.on_a_small_disk(disk, MUSTER, "run", "-n", "1", "--resumable", f"{disk}/run", "--max-restarts", "0", "--", *fill)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stderr.count(f"the table of this run cannot be written to {disk}/run/table.json: "), 1, done.stderr)
        self.assertIn("exited with code 7", done.stderr)

    def test_what_cannot_be_resumed_is_refused(self):
        launcher = self.first("-n", "1", script="echo started; while [ ! -e $WHERE/go ]; do sleep 0.02; done")
        lines_until(launcher.stdout, 1, "started")
        empty = self.path("empty")
        os.mkdir(empty)
        for args, code, text in (
            (["--resume", self.dir], 4, "another 'muster run' leads this run"),
            (["--resumable", self.dir, "--", "true"], 4, "another 'muster run' leads this run"),
            (["--resume", empty], 3, "without table.json"), (["--resume", self.path("nowhere")], 3, "No such file"),
            (["--resume", self.dir, "-n", "2"], 2, "must stand alone"), (["--resume", self.dir, "--", "true"], 2, "must stand alone"),
            (["--resumable", "/proc/nothing", "--", "true"], 5, "/proc/nothing"),
        ):
            done = self.start(*args)
            _, err = done.communicate(timeout=PATIENCE_S)
            self.assertEqual(done.returncode, code, (args, err))
            self.assertIn(text, err)
        self.kill(launcher)
        done = self.first("-n", "1", script="true")
        self.assertIn("--resume", done.communicate(timeout=PATIENCE_S)[1])
        self.assertEqual(done.returncode, 2)
        self.touch("go")
        self.end(self.resume())
        done = self.resume()
        self.assertIn("this one has ended, with exit code 0", done.communicate(timeout=PATIENCE_S)[1])
        self.assertEqual(done.returncode, 3)
        self.end(self.first("-n", "1", script="exit 0"))  # the directory is free again


if __name__ == "__main__":
    unittest.main()
