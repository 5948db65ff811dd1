#!/usr/bin/env python3
"""The first begin of a new job, in real processes that meet at a `muster registry`: all members get one member's state, whole,
whoever dies while it is given out."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import PATIENCE_S, Job, each, every, ok


class Case(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def members(self, size, state, kills=None, **variables):
        """`size` members, each with its own values in all tensors; those named in kills die at that point of the first begin."""
        members = [self.job.puppet(rank, size, **variables,
                                   **({"MUSTER_KILL": f"step=0,chunk={kills[rank]}"} if rank in (kills or {}) else {}))
                   for rank in range(size)]
        every(members, "open")
        for name, count in state:
            each(members, lambda m: f"register {name} {count} {m.rank + 1}")
        return members

    def end(self, members):
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()


class Large(Case):
    ELEMENTS = 4_200_001  # 9 pieces of at most 4 MiB, 8 of them in one call

    def test_all_have_all_of_it(self):
        for wire in ("auto", "tcp"):
            with self.subTest(wire=wire):
                state = (("small", 3), ("large", self.ELEMENTS), ("none", 0), ("other", 700_001))
                members = self.members(3, state, MUSTER_JOB=wire, MUSTER_WIRE=wire)
                every(members, "begin")
                self.assertEqual(len({got["digest"] for got in every(members, "digest")}), 1)
                for name, _ in state:
                    self.assertEqual({got["value"] for got in every(members, f"get {name}")}, {1 if name != "none" else 0})
                self.end(members)

    def test_of_three_on_a_host_nobody_copies_its_own(self):
        """The last one is given the values when the others have them, by way of 8 pieces of 4 MiB."""
        def peak_mib(member):
            with open(f"/proc/{member.child.pid}/status", encoding="ascii") as file:
                return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) >> 10
        members = self.members(3, (("large", 12_000_001),))  # 92 MiB
        before = [peak_mib(member) for member in members]
        every(members, "begin")
        self.assertEqual({got["value"] for got in every(members, "get large")}, {1})
        growth = [peak_mib(member) - mib for member, mib in zip(members, before)]
        self.assertLess(growth[2] - growth[1], 60)
        self.end(members)

    def test_a_begin_that_takes_long_says_what_it_waits_for(self):
        members = self.members(2, (("total", 8),))
        members[0].tell("begin")
        while not any("begin_waits" in line and "the initial state, 0 of" in line for line in members[0].errors):
            self.assertFalse(members[0].has_answered())
            time.sleep(0.02)
        members[1].ok("begin")
        ok(members[0].hear())
        every(members, "commit")
        self.end(members)


class Deaths(Case):
    STATE = (("small", 3), ("large", 2_500_001), ("other", 2_500_001))  # 11 pieces of at most 4 MiB, 8 of them in one call

    def begin(self, members, doomed):
        """The answer of each to its first begin; None: it died there."""
        for member in members:
            member.tell("begin")
        return [member.answers.get(timeout=PATIENCE_S) if member.rank in doomed else member.hear() for member in members]

    def one_state(self, members):
        """The member whose values they have, in all tensors."""
        values = {got["value"] for name, _ in self.STATE for got in every(members, f"get {name}")}
        self.assertEqual(len(values), 1, values)
        self.assertNotIn("mixed", values)
        self.assertEqual(len({got["digest"] for got in every(members, "digest")}), 1)
        return values.pop() - 1

    def die(self, size, kills, wire="auto"):
        """Members die at points of their first begin, where each copy of 128 KiB has two; returns who did, and whose state the
        others have."""
        name = "-".join([wire, str(size), *(f"{rank}at{point}" for rank, point in kills.items())])
        members = self.members(size, self.STATE, kills, MUSTER_JOB=name, MUSTER_WIRE=wire)
        answers = self.begin(members, kills)
        rest = [member for member, answer in zip(members, answers) if answer is not None]
        for answer in answers:
            self.assertTrue(answer is None or ok(answer)["step"] == 1)
        rank = self.one_state(rest)
        for got in every(rest, "all_reduce 10 4 mean"):
            self.assertEqual((got["value"], got["contributors"]), (4, len(rest)))
        every(rest, "commit")
        self.end(rest)
        return {rank for rank, answer in enumerate(answers) if answer is None}, rank

    def kill_the_giver_everywhere(self, size, wire, between):
        states = set()
        for point in range(between // 2, 10000, between):
            dead, rank = self.die(size, {0: point}, wire)
            if not dead:
                self.assertEqual(rank, 0)
                break
            states.add(rank)
        self.assertGreaterEqual(point, 8 * between)
        self.assertIn(size - 1, states)  # the one that keeps its own meanwhile

    def test_the_giver_dies_at_each_piece_of_three(self):
        self.kill_the_giver_everywhere(3, "auto", 66)

    def test_the_giver_dies_at_each_piece_of_four(self):
        self.kill_the_giver_everywhere(4, "auto", 66)

    def test_the_giver_dies_at_each_piece_over_tcp(self):
        self.kill_the_giver_everywhere(3, "tcp", 12)

    def test_when_nobody_is_whole_begin_fails(self):
        """The giver dies, then the next one, the only one whose own values were kept."""
        lost = 0
        for point in range(300, 1200, 150):
            members = self.members(4, self.STATE, {0: 400, 3: point}, MUSTER_JOB=f"lost{point}")
            answers = self.begin(members, (0, 3))
            rest = [member for member, answer in zip(members, answers) if answer is not None]
            if answers[1].startswith("ok"):
                self.one_state(rest)
                continue
            for member in rest:
                self.assertRegex(answers[member.rank], "^UNAVAILABLE the initial state is lost: ")
            self.assertNotIn(members[3], rest)
            lost += 1
        self.assertGreaterEqual(lost, 1)

    def test_who_comes_meanwhile_gets_the_same(self):
        members = self.members(3, self.STATE, {0: 400})
        for member in members:
            member.tell("begin")
        members[0].child.wait()
        members[0] = self.job.puppet(0, 3)
        members[0].ok("open")
        for name, count in self.STATE:
            members[0].ok(f"register {name} {count} 9")
        members[0].tell("begin")
        for member in members[1:]:
            ok(member.hear())
        while not members[0].has_answered():
            every(members[1:], "commit")
            every(members[1:], "begin")
        self.assertEqual(ok(members[0].hear())["restored"], 1)
        self.assertEqual(self.one_state(members), 2)
        every(members, "commit")
        self.end(members)


if __name__ == "__main__":
    unittest.main()
