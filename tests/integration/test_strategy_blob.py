#!/usr/bin/env python3
"""Blobs of a strategy in real processes: a new job, deaths, returns, and a new job from a checkpoint."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, ask_every, each, every, ok

MIB = 1 << 20


class Blobs(unittest.TestCase):
    VARIABLES = {}

    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def opened(self, rank, size, first=None, blobs=("extra", "notes"), **variables):
        """`first`: size and value of the first blob, which is set before the first begin."""
        member = self.job.puppet(rank, size, **self.VARIABLES, **variables)
        member.ok("open")
        member.ok(f"register_blob {blobs[0]}")
        member.ok("register total 8 1")
        for name in blobs[1:]:
            member.ok(f"register_blob {name}")
        if first:
            member.ok(f"set_blob {blobs[0]} {first[0]} {first[1]}")
        return member

    def blobs(self, members, name):
        return {(got["size"], got.get("value")) for got in every(members, f"blob {name}")}

    def step(self, members, *commands):
        """A step of these commands that has an operation, too."""
        every(members, "all_reduce 10 1")
        for command in commands:
            every(members, command)
        every(members, "commit")
        return every(members, "begin")

    def end(self, members):
        every(members, "commit")
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def test_all_of_a_new_job_begin_with_those_of_rank_0(self):
        for sizes in ((100, 7, 300000), (0, 5000, 3), (3 * MIB, 0, 1)):
            self.setUp()
            members = [self.opened(rank, 3, (size, 10 + rank)) for rank, size in enumerate(sizes)]
            every(members, "begin")
            self.assertEqual(self.blobs(members, "extra"), {(sizes[0], 10 if sizes[0] else None)})
            self.assertEqual(self.blobs(members, "notes"), {(0, None)})
            self.end(members)

    def test_who_comes_back_is_given_what_has_grown_and_shrunk(self):
        members = [self.opened(rank, 3, (100, 1)) for rank in range(3)]
        every(members, "begin")
        self.step(members, "set_blob extra 700000 2", "set_blob notes 10 3")
        self.step(members, "set_blob extra 5 4")
        every(members, "set_blob extra 6 5")  # of the step that is under way
        members[2].kill()
        newcomer = self.opened(2, 3, (1000, 9))
        newcomer.tell("begin")
        for _ in range(10000):
            every(members[:2], "all_reduce 10 1")
            every(members[:2], "commit")
            if every(members[:2], "begin")[0]["size"] == 3:
                break
        ok(newcomer.hear())
        members[2] = newcomer
        self.assertEqual(self.blobs(members, "extra"), {(6, 5)})
        self.assertEqual(self.blobs(members, "notes"), {(10, 3)})
        self.step(members, "set_blob notes 0 0")
        self.assertEqual(self.blobs(members, "notes"), {(0, None)})
        self.end(members)

    def test_two_that_come_back_at_once_are_given_the_same(self):
        members = [self.opened(rank, 4, (100, 1)) for rank in range(4)]
        every(members, "begin")
        self.step(members, "set_blob extra 100000 2")
        for member in members[2:]:
            member.kill()
        newcomers = [self.opened(rank, 4) for rank in (2, 3)]
        for newcomer in newcomers:
            newcomer.tell("begin")
        del members[2:]
        while newcomers:
            every(members, "all_reduce 10 1")
            every(members, "commit")
            size = every(members, "begin")[0]["size"]
            while len(members) < size:  # those that came with this step have its operations, too
                for newcomer in [each for each in newcomers if each.has_answered()]:
                    ok(newcomer.hear())
                    newcomers.remove(newcomer)
                    members.append(newcomer)
        self.assertEqual(self.blobs(members, "extra"), {(100000, 2)})
        self.end(members)

    def test_a_member_without_the_blob_is_told(self):
        members = [self.opened(rank, 3, (10, 1)) for rank in range(2)] + [self.opened(2, 3, blobs=("extra", "other"))]
        for member in members:
            member.tell("begin")
        self.assertRegex(members[2].hear(), "^INVALID_ARGUMENT .*\"(other|notes)\"")
        every_line = [ok(member.hear()) for member in members[:2]]
        self.assertEqual({got["step"] for got in every_line}, {1})

    def test_a_new_job_begins_with_those_of_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            members = [self.opened(rank, 2, (10, 1)) for rank in range(2)]
            every(members, "begin")
            self.step(members, "set_blob extra 300000 6", "set_blob notes 3 7")
            every(members, f"checkpoint {folder}")
            self.end(members)
            self.setUp()
            members = [self.opened(rank, 3, (9, 9)) for rank in range(3)]
            every(members, f"restore {folder}")
            self.assertEqual({got["step"] for got in every(members, "begin")}, {2})
            self.assertEqual(self.blobs(members, "extra"), {(300000, 6)})
            self.assertEqual(self.blobs(members, "notes"), {(3, 7)})
            self.end(members)

    def test_limits_are_told(self):
        member = self.opened(0, 1)
        for line in ask_every([member], "set_blob other 1 1"):
            self.assertRegex(line, "^NOT_FOUND there is no blob other")
        member.ok(f"set_blob notes {8 * MIB} 1")
        self.assertRegex(member.ask("set_blob extra 1 1"), "^RESOURCE_EXHAUSTED .*at most 8388608 bytes together, got 8388609")
        self.assertRegex(member.ask("register_blob total"), "^ALREADY_EXISTS")
        member.ok("begin")
        member.ok("commit")
        self.assertRegex(member.ask("set_blob extra 1 1"), "^FAILED_PRECONDITION .*between begin and commit")
        self.assertRegex(member.ask("register_blob late"), "^FAILED_PRECONDITION .*before the first begin")


class OverTcp(Blobs):
    VARIABLES = {"MUSTER_WIRE": "tcp"}


if __name__ == "__main__":
    unittest.main(verbosity=2)
