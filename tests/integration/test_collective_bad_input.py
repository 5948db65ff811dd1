#!/usr/bin/env python3
"""Collectives that are called wrongly, in real processes over either wire: an error on every rank that names the two
sides, within the deadline, the memory as it was; and the members go on."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, each, every, ok


class Calls:
    """For each wire."""
    WIRE = ""

    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def started(self, size, **options):
        members = self.job.members(size, MUSTER_WIRE=self.WIRE, **options)
        for got in every(members, "begin"):
            self.assertEqual((got["step"], got["size"]), (1, size))
        return members

    def answers(self, members, commands):
        for member, command in zip(members, commands):
            if command is not None:
                member.tell(command)
        return [member.hear() if command is not None else None for member, command in zip(members, commands)]

    def check_both_named(self, commands, sides, size=3):
        """All ranks end, and each says what two sides have called; then they work together again."""
        members = self.started(size)
        for line in self.answers(members, commands):
            self.assertRegex(line, r"^INVALID_ARGUMENT all_reduce: ")
            self.assertTrue(any(side in line for side in sides[:1]) and any(side in line for side in sides[1:]), line)
            self.assertTrue(line.endswith("intact=1"), line)
        self.check_usable(members)

    def check_usable(self, members):
        every(members, "begin")
        for got in each(members, lambda m: f"all_reduce 1000 {m.rank + 1}"):
            self.assertEqual(got["value"], sum(range(1, len(members) + 1)))
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def test_another_count(self):
        for count in (10, 100000):
            with self.subTest(count=count):
                self.check_both_named([f"all_reduce_packed f32 {count} sum 1 0"] * 2 +
                                      [f"all_reduce_packed f32 {count + 1} sum 1 0"],
                                      [f"(sum, f32 x {count})", f"(sum, f32 x {count + 1})"])

    def test_another_type(self):
        self.check_both_named(["all_reduce_packed f32 1000 sum 1 0"] * 2 + ["all_reduce_packed i32 1000 sum 1 0"],
                              ["f32 x 1000", "i32 x 1000"])

    def test_another_reduction(self):
        self.check_both_named(["all_reduce_packed f32 50000 max 1 0", "all_reduce_packed f32 50000 sum 1 0",
                               "all_reduce_packed f32 50000 max 1 0"], ["(max, f32", "(sum, f32"])

    def test_another_number_of_tensors_in_a_pack(self):
        self.check_both_named(["all_reduce_packed f32 10 sum 4 1000"] * 2 + ["all_reduce_packed f32 10 sum 3 1000"],
                              ["f32 x 40", "f32 x 30"])

    def test_packs_of_another_size(self):
        """Rank 2 has more packs: those that the others do not have are cancelled, and end for the others, too, when they
        come to the same operation."""
        members = self.started(3)
        for line in self.answers(members, ["all_reduce_packed f32 10 sum 4 1000"] * 2 + ["all_reduce_packed f32 10 sum 4 40"]):
            self.assertRegex(line, r"^(INVALID_ARGUMENT all_reduce: .*f32 x [24]0.*f32 x [24]0|ABORTED all_reduce: .*had not called).*intact=1$")
        every(members, "begin")
        for line in self.answers(members, ["all_reduce 1000 1"] * 2 + [None])[:2]:
            self.assertRegex(line, r"^ABORTED all_reduce: ")
        self.check_usable(members)

    def test_another_order(self):
        members = self.started(2)
        lines = self.answers(members, ["all_reduce 1000 1", "barrier"])
        for line in lines:
            self.assertRegex(line, r"^INVALID_ARGUMENT ")
            self.assertIn("all_reduce(sum, f64 x 1000)", line)
            self.assertIn("barrier()", line)
        self.check_usable(members)

    def test_a_weight_where_another_has_none(self):
        members = self.started(2)
        for line in self.answers(members, ["all_reduce_weighted 1000 1 3", "all_reduce 1000 1 mean"]):
            self.assertRegex(line, r"^INVALID_ARGUMENT all_reduce: ")
            self.assertIn("(weighted mean, f64 x 1000)", line)
            self.assertIn("(mean, f64 x 1000)", line)
        self.check_usable(members)

    def test_a_rank_that_never_calls(self):
        members = self.started(3, op_timeout_s=1)
        for line in self.answers(members, ["all_reduce_packed f32 100000 sum 1 0"] * 2 + [None])[:2]:
            # A busy machine may be late to say that rank 1 has called.
            self.assertRegex(line, r"^(DEADLINE_EXCEEDED|ABORTED) all_reduce: .*rank (2 \(worker:2\)|1 .*has not answered)")
            self.assertTrue(line.endswith("intact=1"), line)
        self.assertRegex(members[2].ask("all_reduce_packed f32 100000 sum 1 0"), r"^ABORTED .*rank 2 .*intact=1$")
        self.check_usable(members)

    def test_a_timeout_of_one_call(self):
        members = self.started(2)
        line = members[0].ask("all_reduce_packed f32 100 sum 2 1000 0.3")
        self.assertRegex(line, r"^DEADLINE_EXCEEDED all_reduce: .*rank 1 \(worker:1\).*intact=1$")
        self.assertRegex(members[1].ask("all_reduce_packed f32 100 sum 2 1000 0.3"), r"^ABORTED .*intact=1$")
        self.check_usable(members)

    def test_a_reduction_without_a_meaning(self):
        members = self.started(2)
        for line in self.answers(members, ["all_reduce_packed bool 10 sum 1 0"] * 2):
            self.assertRegex(line, r"^INVALID_ARGUMENT all_reduce of tensor 0: sum of bool has no meaning")
        self.check_usable(members)

    def test_no_elements_and_packs(self):
        members = self.started(2)
        for got in every(members, "all_reduce 0 1"):
            self.assertEqual(got["contributors"], 2)
        for packs in (1, 100, 100000):
            for got in every(members, f"all_reduce_packed u8 333 sum 20 {packs}"):
                self.assertEqual((got["first"], got["last"]), (2, 2))
        for got in each(members, lambda m: f"all_reduce_weighted 5000 {m.rank + 1} {3 - 2 * m.rank}"):
            self.assertEqual((got["value"], got["weight"]), (1.25, 4))
        self.check_usable(members)

    def test_one_member_alone(self):
        members = self.started(1)
        self.assertEqual(members[0].ok("all_reduce_packed u8 100 mean 3 10")["last"], 1)
        self.assertEqual(members[0].ok("all_reduce_weighted 10 3 7")["value"], 3)
        self.check_usable(members)


class OverTcp(Calls, unittest.TestCase):
    WIRE = "tcp"


class OneHost(Calls, unittest.TestCase):
    WIRE = "auto"


if __name__ == "__main__":
    unittest.main()
