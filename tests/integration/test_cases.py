#!/usr/bin/env python3
"""No case passes without an assertion, in C and in Python; what is skipped is told with its reason at the end of a run."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LIB = pathlib.Path(__file__).resolve().parents[1] / "lib"
sys.path.insert(0, str(LIB))
import guard

guard.enter()
import skips

BUILD = pathlib.Path(os.environ["MUSTER_BINARY_DIR"])
PROGRAMS = BUILD / "tests" / "programs"
EMPTY_CASE = PROGRAMS / "empty_case"
SCRIPT = f"""
import sys, unittest
sys.path.insert(0, "{LIB}")
import guard
guard.enter()
class Case(unittest.TestCase):
    def test_something(self):
        self.assertEqual(1, 1)
    def test_nothing(self):
        pass
    @unittest.skip("this case is always skipped")
    def test_skipped(self):
        pass
unittest.main()
"""
SIDE_BY_SIDE = f"""
import os, sys, time, unittest
sys.path.insert(0, "{LIB}")
import guard
guard.enter()
import cases
HERE = os.path.dirname(os.path.abspath(__file__))
class Both(unittest.TestCase):
    def meet(self, own, other):
        open(os.path.join(HERE, own), "w").close()
        while not os.path.exists(os.path.join(HERE, other)):
            time.sleep(0.01)
        self.assertNotEqual(own, other)
    def test_one(self):
        self.meet("one", "two")
    def test_two(self):
        self.meet("two", "one")
class Bad(unittest.TestCase):
    def test_fails(self):
        self.assertEqual("this", "that")
    def test_nothing(self):
        pass
    @unittest.skip("this case is always skipped")
    def test_skipped(self):
        pass
if __name__ == "__main__":
    cases.main()
"""
LOG = """Start testing: today
1/4 Testing: net.a
1/4 Test: net.a
Output:
skipped: case_one: this case is always skipped
not here: go: go is not installed
skipped: case_two: this case is always skipped
2/4 Testing: net.b
skipped: a daemon
"""


class Cases(unittest.TestCase):
    def test_a_case_of_cmocka_that_asserts_nothing_fails(self):
        done = subprocess.run([EMPTY_CASE], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("case_asserts_nothing passes without an assertion", done.stderr)
        self.assertIn("skipped: case_is_skipped: this case is always skipped\n", done.stdout)
        self.assertRegex(done.stderr + done.stdout, r"OK \] case_asserts_something")

    def test_a_case_of_unittest_that_asserts_nothing_fails(self):
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("test_nothing passes without an assertion", done.stderr)
        self.assertIn("skipped: Case.test_skipped: this case is always skipped\n", done.stdout)
        self.assertIn("FAILED (failures=1, skipped=1)", done.stderr)

    def test_cases_side_by_side_are_told_as_those_of_one_process(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(SIDE_BY_SIDE, encoding="utf-8")
            for words, code, texts in (
                (["Both"], 0, ["2 cases, 0 failed\n"]),
                ([], 1, ["5 cases, 2 failed\n", "\n  Bad.test_fails\n", "\n  Bad.test_nothing\n", "'this' != 'that'",
                         "test_nothing passes without an assertion", "skipped: Bad.test_skipped: this case is always skipped\n"]),
                (["Bad.test_skipped"], 0, ["OK (skipped=1)"]),
                (["Absent"], 1, ["1 cases, 1 failed\n", "has no attribute 'Absent'"]),
            ):
                done = subprocess.run([sys.executable, script, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                self.assertEqual(done.returncode, code, done.stdout)
                for text in texts:
                    self.assertIn(text, done.stdout)


class Sanitizers(unittest.TestCase):
    def test_undefined_behaviour_ends_a_program_and_names_its_line(self):
        if not re.search("^MUSTER_SANITIZE:.*undefined", (BUILD / "CMakeCache.txt").read_text(encoding="utf-8"), re.M):
            self.skipTest("this build has no sanitizer of undefined behaviour")
        good, bad = (subprocess.run([PROGRAMS / "overflow", number], capture_output=True, text=True, check=False) for number in ("3", "2147483647"))
        self.assertEqual((good.returncode, good.stdout), (0, "6\n"))
        self.assertEqual((bad.returncode, bad.stdout), (1, ""))
        self.assertRegex(bad.stderr, r"overflow\.c:9\b")


class Skips(unittest.TestCase):
    def test_reasons_are_told_with_their_tests(self):
        found = skips.skips_of(LOG)
        self.assertEqual({reason: list(names) for reason, names in found.items()}, {
            "case_one: this case is always skipped": ["net.a"], "go: go is not installed": ["net.a"], "case_two: this case is always skipped": ["net.a"],
            "a daemon": ["net.b"]})
        self.assertIn("Skipped, for 4 reasons:\n", skips.report(found))
        self.assertIn("\n  a daemon\n    net.b", skips.report(found))

    def test_a_run_that_skipped_nothing_says_so(self):
        self.assertEqual(skips.report(skips.skips_of("1/1 Testing: net.a\nOK\n")), "Nothing was skipped.")

    def test_without_a_log_it_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([LIB / "skips.py", folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("must be the log of a run of ctest, but is not there; run ./tools/test", done.stderr)


if __name__ == "__main__":
    unittest.main()
