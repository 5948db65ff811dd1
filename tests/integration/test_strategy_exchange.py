#!/usr/bin/env python3
"""Operations on parts, and messages, among real processes: results, deaths in the middle, and the step behind them."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, ask_each, each, every, ok

SIZES = (1, 1000, 100000)  # elements of a part: direct and flat, chunks, many chunks


class Exchanges(unittest.TestCase):
    VARIABLES = {}

    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def begun(self, size=3, victim=None, **variables):
        members = [self.job.puppet(rank, size, **self.VARIABLES, **(variables if rank == victim else {}))
                   for rank in range(size)]
        for command in ("open", "register total 8 1", "begin"):
            every(members, command)
        return members

    def end(self, members):
        for command in ("barrier", "commit"):
            every(members, command)
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def values(self, members, command):
        return [got["value"] for got in each(members, command)]

    def parts(self, members, command):
        return [got["parts"] for got in each(members, command)]

    def check_all(self, members):
        """Each call among three members, whose ranks are the places in the list."""
        for count in SIZES:
            self.assertEqual(self.values(members, lambda m: f"reduce_scatter {count} {10 * members.index(m)}"),
                             [30, 33, 36])
            self.assertEqual(self.values(members, lambda m: f"reduce_scatter {count} {10 * members.index(m)} mean"),
                             [10, 11, 12])
            lines = ask_each(members, lambda m: f"gather {count} {members.index(m)} 1")
            self.assertEqual([ok(line).get("parts") for line in lines], [None, "0,1,2", None])
            self.assertEqual(self.values(members, lambda m: f"scatter {count} {10 * members.index(m)} 2"), [20, 21, 22])
            self.assertEqual(self.parts(members, lambda m: f"all_gather_uneven {count} {5 + members.index(m)}"),
                             ["5,6,7"] * 3)
            self.assertEqual(self.values(members, lambda m: f"reduce_scatter_uneven {count} {10 * members.index(m)}"),
                             [30, 33, 36])
            self.assertEqual(self.parts(members, lambda m: f"all_to_all_uneven {count} {10 * members.index(m)}"),
                             ["0,10,20", "1,11,21", "2,12,22"])
            self.assertEqual(self.values(members, lambda m: (f"send {count} 7 1", f"receive {count} 0 0", "gather 0 0"
                                                             )[members.index(m)] if m is not members[2]
                                         else f"exchange {count} 1 - -"), [7, 7, -1])
            self.assertEqual(self.values(members, lambda m: f"exchange {count} {members.index(m)} "
                                         f"{(members.index(m) + 1) % 3} {(members.index(m) + 2) % 3}"), [2, 0, 1])

    def test_each_call_has_its_result(self):
        members = self.begun()
        self.check_all(members)
        self.end(members)

    def test_a_member_alone_has_its_own_part(self):
        members = self.begun(1)
        self.assertEqual(self.values(members, lambda _: "reduce_scatter 10 3 mean"), [3])
        self.assertEqual(self.parts(members, lambda _: "gather 10 3"), [3])
        self.assertEqual(self.values(members, lambda _: "scatter 10 3"), [3])
        self.assertEqual(self.parts(members, lambda _: "all_to_all_uneven 10 3"), [3])
        self.assertRegex(members[0].ask("send 1 1 0"), "^INVALID_ARGUMENT send: rank 0 is this member itself")
        self.end(members)

    def test_what_cannot_be_is_refused_here_and_the_others_are_not_disturbed(self):
        members = self.begun()
        for command, why in (("gather 1 1 3", "gather: there is no rank 3, the last is 2"),
                             ("scatter 1 1 3", "scatter: there is no rank 3"),
                             ("send 1 1 3", "send: there is no rank 3"),
                             ("receive 1 1 1", "receive: rank 1 is this member itself"),
                             ("reduce_scatter 1 1 and", "reduce_scatter of tensor 0: and of f64 has no meaning")):
            self.assertRegex(members[1].ask(command), f"^INVALID_ARGUMENT {why}")
        self.check_all(members)
        self.end(members)

    def test_ranks_that_call_different_things_are_told_both(self):
        members = self.begun()
        lines = ask_each(members, lambda m: f"reduce_scatter {2 if m.rank == 2 else 1} 1")
        for line in lines:
            self.assertRegex(line, r"^INVALID_ARGUMENT reduce_scatter: .*f64 x [12]\).*f64 x [12]\)")
        every(members, "begin")
        self.check_all(members)
        self.end(members)

    def test_a_step_whose_parts_were_for_a_dead_member_runs_again(self):
        for name in ("reduce_scatter 100000 5", "gather 100000 5 1", "scatter 100000 5 1", "all_gather_uneven 100000 5",
                     "reduce_scatter_uneven 100000 5", "all_to_all_uneven 100000 5"):
            self.VARIABLES = dict(type(self).VARIABLES, MUSTER_JOB=name.split()[0])
            members = self.begun()
            early, late = members[1:]
            early.tell(name)
            members[0].kill()
            self.assertRegex(early.hear(), f"^ABORTED {name.split()[0]}: ")
            self.assertRegex(late.ask(name), f"^ABORTED {name.split()[0]}: ")  # late still counts three
            for got in every([early, late], "begin"):
                self.assertEqual((got["step"], got["size"]), (1, 2))
            self.assertEqual(self.values([early, late], lambda m: f"reduce_scatter 1000 {10 * (m.rank - 1)}"), [10, 12])
            self.end([early, late])

    def has_answered(self, victim):
        try:
            return ok(victim.hear())["value"] == 33
        except AssertionError:
            if victim.is_alive():
                raise
            return False

    def test_whoever_dies_within_a_reduce_scatter_both_others_end_alike(self):
        """Killed at each store that others see, or each chunk that goes over a wire."""
        aborted = 0
        for chunk in range(0, 60, 3):
            self.VARIABLES = dict(type(self).VARIABLES, MUSTER_JOB=f"job{chunk}")
            members = self.begun(victim=1, MUSTER_KILL=f"step=1,chunk={chunk}")
            for member in members:
                member.tell(f"reduce_scatter 100000 {10 * member.rank}")
            rest = [members[0], members[2]]
            lines = [member.hear() for member in rest]
            if all(line.startswith("ok") for line in lines):
                self.assertEqual([ok(line)["value"] for line in lines], [30, 36])
            else:
                for line in lines:
                    self.assertRegex(line, "^ABORTED reduce_scatter: ")
                aborted += 1
            if self.has_answered(members[1]):
                break  # it has fewer points than that
            for _ in range(10000):  # both may have had their parts before the victim died, and not know of its death yet
                sizes = [got["size"] for got in every(rest, "begin")]
                if sizes == [2, 2]:
                    break
            self.assertEqual(sizes, [2, 2])
            self.assertEqual(self.values(rest, lambda m: f"reduce_scatter 1000 {m.rank}"), [2, 4])
            self.end(rest)
        self.assertGreater(aborted, 0)

    def test_a_message_outlives_a_third_member_and_not_its_partner(self):
        members = self.begun()
        members[0].tell("send 300000 4 1")
        members[2].kill()
        self.assertEqual(members[1].ok("receive 300000 0 0")["value"], 4)
        ok(members[0].hear())
        members[0].tell("receive 300000 0 1")
        members[1].kill()
        self.assertRegex(members[0].hear(), "^ABORTED receive: ")
        self.assertRegex(members[0].ask("send 1 1 1"), "^ABORTED send: ")
        self.assertEqual(members[0].ok("begin")["size"], 1)
        self.end(members[:1])


class OverTcp(Exchanges):
    VARIABLES = {"MUSTER_WIRE": "tcp"}


if __name__ == "__main__":
    unittest.main(verbosity=2)
