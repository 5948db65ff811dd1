#!/usr/bin/env python3
"""Members with different numbers of replicas, and sparse gradients, in real processes: deaths amid a sum, returns, and the same bits on all."""
# Entries of ctest: Replicas OverTcp
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import PATIENCE_S, Job, ask_each, each, every, ok

SPARSE = "slices 200 3 5000"  # rows, columns, row_count
DENSE = "slices 200 3 300"


class Replicas(unittest.TestCase):
    VARIABLES = {}

    def start(self):
        job = Job()
        self.addCleanup(job.stop)
        return job

    def opened(self, job, rank, **variables):
        """Member r has r + 1 replicas."""
        member = job.puppet(rank, 3, MUSTER_REPLICAS=rank + 1, **self.VARIABLES, **variables)
        member.ok("open")
        member.ok("register total 8 1")
        return member

    def begun(self, job, **last):
        members = [self.opened(job, rank, **(last if rank == 2 else {})) for rank in range(3)]
        every(members, "begin")
        return members

    def end(self, members):
        every(members, "commit")
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def sums(self, members, first, kind=SPARSE, reduction="sum"):
        """What all have of the slices of these members, whose replicas' seeds follow from `first`."""
        answers = each(members, lambda m: f"{kind} {first + m.rank} {reduction}")
        self.assertEqual(len({tuple(sorted(one.items())) for one in answers}), 1, answers)
        return answers[0]

    def test_replicas_follow_the_members(self):
        job = self.start()
        members = self.begun(job)
        self.assertEqual([(one["first"], one["local"], one["all"]) for one in every(members, "replicas")],
                         [(0, 1, 6), (1, 2, 6), (3, 3, 6)])
        for reduction, value in (("sum", 30), ("mean", 5), ("max", 7)):  # of 3, 4, 5, 5, 6, 7
            got = each(members, lambda m, reduction=reduction: f"replicas_reduce {3 + m.rank} {reduction}")
            self.assertEqual({one["value"] for one in got}, {value}, reduction)
        members[1].kill()
        rest = [members[0], members[2]]
        for one in each(rest, lambda m: f"replicas_reduce {m.rank} mean"):
            self.assertEqual(one["value"], (0 + 2 + 3 + 4) / 4)
        every(rest, "commit")
        every(rest, "begin")
        self.assertEqual([(one["first"], one["all"]) for one in every(rest, "replicas")], [(0, 4), (1, 4)])
        newcomer = self.opened(job, 1)
        newcomer.tell("begin")
        for _ in range(10000):
            every(rest, "commit")
            if every(rest, "begin")[0]["size"] == 3:
                break
        ok(newcomer.hear())
        members = [members[0], newcomer, members[2]]
        self.assertEqual([(one["first"], one["all"]) for one in every(members, "replicas")], [(0, 6), (1, 6), (3, 6)])
        self.assertEqual(every(members, "replicas_gather 5")[0]["parts"], "5,5,6,5,6,7")
        self.end(members)

    def test_bits_do_not_depend_on_who_comes_first(self):
        members = self.begun(self.start())
        for kind, dense in ((SPARSE, 0), (DENSE, 1)):
            expected = self.sums(members, 7, kind)
            self.assertEqual((expected["dense"], expected["replicas"]), (dense, 6))
            for order in ((2, 1, 0), (1, 2, 0), (0, 2, 1)):
                for rank in order[:2]:
                    members[rank].tell(f"{kind} {7 + rank} sum")
                self.assertEqual(members[order[2]].ok(f"{kind} {7 + order[2]} sum"), expected)
                for rank in order[:2]:
                    self.assertEqual(ok(members[rank].hear()), expected)
        self.assertNotEqual(self.sums(members, 7)["bits"], self.sums(members, 7, reduction="mean")["bits"])
        self.end(members)

    def test_a_gather_of_a_dead_members_part_ends_aborted(self):
        members = self.begun(self.start())
        for rank in (0, 1):
            members[rank].tell("replicas_gather 5")
        members[2].kill()
        for rank in (0, 1):
            self.assertRegex(members[rank].hear(), "^ABORTED gather")
        every(members[:2], "begin")
        self.assertEqual(every(members[:2], "replicas_gather 5")[0]["parts"], "5,5,6")
        self.end(members[:2])

    def test_a_member_that_never_came_is_left_out(self):
        for kind in (SPARSE, DENSE):
            members = self.begun(self.start())
            for rank in (0, 1):
                members[rank].tell(f"{kind} {7 + rank} sum")
            members[2].kill()
            got = [ok(members[rank].hear()) for rank in (0, 1)]
            self.assertEqual(got[0], got[1])
            self.assertEqual(got[0]["replicas"], 3)
            self.assertEqual(self.sums(members[:2], 7, kind), got[0])
            self.end(members[:2])

    def killed(self, kind, chunk):
        """The sum of the survivors, of a member that died at its chunk-th store or frame, and what it must be: None, it did not die."""
        members = self.begun(self.start(), MUSTER_KILL=f"step=1,chunk={chunk}")
        for member in members:
            member.tell(f"{kind} {7 + member.rank} sum")
        got = [ok(members[rank].hear()) for rank in (0, 1)]
        self.assertEqual(got[0], got[1], (kind, chunk))
        said = members[2].answers.get(timeout=PATIENCE_S)
        if said is not None:  # it may die later
            self.assertEqual(ok(said), got[0])
            return got[0], None
        alone = self.sums(members[:2], 7, kind)
        self.end(members[:2])
        return got[0], alone

    def test_a_death_amid_a_sum_leaves_all_or_the_survivors(self):
        for kind in (SPARSE, DENSE):
            members = self.begun(self.start())
            whole = self.sums(members, 7, kind)
            self.end(members)
            deaths, chunk, rounds = set(), 1, 0
            while rounds < 40:
                got, alone = self.killed(kind, chunk)
                if alone is None:
                    break
                self.assertEqual(got, whole if got["replicas"] == 6 else alone, (kind, chunk))
                deaths.add(got["replicas"])
                chunk, rounds = chunk + 1 + chunk // 8, rounds + 1
            self.assertGreater(rounds, 2, "the failpoint struck too seldom")
            self.assertIn(3, deaths)
            print(f"{kind}: {rounds} deaths up to chunk {chunk}, sums of {sorted(deaths)} replicas", file=sys.stderr)

    def test_members_that_differ_are_told(self):
        members = self.begun(self.start())
        for line in ask_each(members, lambda m: f"slices 5 {2 if m.rank == 1 else 3} 100 1 sum"):
            self.assertRegex(line, "^INVALID_ARGUMENT sum_slices: members differ: the one in place 1")
        for line in ask_each(members, lambda m: f"slices 5 3 100 1 {'mean' if m.rank == 2 else 'sum'}"):
            self.assertRegex(line, "^INVALID_ARGUMENT sum_slices: members differ: the one in place 2")
        self.end(members)


class OverTcp(Replicas):
    VARIABLES = {"MUSTER_WIRE": "tcp"}


if __name__ == "__main__":
    unittest.main(verbosity=2)
