#!/usr/bin/env python3
"""The command lines of the examples: what is wrong is named and ends with 2; --help is a page and ends with 0."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

BINARIES = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin")
PATIENCE_S = 120

PAGES = {
    "cache": (["--lisen", "127.0.0.1:0"], ["--listen"], ["--listen", "nonsense"], ["--listen="], ["--megabytes", "10x"], ["--megabytes=-1"],
              ["--megabytes=0"], ["--megabytes=99999999999999999999"], ["stray"]),
    "job_queue": ([], ["--registry"], ["--registry="], ["--registy", "127.0.0.1:1"], ["--registry", "127.0.0.1:1", "--listen", "nonsense"],
                  ["--registry", "127.0.0.1:1", "stray"]),
    "proxy": ([], ["--to"], ["--to="], ["--too", "127.0.0.1:1"], ["--to", "127.0.0.1:1", "--listen", "127.0.0.1:99999"], ["--to", "127.0.0.1:1", "stray"]),
    "classify": ([], ["--registry="], ["--registry", "127.0.0.1:1", "--min-version", "0"], ["--registry", "127.0.0.1:1", "stray"]),
    "classify_train": ([], ["--registry", "127.0.0.1:1", "--pause", "soon"], ["--registry", "127.0.0.1:1", "--data", "/nonexistent/digits.csv"]),
    "factorize": (["--worker", "4"], ["--workers", "0"], ["--passes", "0"], ["--staleness=-1"], ["--data", "/nonexistent/glosses.txt"], ["stray"]),
    "digits": (["--steps"], ["--steps", "0"], ["--steps", "10x"], ["--steps=-1"], ["--batch", "many"], ["--batch="], ["--learning-rate", "fast"],
               ["--momentum", "0.9x"], ["--micro-batches", "65537"], ["--batch", "10", "--micro-batches", "3"], ["--data="], ["--stepps", "3"], ["stray"], ["--data", "/nonexistent/digits.csv"]),
}
USAGE = {"leader": (["--help"], ["a", "b"], [""]), "embed_epoll": ([], ["serve"], ["serve", "nonsense"], ["--help"]),
         "embed_libevent": ([], ["ask"])}


def run(program, *args):
    return subprocess.run([os.path.join(BINARIES, program), *args], text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)


class Options(unittest.TestCase):
    def test_what_is_wrong_ends_with_2(self):
        for program, cases in (PAGES | USAGE).items():
            for args in cases:
                with self.subTest(program, args=args):
                    done = run(program, *args)
                    self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                    self.assertIn(self.culprit(program, args), done.stderr)

    @staticmethod
    def culprit(program, args):
        if not args or program in USAGE and "nonsense" not in args:
            return "usage"
        options = [arg.split("=")[0] for arg in args if arg.startswith("--")]
        return args[-1] if args[-1] == "stray" or not options else options[-1]

    def test_help_is_a_page(self):
        for program in PAGES:
            done = run(program, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"Usage: {program} ", done.stdout)


if __name__ == "__main__":
    unittest.main()
