#!/usr/bin/env python3
"""A joiner that fetches before it is admitted, kill -9 of it and of a member that serves it, and `muster bench join`."""
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import MUSTER, Job, every, ok

FROZEN = 3 << 20  # elements of 8 bytes: 24 MiB


def has_come(joiner, begun, members):
    """Whether it takes part in the step. The size does not tell: a member that was just killed may be counted."""
    return joiner is not None and joiner not in members and begun[0]["joined"] > 0


class Joins(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)
        self.step = 0

    def start(self, size):
        self.members = self.job.members(size, state=(("frozen", FROZEN), ("head", 8)))
        for _ in range(3):
            self.train()

    def train(self, joiner=None):
        """One step of all; a joiner that takes part in it is a member from then on."""
        while True:
            begun = every(self.members, "begin")
            if has_come(joiner, begun, self.members):
                self.assertEqual(ok(joiner.hear())["step"], begun[0]["step"])
                self.members.append(joiner)
            for member in self.members:
                member.tell("all_reduce 1 3")
            if all(line.startswith("ok ") for line in [member.hear() for member in self.members]):
                break
        self.step = int(begun[0]["step"])
        every(self.members, f"change head {self.step}")
        every(self.members, "commit")

    def start_joiner(self, rank, size):
        joiner = self.job.puppet(rank, size)
        joiner.ok("open 0")
        joiner.ok(f"register frozen {FROZEN} 77")
        joiner.ok("register head 8 77")
        joiner.tell("begin")
        return joiner

    def train_until_joined(self, joiner):
        while joiner not in self.members:
            self.train(joiner)
        self.train()
        digests = {answer["digest"] for answer in every(self.members, "digest")}
        self.assertEqual(len(digests), 1, digests)
        self.assertEqual(joiner.ok("get frozen")["value"], 1)
        self.assertEqual(joiner.ok("get head")["value"], self.step)

    def test_a_joiner_has_the_state_of_the_others(self):
        self.start(3)
        self.members.pop().kill()
        self.train_until_joined(self.start_joiner(2, 3))

    def test_kills_while_a_joiner_fetches_stop_nobody(self):
        """After so many steps of the others, most of them before its admission."""
        self.start(3)
        for steps in (0, 1, 2, 4, 8):
            for victim in ("joiner", "member"):
                self.members.pop().kill()
                joiner = self.start_joiner(2, 3)
                for _ in range(steps):
                    self.train(joiner)
                if victim == "joiner" and joiner in self.members:
                    self.members.remove(joiner)
                if victim == "joiner":
                    joiner.kill()
                    joiner = self.start_joiner(2, 3)
                    self.train_until_joined(joiner)
                    continue
                self.members.pop(1).kill()
                self.train_until_joined(joiner)
                again = self.start_joiner(1, 3)
                self.train_until_joined(again)
                self.members.sort(key=lambda member: member.rank)

    def test_a_joiner_reads_a_state_that_changes_as_a_whole(self):
        """In the members' memory, where they are on one host and nobody forbids it."""
        for variables, is_read in (({}, True), ({"MUSTER_READ_MEMORY": "off"}, False), ({"MUSTER_WIRE": "tcp"}, False)):
            with self.subTest(**variables):
                self.job = Job()
                self.addCleanup(self.job.stop)
                self.members = self.job.members(3, state=(("frozen", FROZEN),), **variables)
                for _ in range(2):
                    self.train_whole()
                self.members.pop().kill()
                joiner = self.job.puppet(2, 3, MUSTER_LOG_LEVEL="info", **variables)
                joiner.ok("open 0")
                joiner.ok(f"register frozen {FROZEN} 77")
                joiner.tell("begin")
                while joiner not in self.members:
                    self.train_whole(joiner)
                self.assertEqual(len({answer["digest"] for answer in every(self.members, "digest")}), 1)
                line = next(line for line in joiner.errors if " caught_up " in line)
                read = int(re.search(r"bytes_read=(\d+)", line).group(1))
                self.assertEqual(read, FROZEN * 8 if is_read else 0, line)

    def train_whole(self, joiner=None):
        begun = every(self.members, "begin")
        if has_come(joiner, begun, self.members):
            ok(joiner.hear())
            self.members.append(joiner)
        every(self.members, "commit")

    def test_a_joiner_with_other_tensors_is_refused_before_it_is_admitted(self):
        self.start(2)
        joiner = self.job.puppet(2, 3)
        joiner.ok("open 0")
        joiner.ok(f"register frozen {FROZEN - 1} 77")
        joiner.ok("register head 8 77")
        self.assertRegex(joiner.ask("begin"), r'^INVALID_ARGUMENT .*state tensor "frozen" has ')
        self.train()
        self.assertEqual(every(self.members, "begin")[0]["epoch"], 1)


class Bench(unittest.TestCase):
    def test_the_cost_of_a_join_is_measured(self):
        done = subprocess.run([MUSTER, "bench", "join", "-n", "2", "--bytes", "8M", "--changing", "256K", "--compute", "1ms",
                               "--idle", "1ms", "--joins", "2", "--json"], capture_output=True, text=True, timeout=1000, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        for key, value in {"bench": "join", "members": 2, "bytes": 8 << 20, "changing_bytes": 256 << 10, "named": True,
                           "compute_ms": 1, "idle_ms": 1, "joins": 2, "identical": True}.items():
            self.assertEqual(result[key], value, done.stdout)
        for key in ("step_ms", "longest_without_ms", "ahead_ms", "admission_ms", "over_ms", "joined_s"):
            self.assertLessEqual(result[key]["median"], result[key]["max"], done.stdout)
        self.assertGreater(result["step_ms"]["median"], 2)
        self.assertIn(result["within"], range(3))

    def test_its_worker_is_not_for_people(self):
        done = subprocess.run([MUSTER, "bench", "join-worker"], capture_output=True, text=True, timeout=1000, check=False,
                              env={k: v for k, v in os.environ.items() if k != "MUSTER_BENCH_JOIN_FILE"})
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("its memory must be mapped by `muster bench join`", done.stderr)


if __name__ == "__main__":
    unittest.main()
