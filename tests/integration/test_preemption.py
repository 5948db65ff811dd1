#!/usr/bin/env python3
"""A job that is preempted stops behind one step on all members, saves its state, and goes on from there when it is started again."""
# Entries of ctest: Signals Faults Launchers Alone Platforms Google
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS
from watched_job import registry

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
    """muster run, whose output is kept in a file: it can be looked at while it runs. Steppers tell their steps."""

    def __init__(self, case, words, program, **variables):
        self.case = case
        self.errors = tempfile.TemporaryFile("w+")
        self.json = os.path.join(case.folder.name, f"summary.{len(case.launchers)}.json")
        case.launchers.append(self)
        self.child = subprocess.Popen([MUSTER, "run", "--json", self.json, *words, "--", *program], cwd=SOURCE,
                                      env=dict(CLEAN, STEPPER_GAPS="1", **variables), stdout=self.errors, stderr=self.errors)
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

    def start_slowly(self, *words, program=(STEPPER, STEPS, COUNT), **variables):
        """A step takes 50 ms at least until the file is there, so that the job does not end before."""
        return self.start(*words, program=program, STEPPER_HURRY=self.hurry, STEPPER_LINGER_MS="50", **variables)

    def replace(self, run, place):
        """The launcher is killed, and has a successor."""
        run.child.kill()
        run.child.wait()
        run.child = subprocess.Popen([MUSTER, "run", "--resume", place], env=CLEAN, cwd=SOURCE, stdout=run.errors, stderr=run.errors)
        self.addCleanup(run.child.wait)
        self.addCleanup(run.child.kill)

    def saved_steps(self):
        names = sorted(os.listdir(self.checkpoints)) if os.path.exists(self.checkpoints) else []
        return [int(found[1]) for name in names if (found := re.fullmatch(r"checkpoint-(\d+)-[0-9a-f]{16}\.manifest", name))]

    def files(self):
        return os.listdir(self.checkpoints) if os.path.exists(self.checkpoints) else []

    def wait_for_step(self, run):
        run.wait_for(lambda: re.search(r" gap \d+ ", run.said()), "a step")

    def stopped(self, run, tasks=None, killed=0):
        """The step behind which all have stopped; it is saved."""
        summary = run.end(PREEMPTED)
        step = summary["preempted"]["step"]
        self.assertEqual(summary["preempted"], {"step": step, "saved": True})
        self.assertEqual(self.saved_steps()[-1], step)
        codes = [task["exit_code"] for task in summary["tasks"]]
        self.assertEqual(len(codes) - codes.count(PREEMPTED), killed, codes)
        self.assertEqual(tasks or len(codes), len(codes))
        self.assertIn(f"preempted after step {step}, which is saved in {self.checkpoints}", run.said())
        if not killed:
            self.assertNotIn(" left at step", run.said())  # all members leave, so the log does not name each of them
        return step

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
        step = self.stopped(run)

        self.assertLess(step, int(STEPS))
        self.assertEqual(run.said().count(f"stopped after step {step}, which is saved in {self.checkpoints}"), 2)
        self.goes_on(step, *words)

    def test_digits_has_the_weights_of_an_undisturbed_run(self):
        words, program = ("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "5"), (DIGITS, "--steps", "120")
        plain = self.start("-n", "2", program=program).end(0)
        run = self.start(*words, program=program)
        run.wait_for(self.saved_steps, "a checkpoint")
        run.signal(signal.SIGTERM)
        step = self.stopped(run)
        again = self.start(*words, program=program)

        self.assertEqual(again.end(0)["digests"], plain["digests"])
        self.assertIn(f"the job begins with the checkpoint of step {step},", again.said())

    def test_sigusr1_is_a_notice(self):
        words = ("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "3")
        run = self.start_slowly(*words)
        self.wait_for_step(run)
        run.signal(signal.SIGUSR1)
        step = self.stopped(run)

        self.assertIn("SIGUSR1: the members stop after the same step", run.said())
        self.goes_on(step, *words)

    def start_late(self, *words):
        """Workers that become members of a job when the file is there."""
        go = os.path.join(self.folder.name, "go")
        late = ("import os, signal, sys\n"
                "signal.signal(signal.SIGUSR1, lambda *_: print('told', flush=True))\n"
                "print('ready', flush=True)\n"
                f"while not os.path.exists({go!r}): pass\n"
                "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
                "os.execv(sys.argv[1], sys.argv[1:])")
        run = self.start_slowly("-n", "2", "--checkpoint-dir", self.checkpoints, *words,
                                program=(sys.executable, "-c", late, STEPPER, "1000000", COUNT))
        run.wait_for(lambda: run.said().count("ready") == 2, "the workers")
        run.signal(signal.SIGUSR1)
        run.wait_for(lambda: run.said().count("told") == 2, "the signal")
        self.assertIn("SIGUSR1: no worker is a member of a job", run.said())
        return run, pathlib.Path(go)

    def test_sigusr1_before_the_job_has_begun_is_passed_on_and_stops_the_job_that_begins(self):
        run, go = self.start_late()
        go.touch()
        preempted = run.end(PREEMPTED)["preempted"]
        self.assertEqual(preempted["saved"], preempted["step"] > 0)  # the notice may be there before the first step

    def test_a_successor_of_the_launcher_stops_the_job_that_begins(self):
        place = os.path.join(self.folder.name, "run")
        run, go = self.start_late("--resumable", place)
        self.replace(run, place)
        run.wait_for(lambda: run.said().count("taken over") == 2, "the successor")
        go.touch()
        self.assertIsNotNone(run.end(PREEMPTED)["preempted"])

    def test_a_program_without_a_checkpoint_directory_is_told_that_nothing_is_saved(self):
        run = self.start_slowly("-n", "2", "--preemption-grace", "60")
        self.wait_for_step(run)
        run.signal(signal.SIGTERM)
        summary = run.end(PREEMPTED)

        self.assertFalse(summary["preempted"]["saved"])
        self.assertIn("nothing is saved: no checkpoint directory is set", run.said())

    def test_without_the_time_for_it_sigterm_ends_the_workers_at_once(self):
        for words in ((), ("--checkpoint-dir", self.checkpoints, "--preemption-grace", "0")):
            run = self.start_slowly("-n", "2", *words)
            run.wait_for(lambda: "view 1 with 2 members" in run.said(), "the first view")
            run.signal(signal.SIGTERM)
            summary = run.end(128 + signal.SIGTERM)
            self.assertIsNone(summary["preempted"])
            self.assertEqual([task["exit_code"] for task in summary["tasks"]], [128 + signal.SIGTERM] * 2)

    def start_stuck(self, *words):
        """The workers begin no further step."""
        run = self.start("-n", "2", "--checkpoint-dir", self.checkpoints, *words, program=(STEPPER, "1", COUNT),
                         STEPPER_HOLD=os.path.join(self.folder.name, "never"))
        run.wait_for(lambda: run.said().count("total 1") == 2, "the last step")
        return run

    def test_the_workers_are_ended_when_the_time_is_over(self):
        run = self.start_stuck("--preemption-grace", "300ms")
        run.signal(signal.SIGTERM)
        summary = run.end(128 + signal.SIGTERM)

        self.assertIsNone(summary["preempted"])
        self.assertRegex(run.said(), r"have not stopped within 0.3 s \(--preemption-grace\); not stopped: worker:0 \(\S+, after step 1\), worker:1 \(")
        self.assertEqual([task["exit_code"] for task in summary["tasks"]], [128 + signal.SIGTERM] * 2)

    def test_who_is_waited_for_is_told_with_the_time_that_is_left(self):
        run = self.start_slowly("-n", "3", "--checkpoint-dir", self.checkpoints, "--preemption-grace", "60")
        self.wait_for_step(run)
        held = workers(run.child.pid)[1]
        os.kill(held, signal.SIGSTOP)
        run.signal(signal.SIGTERM)
        run.wait_for(lambda: "the members stop, and wait for" in run.said(), "the wait")
        os.kill(held, signal.SIGCONT)
        self.stopped(run)
        self.assertRegex(run.said(), r"the members stop, and wait for worker:1 \([^)]+\); [\d.]+ s of 60 s left \(--preemption-grace\)")

    def test_a_second_sigterm_ends_the_workers_at_once(self):
        run = self.start_stuck("--preemption-grace", "900")
        run.signal(signal.SIGTERM)
        run.wait_for(lambda: "the members stop after the same step" in run.said(), "the stop")
        while run.child.poll() is None:  # sooner than a second later it is the same wish
            run.signal(signal.SIGTERM)
        self.assertIsNone(run.end(128 + signal.SIGTERM)["preempted"])

    def test_a_job_that_has_not_begun_is_ended_at_once(self):
        run = self.start("-n", "2", "--checkpoint-dir", self.checkpoints, program=("sleep", "900"))
        run.wait_for(lambda: len(workers(run.child.pid, "sleep")) == 2, "a worker")
        run.signal(signal.SIGTERM)
        self.assertIsNone(run.end(128 + signal.SIGTERM)["preempted"])


class Faults(Preemption):
    def test_a_worker_that_is_killed_amid_it_costs_nothing(self):
        for victim in range(3):  # the leader, too
            self.checkpoints = os.path.join(self.folder.name, f"checkpoints.{victim}")
            words = ("-n", "3", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "2", "--max-restarts", "5")
            run = self.start_slowly(*words)
            self.wait_for_step(run)
            pids = workers(run.child.pid)
            self.assertEqual(len(pids), 3)
            os.kill(pids[victim], signal.SIGSTOP)  # so that the stop cannot be over before it dies
            run.signal(signal.SIGTERM)
            run.wait_for(lambda: "the members stop after the same step" in run.said(), "the stop")
            os.kill(pids[victim], signal.SIGKILL)
            step = self.stopped(run, killed=1)
        self.goes_on(step, *words)

    def test_a_worker_that_is_killed_while_it_saves(self):
        count = "20000000"  # 160 MB, which take some time
        words = ("-n", "3", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1h")
        run = self.start_slowly(*words, program=(STEPPER, STEPS, count))
        self.wait_for_step(run)
        pids = workers(run.child.pid)
        run.signal(signal.SIGTERM)
        run.wait_for(lambda: any(".shard-00001-of-00003" in name for name in self.files()), "a shard")
        os.kill(pids[1], signal.SIGKILL)
        summary = run.end(PREEMPTED)

        step = summary["preempted"]["step"]
        self.assertTrue(summary["preempted"]["saved"])
        self.assertIn(step, self.saved_steps())
        again = self.start(*words, program=(STEPPER, str(step + 1), count))
        again.end(0)
        self.assertIn(f"the job begins with the checkpoint of step {step},", again.said())

    def test_what_cannot_be_saved_does_not_end_with_42(self):
        run = self.start_slowly("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1h")
        self.wait_for_step(run)
        shutil.rmtree(self.checkpoints)  # it has the mark of its job
        pathlib.Path(self.checkpoints).touch()  # no folder can be made there
        run.signal(signal.SIGTERM)
        summary = run.end(1)

        self.assertIsNone(summary["preempted"])
        self.assertEqual([task["exit_code"] for task in summary["tasks"]], [1, 1])
        self.assertIn(f"not a folder, name another one or move that file away: {self.checkpoints}", run.said())

    def test_a_disk_that_is_full_does_not_end_with_42(self):
        limit = f"ulimit -f 1; trap '' XFSZ; exec {STEPPER} {STEPS} 3000000"  # files of 1 KB at most
        run = self.start_slowly("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "1h", program=("bash", "-c", limit))
        self.wait_for_step(run)
        run.signal(signal.SIGTERM)
        summary = run.end(1)

        self.assertIsNone(summary["preempted"])
        self.assertEqual(self.saved_steps(), [])
        self.assertRegex(run.said(), r"stepper: \w+: checkpoint of step \d+: ")

    def test_a_program_that_ends_with_0_counts_as_preempted(self):
        script = f"{STEPPER} {STEPS} {COUNT}; exit 0"
        run = self.start_slowly("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "2", program=("bash", "-c", script))
        self.wait_for_step(run)
        run.signal(signal.SIGTERM)
        self.stopped(run)


class Launchers(Preemption):
    def start_two(self, nodes="2"):
        address = registry(self)
        common = ("-n", "1", "--nnodes", nodes, "--registry", address, "--job", "j", "--checkpoint-dir", self.checkpoints,
                  "--checkpoint-every", "2", "--min-members-timeout", "1")  # so long one waits for the other
        return [(*common, "--node-rank", str(rank)) for rank in range(2)]

    def jobs(self, words):
        address = words[words.index("--registry") + 1]
        shown = subprocess.run([MUSTER, "status", "--registry", address, "--json"], env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)
        return json.loads(shown.stdout)["jobs"]

    def test_a_signal_to_one_of_several_stops_all_and_they_go_on_together(self):
        words = self.start_two()
        runs = [self.start_slowly(*each) for each in words]
        self.wait_for_step(runs[0])
        runs[1].signal(signal.SIGTERM)
        steps = [self.stopped(run, tasks=1) for run in runs]
        self.assertEqual(steps[0], steps[1])
        self.assertIn("the job is preempted, and its members stop", runs[0].said())
        self.assertEqual([job["state"] for job in self.jobs(words[0])], ["preempted"])

        pathlib.Path(self.hurry).touch()
        again = [self.start(*each) for each in words]
        digests = [run.end(0)["digests"] for run in again]
        self.assertEqual(digests[0], digests[1])
        self.assertIn(f"the job begins with the checkpoint of step {steps[0]},", again[0].said())

    def test_a_launcher_that_starts_while_members_stop_does_not_begin_the_job_anew(self):
        first, second = self.start_two("1:2")
        run = self.start_slowly(*first, "--preemption-grace", "900")
        self.wait_for_step(run)
        (pid,) = workers(run.child.pid)
        os.kill(pid, signal.SIGSTOP)
        run.signal(signal.SIGTERM)
        run.wait_for(lambda: "the members stop after the same step" in run.said(), "the stop")
        late = self.start_slowly(*second)
        late.wait_for(lambda: len(self.jobs(first)[0]["members"]) == 2, "its worker")
        os.kill(pid, signal.SIGCONT)
        step = self.stopped(run, tasks=1)
        summary = late.end(PREEMPTED)

        self.assertIsNotNone(summary["preempted"])
        self.assertEqual(self.saved_steps()[-1], step)


    def test_a_launcher_that_is_killed_meanwhile_has_a_successor_that_waits_on(self):
        place = os.path.join(self.folder.name, "run")
        run = self.start_slowly("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "2", "--resumable", place,
                                "--preemption-grace", "900")
        self.wait_for_step(run)
        held = workers(run.child.pid)[1]
        os.kill(held, signal.SIGSTOP)  # so that the stop cannot be over before
        run.signal(signal.SIGTERM)
        table = pathlib.Path(place, "table.json")
        run.wait_for(lambda: json.loads(table.read_text())["stop_signal"] == signal.SIGTERM, "the table")
        run.wait_for(lambda: "the members stop after the same step" in run.said(), "the stop")
        self.replace(run, place)
        run.wait_for(lambda: run.said().count("the members stop after the same step") == 2, "the successor")
        os.kill(held, signal.SIGCONT)
        self.stopped(run)


class Alone(Preemption):
    """Workers that no launcher has started, as on Kubernetes."""

    def worker(self, address, rank, job="j", **variables):
        out = tempfile.TemporaryFile("w+")
        env = dict(CLEAN, MUSTER_REGISTRY=address, MUSTER_JOB=job, RANK=str(rank), WORLD_SIZE="2", MUSTER_PREEMPTION="signals", STEPPER_GAPS="1",
                   STEPPER_HURRY=self.hurry, STEPPER_LINGER_MS="50", MUSTER_CHECKPOINT_DIR=self.checkpoints, MUSTER_CHECKPOINT_EVERY="2", **variables)
        child = subprocess.Popen([STEPPER, STEPS, COUNT], env=env, stdout=out, stderr=out)
        self.addCleanup(out.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child, out

    def end(self, worker, code):
        child, out = worker
        child.wait(timeout=PATIENCE_S)
        said = os.pread(out.fileno(), 1 << 20, 0).decode()
        self.assertEqual(child.returncode, code, said)
        return said

    def wait_for_save(self, *pairs):
        while not self.saved_steps():
            self.assertEqual([child.poll() for child, _ in pairs], [None] * len(pairs))

    def stop(self, number):
        address = registry(self)
        pair = [self.worker(address, rank) for rank in range(2)]
        self.wait_for_save(*pair)
        pair[1][0].send_signal(number)
        said = [self.end(each, PREEMPTED) for each in pair]
        step = self.saved_steps()[-1]
        self.assertTrue(all(f"stopped after step {step}, which is saved" in each for each in said), said)

        pathlib.Path(self.hurry).touch()
        again = [self.end(each, 0) for each in [self.worker(address, rank, MUSTER_LOG_LEVEL="info") for rank in range(2)]]
        self.assertTrue(all(f"total {STEPS}" in each for each in again), again)
        self.assertIn(f"step={step}", again[0].split("total")[0])

    def test_sigterm_to_one_stops_all_and_they_go_on(self):
        self.stop(signal.SIGTERM)

    def test_sigusr1_to_one_stops_all_and_they_go_on(self):
        self.stop(signal.SIGUSR1)

    def test_a_second_sigterm_ends_a_worker_at_once(self):
        address = registry(self)
        child, _ = worker = self.worker(address, 0)
        while child.poll() is None:  # it waits for the other one
            child.send_signal(signal.SIGTERM)
        self.end(worker, -signal.SIGTERM)

    def test_a_variable_that_says_something_else_is_refused(self):
        for text in ("yes", "launcher:", "launcher:7x"):
            done = subprocess.run([STEPPER, "1"], env=dict(CLEAN, MUSTER_PREEMPTION=text), text=True, capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"MUSTER_PREEMPTION must be signals, gce, or signals,gce, got {text}", done.stderr)


class Platforms(Preemption):
    def test_a_signal_to_all_processes_of_a_slurm_step_stops_the_job(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            self.checkpoints = os.path.join(self.folder.name, f"checkpoints.{number}")
            run = self.start_slowly("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "2")
            self.wait_for_step(run)
            for pid in workers(run.child.pid):  # before the launcher
                os.kill(pid, number)
            run.signal(number)
            self.stopped(run)

    def test_sigterm_to_one_worker_of_a_launcher_ends_that_one(self):
        run = self.start_slowly("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "2", "--max-restarts", "3")
        self.wait_for_step(run)
        os.kill(workers(run.child.pid)[1], signal.SIGTERM)
        run.wait_for(lambda: "killed by SIGTERM" in run.said(), "its end")
        pathlib.Path(self.hurry).touch()
        summary = run.end(0)
        self.assertEqual(summary["restarts"], 1)


class Metadata(http.server.ThreadingHTTPServer):
    """Google's metadata server: a value changes when the test says so, and whoever waits for it is answered then."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), MetadataAnswers)
        self.values = {"instance/maintenance-event": "NONE", "instance/preempted": "FALSE"}
        self.changed = threading.Condition()
        self.asked = set()
        self.is_over = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def change(self, path, value):
        with self.changed:
            self.values[path] = value
            self.changed.notify_all()

    def wait_for_askers(self, path):
        with self.changed:
            self.changed.wait_for(lambda: path in self.asked, timeout=PATIENCE_S)

    def handle_error(self, *_):
        """Whoever asked has gone."""

    def end(self):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
        self.shutdown()
        self.server_close()


class MetadataAnswers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.removeprefix("/computeMetadata/v1/").partition("?")
        wanted = dict(urllib.parse.parse_qsl(query))
        server = self.server
        with server.changed:
            if wanted.get("last_etag") == server.values.get(path):
                server.asked.add(path)
                server.changed.notify_all()
            server.changed.wait_for(lambda: server.is_over or wanted.get("last_etag") != server.values.get(path), timeout=PATIENCE_S)
            value = server.values.get(path)
        self.send_response(404 if value is None else 200)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("ETag", value or "none")  # a value is its own tag
        self.send_header("Content-Length", str(len(value or "")))
        self.end_headers()
        self.wfile.write((value or "").encode())

    def log_message(self, *_):
        pass


class Google(Preemption):
    def stop(self, path, value, cause):
        metadata = Metadata()
        self.addCleanup(metadata.end)
        words = ("-n", "2", "--checkpoint-dir", self.checkpoints, "--checkpoint-every", "2")
        run = self.start_slowly(*words, MUSTER_PREEMPTION="gce", GCE_METADATA_HOST=f"127.0.0.1:{metadata.server_port}")
        self.wait_for_step(run)
        metadata.wait_for_askers(path)
        metadata.change("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")  # which a machine survives
        metadata.wait_for_askers("instance/maintenance-event")
        self.assertIsNone(run.child.poll())
        metadata.change(path, value)
        step = self.stopped(run)

        self.assertIn(cause, run.said())
        self.goes_on(step, *words)

    def test_a_maintenance_that_ends_the_machine_stops_the_job(self):
        self.stop("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", 'reason=TERMINATE_ON_HOST_MAINTENANCE')

    def test_the_end_of_a_spot_machine_stops_the_job(self):
        self.stop("instance/preempted", "TRUE", 'reason=PREEMPTED')

    def test_a_machine_without_such_a_server_trains_on(self):
        run = self.start("-n", "2", "--checkpoint-dir", self.checkpoints, MUSTER_PREEMPTION="gce", GCE_METADATA_HOST="127.0.0.1:1")
        self.assertIsNone(run.end(0)["preempted"])


if __name__ == "__main__":
    unittest.main()
