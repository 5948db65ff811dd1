#!/usr/bin/env python3
"""The flight recorder: who ends in an error leaves a file, the launcher names it, and `muster trace` merges files of all members."""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

STEPPER = os.path.join(PROGRAMS, "stepper")
# Sanitizers have handlers of their own, which muster leaves alone.
SANITIZED = {"ASAN_OPTIONS": "handle_segv=0:handle_abort=0:detect_leaks=0", "UBSAN_OPTIONS": "handle_segv=0"}


def muster(*args, **variables):
    return subprocess.run([MUSTER, *args], text=True, capture_output=True, env=dict(CLEAN, **variables), timeout=PATIENCE_S,
                          check=False)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-trace-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(self.folder, "merged.json")

    def job(self, *options, steps=20, **variables):
        """Three workers, of which a death is not mended."""
        return muster("run", "-n", "3", "--max-restarts", "0", *options, "--", STEPPER, str(steps), TMPDIR=self.folder,
                      **SANITIZED, **variables)

    def files(self, *pattern):
        return sorted(glob.glob(os.path.join(self.folder, *pattern)))

    def merge(self, *files, code=0):
        child = muster("trace", *files, "--output", self.out)
        self.assertEqual(child.returncode, code, child.stderr)
        if code:
            self.assertFalse(os.path.exists(self.out))
            return child.stderr
        with open(self.out, encoding="utf-8") as file:
            return json.load(file)["traceEvents"]


def read(path):
    with open(path, encoding="utf-8") as file:
        header, *events = [json.loads(line) for line in file]
    return header, events


class Failing(Case):
    def check(self, how, text, **variables):
        began_ns = time.time_ns()
        child = self.job("--json", "-", **variables)
        self.assertNotEqual(child.returncode, 0)
        (path,) = self.files(f"muster-{os.geteuid()}", "*-worker-1-*")  # another member may end in an error, too
        header, events = read(path)
        self.assertEqual((header["muster_trace"], header["task"], header["rank"], header["events"]), (1, "worker:1", 1, len(events)))
        self.assertIn(text, header["error"])
        self.assertRegex(os.path.basename(path), rf"^{header['job']}-worker-1-{header['incarnation'][:8]}\.trace\.jsonl$")
        self.assertTrue(began_ns <= header["clock"]["wall_ns"] <= time.time_ns(), header)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
        self.assertIn(f"flight recorder: {path}; look at it with `muster trace {path}`", child.stderr)
        summary = json.loads(child.stdout.splitlines()[-1])
        self.assertEqual((summary["first_failure"]["how"], summary["first_failure"]["trace"]), (how, path))
        self.assertEqual([event["a"] for event in events if event["kind"] == "step_begun"], [1, 2, 3, 4, 5])
        self.assertEqual([event["a"] for event in events if event["kind"] == "step_committed"], [1, 2, 3, 4])
        times = [event["time_ns"] for event in events]
        self.assertLessEqual(max(times), header["clock"]["monotonic_ns"])

    def test_an_error_of_the_program_leaves_a_file(self):
        self.check("exited with code 1", "closed in step 5 before its commit", STEPPER_ERRS="all_reduce:5")

    def test_a_segmentation_fault_leaves_a_file_and_stays_one(self):
        self.check("killed by SIGSEGV", "killed by SIGSEGV", STEPPER_CRASHES="segv:5")

    def test_an_abort_leaves_a_file_and_stays_one(self):
        self.check("killed by SIGABRT", "killed by SIGABRT", STEPPER_CRASHES="abrt:5")

    def test_who_ends_well_leaves_nothing(self):
        child = self.job()
        self.assertEqual((child.returncode, self.files("*")), (0, []), child.stderr)

    def test_it_can_be_switched_off(self):
        child = self.job(STEPPER_CRASHES="segv:5", MUSTER_TRACE="off")
        self.assertIn("killed by SIGSEGV", child.stderr)
        self.assertEqual(self.files("*"), [])
        self.assertNotIn("flight recorder", child.stderr)

    def test_a_misspelt_variable_is_refused_by_the_launcher(self):
        child = self.job(MUSTER_TRACE="allways")
        self.assertEqual(child.returncode, 2)
        self.assertIn("MUSTER_TRACE must be failure, always or off, got allways", child.stderr)

    def test_the_log_folder_takes_it(self):
        self.job("--log-dir", os.path.join(self.folder, "logs"), STEPPER_CRASHES="segv:5")
        (path,) = self.files("logs", "attempt_0", "1", "*.trace.jsonl")
        self.assertEqual(read(path)[0]["task"], "worker:1")

    def test_a_folder_of_somebody_else_is_not_used(self):
        elsewhere = os.path.join(self.folder, "elsewhere")
        os.mkdir(elsewhere)
        os.symlink(elsewhere, os.path.join(self.folder, f"muster-{os.geteuid()}"))
        child = self.job(STEPPER_ERRS="all_reduce:5")
        self.assertIn("trace_not_written", child.stderr)
        self.assertEqual(os.listdir(elsewhere), [])

    def test_the_newest_files_are_kept(self):
        folder = os.path.join(self.folder, f"muster-{os.geteuid()}")
        os.mkdir(folder, 0o700)
        for i in range(80):
            path = os.path.join(folder, f"old-{i}.trace.jsonl")
            with open(path, "w", encoding="utf-8"):
                pass
            os.utime(path, (i, i))
        self.job(STEPPER_ERRS="all_reduce:5")
        names = os.listdir(folder)
        self.assertEqual(len(names), 64)
        self.assertIn("old-79.trace.jsonl", names)
        self.assertNotIn("old-16.trace.jsonl", names)


class Merged(Case):
    def trace(self, **variables):
        child = self.job("--trace", os.path.join(self.folder, "t"), **variables)
        return child, self.files("t", "*.trace.jsonl")

    def check_nesting(self, events):
        slices = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                slices[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)))
        for place, spans in slices.items():
            open_ends = []
            for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                self.assertTrue(not open_ends or end <= open_ends[-1], (place, start, end))
                open_ends.append(end)
        return slices

    def test_all_members_of_a_job_in_which_one_crashed(self):
        child, files = self.trace(STEPPER_CRASHES="segv:5")
        self.assertEqual(len(files), 3, child.stderr)
        events = self.merge(*files)
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual([re.match(r"worker:\d \(.+, [0-9a-f]{8}\)$", name).group(0)[:8] for _, name in sorted(names.items())],
                         ["worker:0", "worker:1", "worker:2"])
        slices = self.check_nesting(events)
        self.assertEqual(len(slices), 6)  # steps and operations of each
        steps = collections.Counter(event["pid"] for event in events if event["name"] == "step")
        self.assertEqual(steps, {1: 20, 2: 5, 3: 20})
        lost = [event for event in events if event["name"] == "member_lost" and event["args"]["view"] == 2]
        self.assertEqual([(event["pid"], event["args"]["index"]) for event in lost], [(1, 1), (3, 1)])
        # By the wall clock, the crash comes before the others hear of it, and after its last step began.
        crash = next(event["ts"] for event in events if event["name"] == "ended in an error")
        begun = max(event["ts"] for event in events if event["name"] == "step" and event["pid"] == 2)
        self.assertTrue(begun <= crash < min(event["ts"] for event in lost))
        results = {event["args"]["result"] for event in events if event["name"] == "all_reduce" and event["ph"] == "X"
                   and "result" in event["args"]}
        self.assertEqual(results, {"OK"})
        with open(self.out, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(re.search(r'"ts":\d+\.\d{3}[,}]', text))

    def test_many_steps_do_not_push_out_the_membership(self):
        child, files = self.trace(steps=3000)
        self.assertEqual(len(files), 3, child.stderr)
        for header, events in map(read, files):
            self.assertGreater(header["emitted"], 8192 + 100)
            self.assertIn(1, [event["a"] for event in events if event["kind"] == "view_entered"])
            self.assertNotIn(1, [event["a"] for event in events if event["kind"] == "step_begun"])
        self.check_nesting(self.merge(*files))

    def test_several_lives_are_several_processes(self):
        hurry = os.path.join(self.folder, "hurry")
        child = subprocess.Popen([MUSTER, "run", "-n", "2", "--trace", os.path.join(self.folder, "t"), "--", STEPPER, "800"],
                                 stderr=subprocess.PIPE, text=True,
                                 env=dict(CLEAN, TMPDIR=self.folder, STEPPER_CRASHES="segv:5", STEPPER_HURRY=hurry, **SANITIZED))
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        for line in child.stderr:
            if "rejoined" in line:
                with open(hurry, "w", encoding="utf-8"):
                    pass
        self.assertEqual(child.wait(PATIENCE_S), 0)
        files = self.files("t", "*.trace.jsonl")
        self.assertEqual(len(files), 3)
        names = [event["args"]["name"][:8] for event in self.merge(*files) if event["name"] == "process_name"]
        self.assertEqual(names, ["worker:0", "worker:1", "worker:1"])
        caught_up = [header for header, events in map(read, files) if any(event["kind"] == "caught_up" for event in events)]
        self.assertEqual([header["task"] for header in caught_up], ["worker:1"])

    def test_bad_files_are_named(self):
        _, files = self.trace()
        with open(files[0], encoding="utf-8") as file:
            whole = file.read()
        lines = whole.splitlines(keepends=True)
        bad = os.path.join(self.folder, "bad")
        rows = [(whole[:-9], r"bad is cut short: \d+ of \d+ events are there"),
                ("".join(lines[:-3]), r"bad is cut short: \d+ of \d+ events are there"),
                (lines[0][:40], r"bad is not a file of muster's flight recorder"),
                (re.sub(r'"emitted":\d+', '"emitted":0', whole, count=1), r"bad is not a file of muster's flight recorder"),
                ("", r"bad is not a file of muster's flight recorder"),
                ('{"traceEvents":[]}\n', r"bad is not a file of muster's flight recorder"),
                ("\x7fELF\0\1", r"bad is not a file of muster's flight recorder"),
                (whole + lines[1], r"bad has more lines than its header tells"),
                (whole.replace('"kind"', '"kin"', 1), r"bad, line 2 is not an event"),
                (whole.replace('"muster_trace":1', '"muster_trace":2', 1), r"bad has format 2")]
        for text, error in rows:
            with open(bad, "w", encoding="utf-8") as file:
                file.write(text)
            with self.subTest(error=error, text=text[-20:]):
                self.assertRegex(self.merge(files[1], bad, code=3), error)
        self.assertIn("nowhere.jsonl: No such file", self.merge(os.path.join(self.folder, "nowhere.jsonl"), code=3))
        self.assertIn("are the same file of worker:", self.merge(files[0], files[1], files[0], code=3))

    def test_no_file_is_an_error_of_use(self):
        child = muster("trace")
        self.assertEqual((child.returncode, child.stdout), (2, ""))
        self.assertIn("at least one file", child.stderr)

    def test_the_page_lists_every_kind(self):
        with open(os.path.join(os.environ["MUSTER_SOURCE_DIR"], "docs", "trace.md"), encoding="utf-8") as file:
            page = " ".join(file.read().split())
        for line in muster("trace", "--kinds").stdout.splitlines():
            kind, numbers, meaning = line.split(":", 2)
            self.assertIn(f"- `{kind}` ({', '.join(numbers.split())}): {meaning.strip()}", page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
