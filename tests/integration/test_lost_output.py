#!/usr/bin/env python3
"""Output that does not arrive is no success: exit code 1, and the file and the reason on standard error."""
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
STEPPER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "tests", "programs", "stepper")
PATIENCE_S = 120
CLEAN = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "MUSTER_RESOLVER", "RANK", "WORLD_SIZE")}

COMMANDS = (
    ["help"], ["help", "options"], ["help", "exit-codes"], ["version"], ["version", "--json"], ["registry", "--help"], ["bench", "--help"],
    ["resolve", "--resolver", "static:w=a:1"], ["resolve", "--resolver", "static:w=a:1", "--json"],
    ["resolve", "--resolver", "static:w=a:1", "--watch"],
    ["resolve", "--json", "--resolver", "static:w=" + ",".join("host%05d:1" % i for i in range(3000))],
    ["bench", "allreduce", "-n", "2", "--bytes", "4,8", "--iters", "1"],
    ["bench", "allreduce", "-n", "2", "--bytes", "4,8", "--iters", "1", "--json"],
    ["bench", "scale", "-n", "2", "--bytes", "4"], ["bench", "scale", "-n", "2", "--bytes", "4", "--json"],
    ["bench", "recover", "-n", "2", "--bytes", "4K", "--kills", "1", "--json"],
    ["bench", "tune", "-n", "2", "--bytes", "4K", "--iters", "1"],
    ["registry", "--listen", "127.0.0.1:0"], ["coordinator", "--listen", "127.0.0.1:0", "--tasks", "1"], ["server"],
    ["run", "--json", "-", "--", "true"], ["run", "--quiet", "--json", "-", "--", "true"],
)


def muster(*args, stdout, **more):
    return subprocess.run([MUSTER, *args], env=CLEAN, text=True, stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          timeout=PATIENCE_S, **more)


class LostOutput(unittest.TestCase):
    def test_a_device_that_is_full(self):
        for args in COMMANDS:
            with self.subTest(" ".join(args)[:60]), open("/dev/full", "w", encoding="utf-8") as full:
                done = muster(*args, stdout=full)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(done.stderr.count("muster: standard output (/dev/full) is lost: No space left on device"), 1, done.stderr)

    def test_standard_output_that_is_closed(self):
        for args in COMMANDS:
            with self.subTest(" ".join(args)[:60]):
                done = muster(*args, stdout=None, preexec_fn=lambda: os.close(1))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, "standard output .* is lost: Bad file descriptor")

    def test_files_that_were_asked_for(self):
        """A device stays one: the file is a link, so that a product that replaces it does no harm to /dev."""
        with tempfile.TemporaryDirectory() as where:
            path = os.path.join(where, "full")
            for args in (["bench", "tune", "-n", "2", "--bytes", "4K", "--iters", "1", "--out", path], ["run", "--json", path, "--", "true"]):
                with self.subTest(args):
                    os.symlink("/dev/full", path)
                    done = muster(*args, stdout=subprocess.DEVNULL)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn(path + ": No space left on device", done.stderr)
                    self.assertTrue(os.path.islink(path))
                    os.unlink(path)

    def test_what_standard_output_has_already_stays(self):
        with tempfile.TemporaryFile("a+") as file:
            file.write("before\n")
            file.flush()
            self.assertEqual(muster("bench", "tune", "-n", "2", "--bytes", "4K", "--iters", "1", stdout=file).returncode, 0)
            file.seek(0)
            self.assertRegex(file.read(), r"\Abefore\n# muster bench tune ")

    def test_a_summary_into_a_device_leaves_the_device(self):
        with tempfile.TemporaryDirectory() as where:
            path = os.path.join(where, "pipe")
            os.mkfifo(path)
            with subprocess.Popen([MUSTER, "run", "--quiet", "--json", path, "--", "true"], env=CLEAN) as child:
                with open(path, encoding="utf-8") as pipe:
                    text = pipe.read()
                if not text:  # the check of the command line has opened it and gone
                    with open(path, encoding="utf-8") as pipe:
                        text = pipe.read()
                self.assertEqual(child.wait(PATIENCE_S), 0)
            self.assertIn('"exit_code":0', text)
            self.assertTrue(stat.S_ISFIFO(os.stat(path).st_mode))

    def test_what_workers_print_is_told_and_they_go_on(self):
        """The exit code is theirs."""
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = muster("run", "-n", "2", "--", "sh", "-c", "echo hello; echo again", stdout=full)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("standard output (/dev/full) is lost: No space left on device"), 1, done.stderr)

    def test_a_reader_that_has_seen_enough(self):
        """`muster run … | head -1`: nothing to tell, and the workers go on; but --json - was asked for."""
        for args, code, text in (([], 0, ""), (["--json", "-"], 1, "the summary (pipe:")):
            read, write = os.pipe()
            os.close(read)
            done = muster("run", "--quiet", *args, "--", "sh", "-c", "echo hello; echo again", stdout=write)
            os.close(write)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)
            if not text:
                self.assertEqual(done.stderr, "")


class FileLimit(unittest.TestCase):
    """`ulimit -f`: muster's own files are lost with the cause, and a worker that ignores nothing is killed, with the cause."""
    CAUSE = "File too large; raise the limit of file sizes (ulimit -f)"

    def limited(self, command):
        return subprocess.run(["bash", "-c", f"ulimit -f 1; exec {command}"], env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S,
                              check=False)

    def test_a_command_says_that_its_output_is_lost(self):
        with tempfile.TemporaryDirectory() as where:
            done = self.limited(f"{MUSTER} help options > {where}/out")
            self.assertEqual((done.returncode, done.stderr), (1, f"muster: standard output ({where}/out) is lost: {self.CAUSE}\n"))

    def test_a_job_goes_on_without_its_log(self):
        with tempfile.TemporaryDirectory() as where:
            done = self.limited(f"{MUSTER} run --log-dir {where} -- seq 2000")
            self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 2000), done.stderr)
            self.assertIn(f"the log of worker:0 cannot be written: {self.CAUSE}", done.stderr)

    def test_a_worker_is_killed_as_without_the_launcher_and_the_limit_is_named(self):
        with tempfile.TemporaryDirectory() as where:
            done = self.limited(f"{MUSTER} run --max-restarts 0 -- sh -c 'exec head -c 9999 /dev/zero > {where}/file'")
            self.assertEqual(done.returncode, 128 + signal.SIGXFSZ, done.stderr)
            self.assertIn("killed by SIGXFSZ (file size limit: ulimit -f)", done.stderr)

    def test_members_whose_shared_memory_is_beyond_it_go_on_without_and_say_why(self):
        done = self.limited(f"{MUSTER} run -n 2 -- {STEPPER} 3 1000")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("no 64 MiB of memory for a board: raise the limit (ulimit -v, ulimit -f, or memory.max of the cgroup)"), 2,
                         done.stderr)

    def test_a_worker_goes_on_without_its_flight_recorder(self):
        with tempfile.TemporaryDirectory() as where:
            done = self.limited(f"{MUSTER} run -n 2 --trace {where} -- {STEPPER} 5 16")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, rf'trace_not_written file={where}/.* reason="cannot write: {re.escape(self.CAUSE)}"')


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main()
