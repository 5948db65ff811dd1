#!/usr/bin/env python3
"""Splits of a strategy in real processes: groups among themselves, deaths, returns, and pipelines."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, ask_every, each, every, ok


class Splits(unittest.TestCase):
    VARIABLES = {}

    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def opened(self, rank, size):
        member = self.job.puppet(rank, size, **self.VARIABLES)
        for command in ("open", "register total 8 1", "split column", "split row"):
            member.ok(command)
        return member

    def begun(self, size=4):
        members = [self.opened(rank, size) for rank in range(size)]
        every(members, "begin")
        return members

    def end(self, members):
        every(members, "commit")
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def sums(self, members, kind, color, count=10):
        """Each adds 1 + its rank; what each group must have."""
        groups = {}
        for member in members:
            groups.setdefault(color(member.rank), []).append(member.rank)
        for member, got in zip(members, each(members, lambda m: f"split_all_reduce {kind} {count} {1 + m.rank}")):
            group = groups[color(member.rank)]
            self.assertEqual((got["value"], got["contributors"]), (sum(1 + rank for rank in group), len(group)))

    def all_sums(self, members):
        for count in (10, 300000):
            self.sums(members, "column", lambda rank: rank % 2, count)
            self.sums(members, "row", lambda rank: rank // 2, count)

    def test_groups_of_columns_and_rows_reduce_among_themselves(self):
        members = self.begun()
        self.assertEqual([got["rank"] for got in every(members, "split_place column")], [0, 0, 1, 1])
        self.assertEqual([got["rank"] for got in every(members, "split_place row")], [0, 1, 0, 1])
        self.all_sums(members)
        for got in every(members, "all_reduce 10 1"):
            self.assertEqual(got["value"], 4)
        self.end(members)

    def test_every_operation_is_counted_within_the_group(self):
        members = self.begun()
        self.assertEqual([got["value"] for got in each(members, lambda m: f"split_broadcast column 10 {m.rank} 1")],
                         [2, 3, 2, 3])
        self.assertEqual([got["value"] for got in each(members, lambda m: f"split_reduce row 10 {1 + m.rank} 0")],
                         [3, 2, 7, 4])
        self.assertEqual([got["parts"] for got in each(members, lambda m: f"split_all_gather column 10 {1 + m.rank}")],
                         ["1,3", "2,4", "1,3", "2,4"])
        self.assertEqual([got["parts"] for got in each(members, lambda m: f"split_all_to_all row 5 {10 * m.rank}")],
                         ["0,10", "1,11", "20,30", "21,31"])
        every(members, "split_barrier row")
        for line in ask_every(members, "split_broadcast row 1 1 2"):
            self.assertRegex(line, "^INVALID_ARGUMENT .*no rank 2, the last is 1")
        self.end(members)

    def test_a_group_does_not_wait_for_another(self):
        members = self.begun()
        for got in each(members[0::2], lambda m: f"split_all_reduce column 10 {m.rank}"):
            self.assertEqual(got["value"], 2)
        self.end(members)

    def test_stages_pass_on_what_they_have(self):
        members = self.begun()
        self.assertEqual([got["value"] for got in each(
            members, lambda m: f"split_exchange column 40000 {7 + m.rank} {'1 -' if m.rank < 2 else '- 0'}")],
            [0, 0, 7, 8])
        self.assertEqual([got["value"] for got in each(members, lambda m: f"split_exchange row 40000 {m.rank} "
                                                       f"{1 - m.rank % 2} {1 - m.rank % 2}")], [1, 0, 3, 2])
        self.end(members)

    def test_a_death_is_one_of_its_groups_and_one_view_decides_for_all(self):
        members = self.begun()
        self.all_sums(members)
        for member in (members[0], members[1]):
            member.tell(f"split_all_reduce column 300000 {1 + member.rank}")
        members[3].kill()
        members[2].tell("split_all_reduce column 300000 3")
        got = [ok(members[i].hear()) for i in range(3)]
        self.assertEqual([one["value"] for one in got], [4, 2, 4])
        self.assertEqual([one["contributors"] for one in got], [2, 1, 2])
        self.assertEqual(len({one["epoch"] for one in every(members[:3], "begin")}), 1)
        self.all_sums(members[:3])
        newcomer = self.opened(3, 4)
        newcomer.tell("begin")
        for _ in range(10000):
            every(members[:3], "commit")
            if every(members[:3], "begin")[0]["size"] == 4:
                break
        ok(newcomer.hear())
        self.all_sums([*members[:3], newcomer])
        self.end([*members[:3], newcomer])

    def test_a_message_to_the_dead_ends_aborted(self):
        members = self.begun()
        members[0].tell("split_exchange column 300000 1 1 -")
        members[2].kill()
        self.assertRegex(members[0].hear(), "^ABORTED exchange")
        rest = [members[0], members[1], members[3]]
        every(rest, "begin")
        self.all_sums(rest)
        self.end(rest)

    def test_who_has_no_group_is_told_and_the_others_go_on(self):
        members = [self.job.puppet(rank, 3, **self.VARIABLES) for rank in range(3)]
        for command in ("open", "register total 8 1", "split rest", "begin"):
            every(members, command)
        self.assertRegex(members[0].ask("split_all_reduce rest 1 1"), "^FAILED_PRECONDITION .*no group")
        for got in every(members[1:], "split_all_reduce rest 1 1"):
            self.assertEqual(got["value"], 2)
        self.end(members)

    def test_a_split_is_made_in_the_middle_of_a_step(self):
        members = [self.job.puppet(rank, 4, **self.VARIABLES) for rank in range(4)]
        for command in ("open", "register total 8 1", "begin"):
            every(members, command)
        members[0].ok("split column")
        members[0].tell("split_all_reduce column 300000 1")  # before rank 2 knows of the group
        for member in members[1:]:
            member.ok("split column")
        members[2].tell("split_all_reduce column 300000 3")
        self.assertEqual([ok(members[rank].hear())["value"] for rank in (0, 2)], [4, 4])
        every(members, "commit")
        every(members, "split row")
        every(members, "begin")
        self.all_sums(members)
        self.end(members)

    def test_who_comes_back_makes_the_late_splits_first(self):
        members = [self.job.puppet(rank, 4, **self.VARIABLES) for rank in range(4)]
        for command in ("open", "register total 8 1", "begin", "split column", "split row"):
            every(members, command)
        members[3].kill()
        self.all_sums(members[:3])
        newcomer = self.job.puppet(3, 4, **self.VARIABLES)
        for command in ("open", "register total 8 1"):
            newcomer.ok(command)
        newcomer.tell("begin")
        for _ in range(10000):
            every(members[:3], "commit")
            if every(members[:3], "begin")[0]["size"] == 4:
                break
        ok(newcomer.hear())
        members[1].tell("split_all_reduce column 300000 2")  # before the one that came back knows of the group
        for command in ("split column", "split row"):
            newcomer.ok(command)
        newcomer.tell("split_all_reduce column 300000 4")
        self.assertEqual([ok(member.hear())["value"] for member in (members[1], newcomer)], [6, 6])
        self.sums([*members[:3], newcomer], "row", lambda rank: rank // 2)
        self.end([*members[:3], newcomer])

    def test_a_table_says_who_is_in_which_group(self):
        members = [self.job.puppet(rank, 4, **self.VARIABLES) for rank in range(4)]
        for command in ("open", "register total 8 1", "split table 0:5 2:5 3:1", "begin"):
            every(members, command)
        self.assertEqual([got["size"] for got in every(members, "split_place table")], [2, 0, 2, 1])
        for got in each(members[0::2], lambda m: f"split_all_reduce table 10 {m.rank}"):
            self.assertEqual((got["value"], got["contributors"]), (2, 2))
        self.assertRegex(members[1].ask("split_all_reduce table 1 1"), "^FAILED_PRECONDITION .*no group")
        self.end(members)


class OverTcp(Splits):
    VARIABLES = {"MUSTER_WIRE": "tcp"}


if __name__ == "__main__":
    unittest.main(verbosity=2)
