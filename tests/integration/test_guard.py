#!/usr/bin/env python3
"""tests/lib/guard.py: however a test ends, no process that it started goes on, and its pipe is closed."""
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import unittest

LIB = pathlib.Path(__file__).resolve().parents[1] / "lib"
sys.path.insert(0, str(LIB))
import guard

guard.enter()
PATIENCE_S = 120
UNGUARDED = {k: v for k, v in os.environ.items() if k != "TEST_GUARD"}


class Ends(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pid, self.go = (os.path.join(folder.name, name) for name in ("pid", "go"))
        os.mkfifo(self.pid)
        os.mkfifo(self.go)

    def start(self, end):
        """A guarded test that starts a stubborn process in a session of its own, and waits before it does `end`."""
        script = f"""setsid sh -c 'trap "" TERM HUP INT; echo $$ >"{self.pid}"; sleep 1000' & read _ <"{self.go}"; {end}"""
        self.test = subprocess.Popen([LIB / "guard.py", "sh", "-c", script], stdout=subprocess.PIPE, text=True,
                                     env=dict(UNGUARDED, MUSTER_TEST_GRACE_S="0.2"))
        with open(self.pid, encoding="utf-8") as fifo:
            self.stubborn = os.pidfd_open(int(fifo.read()))
        self.addCleanup(os.close, self.stubborn)

    def end_code(self, end="sleep 1000", kill=None):
        """The exit code of the guard; the stubborn process is gone, and the pipe that it held has its end."""
        self.start(end)
        if kill is None:
            with open(self.go, "w", encoding="utf-8") as fifo:
                fifo.write("\n")
        else:
            self.test.send_signal(kill)
        self.text, _ = self.test.communicate(timeout=PATIENCE_S)
        self.assertTrue(select.select([self.stubborn], [], [], PATIENCE_S)[0], "the stubborn process goes on")
        return self.test.returncode

    def test_a_pass_that_leaves_a_process_is_a_failure_that_names_it(self):
        self.assertEqual(self.end_code("exit 0"), 1)
        self.assertIn("sleep 1000", self.text)

    def test_a_skip_after_the_start_is_a_failure_that_says_so(self):
        self.assertEqual(self.end_code("echo skipped: no reason; exit 77"), 1)
        self.assertIn("before anything starts", self.text)

    def test_an_error_keeps_its_exit_code(self):
        self.assertEqual(self.end_code("exit 3"), 3)

    def test_an_exception_of_python(self):
        self.assertEqual(self.end_code(f"exec {sys.executable} -c 'raise SystemExit(5)'"), 5)

    def test_a_test_that_is_killed(self):
        self.assertEqual(self.end_code("kill -KILL $$"), 128 + signal.SIGKILL)
        self.assertIn("SIGKILL", self.text)

    def test_a_guard_that_is_killed(self):
        self.assertEqual(self.end_code(kill=signal.SIGKILL), -signal.SIGKILL)

    def test_a_guard_that_is_ended(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number.name):
                self.assertEqual(self.end_code(kill=number), 128 + signal.SIGTERM)


class Passes(unittest.TestCase):
    def code(self, script):
        return subprocess.run([LIB / "guard.py", "sh", "-c", script], env=UNGUARDED, timeout=PATIENCE_S, check=False).returncode

    def test_a_pass_and_a_skip_go_through(self):
        self.assertEqual([self.code("exit 0"), self.code("exit 77")], [0, 77])

    def test_a_process_that_is_ending_is_waited_for(self):
        self.assertEqual(self.code("setsid sleep 0.3 & exit 0"), 0)

    def test_what_cannot_be_run_is_told(self):
        done = subprocess.run([LIB / "guard.py", "/nowhere/test"], env=UNGUARDED, text=True, capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 127)
        self.assertIn("/nowhere/test cannot be run", done.stdout)

    def test_what_hangs_is_shown(self):
        script = f"""import sys; sys.path.insert(0, {str(LIB)!r})
import unittest, guard
guard.enter()
class Hangs(unittest.TestCase):
    def test_a_place(self):
        self.assertEqual(sys.stdin.read(1), "x")
unittest.main()"""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(script)
            file.flush()
            test = subprocess.Popen([LIB / "guard.py", sys.executable, file.name], env=dict(UNGUARDED, MUSTER_TEST_HANG_S="0.5"), text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(test.communicate)
            self.addCleanup(test.kill)
            wanted = {"of the guard": rf"guard: process \d+: [SR] \S+: .*{file.name}\n", "of Python": r'File ".*", line \d+, in test_a_place\n'}
            while wanted:
                line = test.stdout.readline()
                self.assertNotEqual(line, "", wanted)
                wanted = {whose: pattern for whose, pattern in wanted.items() if not re.search(pattern, line)}
            test.communicate("x", timeout=PATIENCE_S)
            self.assertEqual(test.returncode, 0)

    def test_signals_do_what_they_usually_do(self):
        def ignore():
            for number in guard.USUAL_SIGNALS:
                signal.signal(number, signal.SIG_IGN)

        script = "for n in HUP INT QUIT TERM; do sh -c \"kill -$n \\$\\$; exit 0\"; echo $?; done"
        done = subprocess.run([LIB / "guard.py", "sh", "-c", script], env=UNGUARDED, text=True, capture_output=True, timeout=PATIENCE_S,
                              preexec_fn=ignore, check=False)
        self.assertEqual(done.stdout.split(), [str(128 + n) for n in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)], done)

    def test_a_script_enters_by_itself(self):
        script = f"import sys; sys.path.insert(0, {str(LIB)!r}); import guard; guard.enter(); import os; sys.exit('TEST_GUARD' not in os.environ)"
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(script)
            file.flush()
            self.assertEqual(subprocess.run([sys.executable, file.name], env=UNGUARDED, timeout=PATIENCE_S, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main()
