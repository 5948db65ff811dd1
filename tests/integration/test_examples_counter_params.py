#!/usr/bin/env python3
"""examples/counter_params: processes that push to the same rows of `muster params serve` at once lose and double nothing; docs/params.md
shows the program word for word."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import BINARIES, PATIENCE_S, ParamsCluster, page_shows

PROGRAM = os.path.join(BINARIES, "counter_params")
PROCESSES = 3


class CounterParams(ParamsCluster):
    def test_processes_that_push_to_the_same_rows_lose_and_double_nothing(self):
        _, address = self.serve()
        running = [self.start(PROGRAM, address) for _ in range(PROCESSES)]
        ends = [process.communicate(timeout=PATIENCE_S) + (process.returncode,) for process in running]
        self.assertEqual([(err, code) for _, err, code in ends], [("", 0)] * PROCESSES)
        # The process that pulled last has seen the pushes of all.
        totals = sorted([int(word) for word in out.split()[1:]] for out, _, _ in ends)
        self.assertEqual(totals[-1], [100 * PROCESSES] * 4)

    def test_an_address_without_a_server_is_an_error_with_a_text(self):
        done = subprocess.run([PROGRAM, "nonsense"], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn("counter_params: ", done.stderr)

    def test_the_page_shows_the_program_word_for_word(self):
        self.assertTrue(page_shows("params.md", "counter_params.c"))


if __name__ == "__main__":
    unittest.main()
