#!/usr/bin/env python3
"""The log of `muster run` in both formats, its JSON summary beside docs/summary.md, and variables that are refused at once."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

BINARIES = os.environ["MUSTER_BINARY_DIR"]
SOURCE = os.environ["MUSTER_SOURCE_DIR"]
MUSTER = os.path.join(BINARIES, "bin", "muster")
COUNTER = os.path.join(BINARIES, "bin", "counter")
CLEAN = {k: v for k, v in os.environ.items() if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR|TEST_GUARD)|TF_CONFIG|RANK$|WORLD_SIZE", k)}
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def run(*words, **variables):
    return subprocess.run([MUSTER, "run", *words], env=dict(CLEAN, **variables), text=True, capture_output=True, timeout=120)


def documented(title_words):
    """The keys that begin the items of the list behind these words in docs/summary.md."""
    with open(os.path.join(SOURCE, "docs", "summary.md"), encoding="utf-8") as file:
        items = file.read().split(title_words, 1)[1].split("\n\n")[1]
    return {key for item in re.findall(r"^- (.*?):", items, re.MULTILINE) for key in re.findall(r"`(\w+)`", item)}


class Log(unittest.TestCase):
    def test_every_line_of_text_has_a_time(self):
        done = run("-n", "2", "--kill", "worker:1@step=300", "--", COUNTER)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = [line for line in done.stderr.splitlines() if "[muster]" in line]
        self.assertGreater(len(told), 2)
        for line in told:
            self.assertRegex(line, rf"^{TIME} \[muster\] ")

    def test_every_line_of_json_is_an_object(self):
        done = run("-n", "2", "--kill", "worker:1@step=300", "--log-format", "json", "--log-level", "info", "--", "sh", "-c",
                   f'echo "say \\"hm\\"" >&2; echo out; exec {COUNTER}')
        self.assertEqual(done.returncode, 0, done.stderr)
        records = [json.loads(line) for line in done.stderr.splitlines()]
        for record in records:
            self.assertRegex(record["time"], f"^{TIME}$")
            self.assertIn(record["level"], ("error", "warn", "info", "debug", "trace"))
            self.assertTrue(("text" in record) != ("record" in record), record)
        by_event = {record["event"]: record for record in records}
        self.assertEqual((by_event["view"]["view"], by_event["view"]["members"]), (1, 2))
        self.assertEqual(by_event["died"]["tasks"], "worker:1")
        self.assertEqual(by_event["died"]["step"], 300)  # the survivor may be about to begin that step
        self.assertEqual(by_event["done"]["steps"], 1000)
        self.assertIn('say "hm"', [r.get("text") for r in records if r["event"] == "output" and r["stream"] == "stderr"])
        members = [r["record"] for r in records if r["event"] == "output" and "record" in r]
        self.assertTrue(any(r["event"] == "view_changed" and r["view"] == 1 for r in members), records)
        self.assertIn("[worker:0] out", done.stdout.splitlines())

    def test_errors_and_failures_are_objects_too(self):
        done = run("-n", "1", "--log-format", "json", "--", "/does/not/exist")
        self.assertEqual(done.returncode, 127)
        self.assertEqual([json.loads(line)["event"] for line in done.stderr.splitlines()], ["error"])
        done = run("-n", "1", "--max-restarts", "0", "--log-format", "json", "--", "sh", "-c", "echo last; exit 7")
        failure = [r for r in map(json.loads, done.stderr.splitlines()) if r["event"] == "first_failure"][0]
        self.assertEqual((done.returncode, failure["task"], failure["exit_code"], failure["how"]), (7, "worker:0", 7, "exited with code 7"))

    def test_a_level_hides_what_is_below(self):
        done = run("-n", "2", "--kill", "worker:1@step=300", "--log-level", "warn", "--", COUNTER)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("worker:1 killed by SIGKILL", done.stderr)
        self.assertNotIn("[muster] view 1", done.stderr)
        self.assertNotIn("done:", done.stderr)

    def test_bad_variables_are_refused_before_a_worker_starts(self):
        for name, value, words in (("MUSTER_LOG_LEVEL", "loud", "must be one of error|warn|info|debug|trace"), ("MUSTER_WIRE", "string", "auto or tcp"),
                                   ("MUSTER_STRIPES", "many", "whole number"), ("MUSTER_EVICT_AFTER_S", "-1", "seconds")):
            done = run("-n", "2", "--", "sh", "-c", "echo started", **{name: value})
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn(name, done.stderr)
            self.assertIn(value, done.stderr)
            self.assertIn(words, done.stderr)

    def test_a_misspelt_variable_is_told_once(self):
        """By the launcher, or by a program that has none; a worker says what its launcher could not know."""
        done = run("-n", "2", "--", "sh", "-c", f"MUSTER_SRTIPES=2 exec {COUNTER}", MUSTER_WRIE="tcp")
        told = [line for line in done.stderr.splitlines() if "MUSTER_WRIE" in line]
        self.assertEqual((done.returncode, len(told)), (0, 1), done.stderr)
        self.assertIn("MUSTER_WRIE is not a variable of muster and has no effect on it; did you mean MUSTER_WIRE?", told[0])
        told = [line for line in done.stderr.splitlines() if "unknown_variable" in line]
        self.assertEqual(len(told), 2, done.stderr)
        for line in told:
            self.assertIn("name=MUSTER_SRTIPES did_you_mean=MUSTER_STRIPES", line)
        done = run("--log-format", "json", "--", "true", MUSTER_EXPERIMENT="1")
        event, = [r for r in map(json.loads, done.stderr.splitlines()) if r["event"] == "unknown_variable"]
        self.assertEqual((event["level"], event["name"], "did_you_mean" in event), ("warn", "MUSTER_EXPERIMENT", False))
        alone = subprocess.run([COUNTER], env=dict(CLEAN, RANK="0", WORLD_SIZE="1", MUSTER_JBO="a"), text=True, capture_output=True, timeout=120)
        self.assertIn("did_you_mean=MUSTER_JOB", alone.stderr)

    def test_a_bad_level_or_format_is_told_in_one_text(self):
        """By an option or a variable, of the launcher, another command, or a program without a launcher."""
        for name, choices in (("LOG_LEVEL", "error|warn|info|debug|trace"), ("LOG_FORMAT", "text|json")):
            variable, option = {"MUSTER_" + name: "loud"}, "--" + name.lower().replace("_", "-")
            registry = subprocess.run([MUSTER, "registry", "--listen", "127.0.0.1:0"], env=dict(CLEAN, **variable), text=True, capture_output=True,
                                      timeout=120)
            alone = subprocess.run([COUNTER], env=dict(CLEAN, RANK="0", WORLD_SIZE="1", **variable), text=True, capture_output=True, timeout=120)
            for who, done in ((option, run(option, "loud", "--", "true")), ("MUSTER_" + name, run("--", "true", **variable)),
                              ("MUSTER_" + name, registry), ("MUSTER_" + name, alone)):
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(f'{who}: must be one of {choices}, got "loud"', done.stderr)

    def test_gpu_without_a_gpu_says_so(self):
        if any(re.match(r"nvidia\d", name) for name in os.listdir("/dev")):
            self.skipTest("this machine has a GPU")
        done = run("-n", "gpu", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("this machine has no NVIDIA GPU (/dev/nvidia[0-9]*)", done.stderr)


class Summary(unittest.TestCase):
    def test_its_keys_are_those_of_the_page(self):
        done = run("-n", "2", "--json", "-", "--quiet", "--", COUNTER)
        summary = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(set(summary) | {"accuracy"}, documented("Its keys:"))
        self.assertNotIn("accuracy", summary)
        self.assertEqual(set(summary["tasks"][0]) | {"trace", "left_in_step", "left_after_step", "died_after_step", "skipped_step", "left_out_step"},
                         documented("An object of `tasks`:"))  # where there is one, or who has left so
        self.assertEqual(summary["views"], summary["epochs"])

    def test_numbers_have_no_needless_digits(self):
        done = run("-n", "2", "--json", "-", "--quiet", "--kill", "worker:1@step=300", "--", COUNTER)
        text = done.stdout.splitlines()[-1]
        for number in re.findall(r"-?\d+\.\d+(?:e[+-]?\d+)?", text):
            self.assertLessEqual(len(number), len(repr(float(number))), text)

    def test_steps_are_right_after_a_signal(self):
        script = ("import json,os,signal,time\n"
                  "def report(**fields): os.write(3, (json.dumps(fields) + '\\n').encode())\n"
                  "report(report='view', epoch=1, members=2, lost=[], joined=[])\n"
                  "report(report='progress', step=412, epoch=1, members=2, values={})\n"
                  "print('ready', flush=True)\n"
                  "signal.pause()\n")
        with tempfile.TemporaryDirectory() as where:
            path = os.path.join(where, "summary")
            child = subprocess.Popen([MUSTER, "run", "-n", "2", "--json", path, "--", "python3", "-c", script], env=CLEAN, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(child.communicate)
            self.addCleanup(child.kill)
            self.assertEqual([child.stdout.readline() for _ in range(2)].count(""), 0)
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.wait(60), 130)
            with open(path, encoding="utf-8") as file:
                summary = json.load(file)
            self.assertEqual((summary["steps"], summary["exit_code"]), (412, 130))
            self.assertIn("ended by SIGINT after 412 steps", child.stderr.read())


class Version(unittest.TestCase):
    def test_it_names_commit_libraries_and_gpu(self):
        done = subprocess.run([MUSTER, "version", "--json"], text=True, capture_output=True, timeout=60, check=True)
        told = json.loads(done.stdout)
        self.assertTrue(re.match(r"\d+\.\d+\.\d+", told["version"]) and told["commit"], told)
        for name in ("libevent", "nghttp2", "curl", "openssl", "sqlite", "protobuf-c", "jansson", "c-ares", "libyaml"):
            self.assertRegex(told["libraries"][name], r"^\d+\.\d+")
        self.assertEqual(set(told["gpu"]), {"devices", "driver", "cuda", "nccl"})
        text = subprocess.run([MUSTER, "version"], text=True, capture_output=True, timeout=60, check=True).stdout
        self.assertIn(f"commit {told['commit']}", text)
        self.assertIn(f"libevent    {told['libraries']['libevent']}", text)
        self.assertIn("NCCL", text)

    def test_it_asks_the_libraries_that_workers_would_load(self):
        folder = os.path.join(BINARIES, "lib", "fake_gpu")
        libraries = {"MUSTER_CUDA_LIBRARY": os.path.join(folder, "libcuda.so.1"),
                     "MUSTER_NCCL_LIBRARY": os.path.join(folder, "22807", "libnccl.so.2")}
        done = subprocess.run([MUSTER, "version", "--json"], env=dict(CLEAN, **libraries), text=True, capture_output=True, timeout=60,
                              check=True)
        gpu = json.loads(done.stdout)["gpu"]
        self.assertEqual(gpu["nccl"], "2.28.7")
        self.assertTrue(gpu["cuda"], gpu)


if __name__ == "__main__":
    unittest.main()
