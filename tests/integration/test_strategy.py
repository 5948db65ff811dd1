#!/usr/bin/env python3
"""The strategy of training, call by call, in real processes that meet at a `muster registry`."""
import json
import os
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import PATIENCE_S, Job, ask_each, ask_every, each, every, ok


class Case(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def started(self, size, **options):
        """Members in the middle of step 1."""
        members = self.job.members(size, **options)
        for got in every(members, "begin"):
            self.assertEqual((got["step"], got["size"]), (1, size))
        return members

    def commit(self, members):
        every(members, "set total 7")
        every(members, "commit")

    def rejoin(self, others, newcomer, command="begin"):
        """The others train on, one all_reduce a step, until the newcomer is in; all of them in the middle of that step."""
        newcomer.tell(command)
        for _ in range(10000):
            if newcomer.has_answered():
                break
            got = every(others, "begin")
            if got[0]["size"] == len(others) + 1:
                break
            every(others, "all_reduce 1 1")
            self.commit(others)
        joined = ok(newcomer.hear())
        if joined["step"] != got[0]["step"]:
            self.assertLess(got[0]["step"], joined["step"])
            got = every(others, "begin")
        self.assertEqual({joined["step"]}, {one["step"] for one in got})
        self.assertEqual({len(others) + 1}, {one["size"] for one in [*got, joined]})
        return joined

    def end(self, members):
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()


class Steps(Case):
    def test_a_step_of_three(self):
        members = self.started(3)
        self.assertEqual([got["value"] for got in every(members, "get total")], [1, 1, 1])  # rank 0's
        for got in each(members, lambda m: f"all_reduce 1000 {m.rank + 1} sum"):
            self.assertEqual((got["value"], got["contributors"], got["interrupted"]), (6, 3, 0))
        for got in each(members, lambda m: f"all_reduce 100000 {m.rank + 1} mean"):
            self.assertEqual(got["value"], 2)
        for name, value in (("min", 2), ("max", 4), ("prod", 24)):
            for got in each(members, lambda m: f"all_reduce 3 {m.rank + 2} {name}"):
                self.assertEqual(got["value"], value)
        for got in each(members, lambda m: f"broadcast 10 {m.rank + 5} 2"):
            self.assertEqual(got["value"], 7)
        got = each(members, lambda m: f"reduce 1000 {m.rank + 1} sum 1")
        self.assertEqual([one["value"] for one in got], [1, 6, 3])
        for count in (1, 1000, 100000):
            for got in each(members, lambda m: f"all_gather {count} {m.rank + 5}"):
                self.assertEqual(got["parts"], "5,6,7")
            got = each(members, lambda m: f"all_to_all {count} {m.rank * 10}")
            self.assertEqual([one["parts"] for one in got], ["0,10,20", "1,11,21", "2,12,22"])
        every(members, "barrier")
        self.commit(members)
        self.assertEqual([got["step"] for got in every(members, "begin")], [2, 2, 2])
        self.assertEqual(len({got["digest"] for got in every(members, "digest")}), 1)
        self.end(members)

    def test_a_barrier_holds_until_the_last_has_come(self):
        members = self.started(2)
        members[0].tell("barrier")
        time.sleep(0.2)
        self.assertFalse(members[0].has_answered())
        members[1].ok("barrier")
        ok(members[0].hear())
        self.end(members)

    def test_many_tensors_of_many_sizes_come_from_rank_0(self):
        state = (("a", 1), ("b", 0), ("c", 70000), ("d", 5))
        members = self.started(2, state=state)
        for name, count in state:
            self.assertEqual([got["value"] for got in every(members, f"get {name}")], [count and 1] * 2)
        self.end(members)

    def test_one_member_alone(self):
        members = self.started(1)
        self.assertEqual(members[0].ok("all_reduce 10 3 mean")["value"], 3)
        members[0].ok("broadcast 1 2")
        members[0].ok("barrier")
        members[0].ok("commit")
        self.end(members)


class Deaths(Case):
    def test_the_mean_divides_by_those_who_contributed(self):
        members = self.started(3)
        each(members, lambda m: f"all_reduce 10 {m.rank + 1} mean")
        ask = members[:2]
        for member in ask:
            member.tell(f"all_reduce 100000 {member.rank + 1} mean")
        members[2].kill()
        for member in ask:
            got = ok(member.hear())
            self.assertEqual((got["value"], got["contributors"]), (1.5, 2))
        self.commit(ask)
        for got in every(ask, "begin"):
            self.assertEqual((got["step"], got["size"], got["epoch"]), (2, 2, 2))
        self.end(ask)

    def test_who_was_interrupted_knows_it(self):
        # With two chunks per block, rank 2 sends 8 and receives 4 sums and 4 results: at the 13th of them it has received
        # a result, so that the others are in the middle of it too, and it lacks one, so that nobody has ended it.
        members = [self.job.puppet(rank, 3, **({"MUSTER_KILL": "step=1,chunk=12"} if rank == 2 else {})) for rank in range(3)]
        every(members, "open")
        every(members, "register total 8 1")
        every(members, "begin")
        for member in members:
            member.tell(f"all_reduce 100000 {member.rank + 1} mean")
        got = [ok(member.hear()) for member in members[:2]]
        self.assertEqual(*[(one["value"], one["contributors"]) for one in got])
        if got[0]["contributors"] == 2:
            self.assertEqual([(one["value"], one["interrupted"]) for one in got], [(1.5, 1)] * 2)
        else:  # who sees that the others need nothing more of the dead one may end before the change comes to it
            self.assertEqual((got[0]["value"], got[0]["contributors"]), (2, 3))
        self.end(members[:2])

    def test_an_interruption_of_any_tensor_of_a_call_is_told(self):
        # 64 operations are started at a time, so the 65th begins after the change. Rank 2 announces them in 192 steps
        # (over TCP it sends 128 inputs) without the others: at the 201st they are in the middle of the call.
        members = [self.job.puppet(rank, 3, **({"MUSTER_KILL": "step=1,chunk=200"} if rank == 2 else {})) for rank in range(3)]
        every(members, "open")
        every(members, "register total 8 1")
        every(members, "begin")
        for member in members:
            member.tell(f"all_reduce 20000 {member.rank + 1} mean 65")
        for member in members[:2]:
            got = ok(member.hear())
            self.assertEqual((got["value"], got["contributors"], got["interrupted"]), (1.5, 2, 1))
        self.end(members[:2])

    def test_rank_0_dies_and_ranks_move_up(self):
        members = self.started(3)
        members[0].kill()
        rest = members[1:]
        for got in every(rest, "all_reduce 10 4 mean"):
            self.assertEqual((got["value"], got["contributors"]), (4, 2))
        self.commit(rest)
        self.assertEqual([(got["rank"], got["size"]) for got in every(rest, "begin")], [(0, 2), (1, 2)])
        self.end(rest)

    def test_a_joiner_begins_with_the_members_state(self):
        members = self.started(3)
        every(members, "all_reduce 10 1")
        self.commit(members)
        members[2].kill()
        rest = members[:2]
        newcomer = self.job.puppet(2, 3)
        newcomer.ok("open")
        newcomer.ok("register total 8 99")
        got = self.rejoin(rest, newcomer)
        self.assertEqual((got["restored"], got["rank"]), (1, 2))
        self.assertEqual(newcomer.ok("get total")["value"], 7)
        every([*rest, newcomer], "all_reduce 10 1")
        self.assertEqual(len({got["digest"] for got in every([*rest, newcomer], "digest")}), 1)
        self.end([*rest, newcomer])

    def test_a_broadcast_whose_root_dies_is_aborted_and_the_step_runs_again(self):
        members = self.started(3)
        for member in members[1:]:
            member.tell("broadcast 1000 5 0")
        members[0].kill()
        for member in members[1:]:
            self.assertRegex(member.hear(), r"^ABORTED broadcast: ")
        for got in every(members[1:], "begin"):
            self.assertEqual((got["step"], got["restored"], got["size"]), (1, 0, 2))
        every(members[1:], "broadcast 1000 5 0")
        self.end(members[1:])


    def test_parts_of_members_that_have_gone_are_aborted_on_all(self):
        for name in ("all_gather", "all_to_all"):
            members = [self.job.puppet(rank, 3, MUSTER_JOB=name) for rank in range(3)]
            every(members, "open")
            every(members, "register total 8 1")
            every(members, "begin")
            early, late = members[1:]
            early.tell(f"{name} 100000 5")
            members[0].kill()
            self.assertRegex(early.hear(), f"^ABORTED {name}: ")
            # late still counts three, and the others' begin waits for nobody that it could miss
            self.assertRegex(ask_every([late], f"{name} 100000 5")[0], f"^ABORTED {name}: ")
            for got in every([early, late], "begin"):
                self.assertEqual((got["step"], got["size"]), (1, 2))
            for got in each([early, late], lambda m: f"{name} 10 {m.rank * 10}"):
                self.assertIn(",", got["parts"])
            self.end([early, late])

    def has_begun(self, member):
        try:
            return ok(member.hear())["step"] == 1
        except AssertionError:
            if member.is_alive():
                raise
            return False  # the others may have had all that they need of it

    def test_rank_0_dies_while_it_gives_its_state_out(self):
        points = 0
        for chunk in range(100):
            job = {"MUSTER_JOB": f"job{chunk}"}
            first = self.job.puppet(0, 3, MUSTER_KILL=f"step=0,chunk={chunk}", **job)
            rest = [self.job.puppet(rank, 3, **job) for rank in (1, 2)]
            members = [first, *rest]
            every(members, "open")
            each(members, lambda m: f"register total 8 {m.rank + 1}")
            for member in members:
                member.tell("begin")
            for member in rest:
                self.assertEqual(ok(member.hear())["step"], 1)
            if self.has_begun(first):
                self.end(members)
                break
            points += 1
            values = {got["value"] for got in every(rest, "get total")}
            self.assertIn(values, ({1}, {2}, {3}))  # one rank's, whole (integration.first_begin says whose)
            for got in every(rest, "all_reduce 10 4 mean"):
                self.assertEqual((got["value"], got["contributors"]), (4, 2))
            self.end(rest)
        self.assertGreaterEqual(points, 4)

    def test_a_root_that_two_members_know_by_different_ranks(self):
        members = self.started(3)
        members[0].kill()
        early, late = members[1:]
        for _ in range(10000):
            got = late.ok("begin")
            if got["size"] == 2:
                break
        self.assertEqual((got["rank"], got["size"]), (1, 2))
        # for early rank 1 is worker:1 as it was when it began the step, for late it is worker:2
        lines = ask_every([early, late], "broadcast 10 5 1")
        for line in lines:
            self.assertRegex(line, "^ABORTED broadcast: ranks have changed: ")
        late.tell("broadcast 10 3 0")
        self.assertEqual(early.ok("broadcast 10 4 1")["value"], 4)
        self.assertEqual(ok(late.hear())["value"], 4)
        self.assertEqual([(got["rank"], got["size"]) for got in every([early, late], "begin")], [(0, 2), (1, 2)])
        for got in each([early, late], lambda m: f"broadcast 10 {m.rank} 1"):
            self.assertEqual(got["value"], 2)
        self.end([early, late])


class ByHand(Case):
    """No launcher says who is dead. Silence would take far longer than a test may: only the kernel's word lets them go on."""

    def killed_at_once(self, size, victims, in_operation, **variables):
        members = self.started(size, MUSTER_EVICT_AFTER_S=3600, **variables)
        every(members, "all_reduce 100 1")
        rest = [member for member in members if member.rank not in victims]
        if in_operation:
            for member in rest:
                member.tell("all_reduce 100000 3 mean")
        for rank in victims:
            members[rank].child.kill()
        if not in_operation:
            for member in rest:
                member.tell("all_reduce 100000 3 mean")
        for member in rest:
            got = ok(member.hear())
            self.assertEqual((got["value"], got["contributors"]), (3, len(rest)))
        self.commit(rest)
        for got in every(rest, "begin"):
            self.assertEqual((got["step"], got["size"]), (2, len(rest)))
        self.assertEqual(len({got["digest"] for got in every(rest, "digest")}), 1)
        self.end(rest)

    def test_half_of_them_or_all_but_one_are_killed_at_once(self):
        for size in (2, 4, 6):
            for victims in (range(size // 2), range(size // 2, size), range(size - 1)):
                for in_operation in (False, True):
                    job = f"job{size}-{len(victims)}-{victims[0]}-{in_operation}"
                    wire = {"MUSTER_WIRE": "tcp"} if in_operation and victims[0] == 0 else {}
                    with self.subTest(size=size, victims=list(victims), in_operation=in_operation):
                        self.killed_at_once(size, victims, in_operation, MUSTER_JOB=job, **wire)

    def test_while_the_registry_is_dead_too_the_log_says_what_they_wait_for(self):
        members = self.started(4)
        self.job.registry.kill()
        for member in members[:2]:
            member.child.kill()
        for member in members[2:]:
            member.tell("all_reduce 1000 1")
        deadline = time.monotonic() + PATIENCE_S
        words = f'waits_for="the registry at {self.job.address}"'
        while not any("view_change_blocked" in line and words in line for line in members[2].errors):
            self.assertLess(time.monotonic(), deadline, list(members[2].errors))
            time.sleep(0.05)
        self.assertFalse(members[2].has_answered())


class Calls(Case):
    def test_calls_out_of_order_are_refused_and_harm_nothing(self):
        members = self.job.members(2)
        refused = ask_every(members, "register total 8 1")
        for line in refused:
            self.assertRegex(line, r"^ALREADY_EXISTS .*total")
        for command in ("all_reduce 1 1", "broadcast 1 1", "barrier"):
            for line in ask_every(members, command):
                self.assertRegex(line, r"^FAILED_PRECONDITION .*call begin first")
        for line in ask_every(members, "commit"):
            self.assertRegex(line, r"^FAILED_PRECONDITION commit without begin")
        every(members, "begin")
        for line in ask_every(members, "register late 8 1"):
            self.assertRegex(line, r"^FAILED_PRECONDITION .*late.*before the first begin")
        for line in ask_every(members, "broadcast 1 1 9"):
            self.assertRegex(line, r"^INVALID_ARGUMENT .*broadcast.*\b9\b")
        for line in ask_every(members, "all_reduce 1 1 xor"):
            self.assertRegex(line, r"^INVALID_ARGUMENT all_reduce of tensor 0: xor of f64 has no meaning: use one of sum")
        every(members, "all_reduce 1 1")
        every(members, "commit")
        for line in ask_every(members, "all_reduce 1 1"):
            self.assertRegex(line, r"^FAILED_PRECONDITION .*call begin first")
        for line in ask_every(members, "commit"):
            self.assertRegex(line, r"^FAILED_PRECONDITION commit without begin")
        self.end(members)

    def test_begin_twice_is_the_same_step(self):
        members = self.started(2)
        self.assertEqual([got["step"] for got in every(members, "begin")], [1, 1])
        every(members, "all_reduce 1 1")
        self.end(members)

    def test_close_before_begin(self):
        members = self.job.members(2)
        every(members, "close")
        self.end(members)

    def test_close_before_begin_of_one_lets_the_other_go_on(self):
        members = self.job.members(2, MUSTER_MIN_MEMBERS_TIMEOUT_S=1)
        members[0].tell("begin")
        members[1].ok("close")
        ok(members[0].hear())
        self.assertEqual(members[0].ok("all_reduce 1 3 mean")["value"], 3)
        self.end(members)

    def test_close_in_the_middle_of_a_step_is_a_leave(self):
        members = self.started(3)
        for member in members[:2]:
            member.tell("all_reduce 10 4 mean")
        members[2].ok("close")
        for member in members[:2]:
            got = ok(member.hear())
            self.assertEqual((got["value"], got["contributors"]), (4, 2))
        self.end(members)

    def test_too_few_members_are_told_with_the_number_that_was_asked(self):
        members = self.started(3, MUSTER_MIN_MEMBERS=3, MUSTER_MIN_MEMBERS_TIMEOUT_S=1)
        members[2].kill()
        for member in members[:2]:
            member.tell("all_reduce 10 4 mean")
        for line in [member.hear() for member in members[:2]]:
            self.assertRegex(line, r"^ABORTED .*too few members: 2 are left, at least 3 were asked for \(muster run --min-members, MUSTER_MIN_MEMBERS\)")
        for member in members:
            member.kill()

    def launched(self, size):
        """Puppets that their launcher knows by their incarnation, as under `muster run`."""
        return [self.job.puppet(rank, size, MUSTER_INCARNATION=f"{rank + 1:032x}") for rank in range(size)]

    def test_a_second_strategy_of_a_launched_process_has_to_wait_for_the_first(self):
        members = self.launched(2)
        every(members, "open")
        every(members, "register total 8 1")
        for line in ask_every(members, "open_another"):
            self.assertRegex(line, "^FAILED_PRECONDITION .*one member.*muster_strategy_close")
        every(members, "begin")
        for got in every(members, "all_reduce 1 1"):
            self.assertEqual((got["value"], got["contributors"]), (2, 2))
        every(members, "commit")
        every(members, "close")
        every(members, "open")
        each(members, lambda m: f"register other 3 {m.rank + 5}")
        for got in every(members, "begin"):
            self.assertEqual((got["step"], got["size"]), (1, 2))
        self.assertEqual([got["value"] for got in every(members, "get other")], [5, 5])
        self.end(members)

    def test_a_failed_open_is_not_in_the_way_of_the_next(self):
        member = self.job.puppet(0, 1, MUSTER_INCARNATION="7" * 32, MUSTER_RESTART_COUNT="0")
        for _ in range(2):
            self.assertRegex(member.ask("open 0 0 nowhere"), "^(INVALID_ARGUMENT|NOT_FOUND|UNAVAILABLE) ")
        member.ok("open")
        member.ok("begin")
        self.end([member])

    def test_two_strategies_one_after_the_other(self):
        members = self.started(2)
        every(members, "commit")
        every(members, "close")
        every(members, "open")
        each(members, lambda m: f"register other 3 {m.rank + 5}")
        for got in every(members, "begin"):
            self.assertEqual((got["step"], got["size"]), (1, 2))
        self.assertEqual([got["value"] for got in every(members, "get other")], [5, 5])
        every(members, "all_reduce 1 1")
        self.end(members)


class Silence(Case):
    def test_a_member_that_never_calls_is_named(self):
        members = self.started(3, op_timeout_s=1)
        for line in ask_every(members[:2], "all_reduce 10 1"):
            self.assertRegex(line, r"^(DEADLINE_EXCEEDED|ABORTED) all_reduce: .*rank 2 \(worker:2\) ha[sd] not (called|answered)")
        late = members[2].ask("all_reduce 10 1")
        self.assertRegex(late, r"^ABORTED all_reduce: .*rank 2 \(worker:2\) had not called")
        for got in every(members, "begin"):
            self.assertEqual((got["step"], got["size"]), (1, 3))
        for got in every(members, "all_reduce 10 1"):
            self.assertEqual(got["value"], 3)
        self.end(members)

    def test_a_member_that_stands_still_is_waited_for(self):
        members = self.started(3)
        members[2].send_signal(signal.SIGSTOP)
        for member in members:
            member.tell("all_reduce 10 1")
        time.sleep(3)
        self.assertFalse(members[0].has_answered())
        members[2].send_signal(signal.SIGCONT)
        for member in members:
            got = ok(member.hear())
            self.assertEqual((got["value"], got["contributors"], got["interrupted"]), (3, 3, 0))
        self.commit(members)
        self.assertEqual([got["epoch"] for got in every(members, "begin")], [1, 1, 1])
        self.end(members)


    def left_out(self, rank, evict_after_s=2):
        """Members of which one stands still until the others have gone on without it: the others, and that one."""
        members = self.started(3, MUSTER_EVICT_AFTER_S=evict_after_s)
        every(members, "all_reduce 10 1")
        self.commit(members)
        every(members, "begin")
        still = members.pop(rank)
        stopped_s = time.monotonic()
        still.send_signal(signal.SIGSTOP)
        for got in every(members, "all_reduce 100000 2 mean"):
            self.assertEqual((got["value"], got["contributors"], got["interrupted"]), (2, 2, 1))
        # its last word may have been somewhat before the signal
        self.assertGreater(time.monotonic() - stopped_s, evict_after_s / 2)
        self.commit(members)
        return members, still

    def test_who_stands_still_for_too_long_is_left_out_and_comes_back(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                others, still = self.left_out(rank)
                still.send_signal(signal.SIGCONT)
                self.assertRegex(still.ask("all_reduce 100000 2 mean"), "^ABORTED ")
                got = self.rejoin(others, still)
                self.assertEqual((got["restored"], got["rank"]), (1, rank))
                for got in every([*others, still], "all_reduce 10 1"):
                    self.assertEqual((got["value"], got["contributors"]), (3, 3))
                self.assertEqual(len({got["digest"] for got in every([*others, still], "digest")}), 1)
                self.end([*others, still])

    def test_who_stands_still_for_too_long_can_be_replaced(self):
        others, still = self.left_out(1)
        still.kill()
        newcomer = self.job.puppet(1, 3)
        newcomer.ok("open")
        newcomer.ok("register total 8 99")
        got = self.rejoin(others, newcomer)
        self.assertEqual((got["restored"], got["rank"]), (1, 1))
        self.assertEqual(newcomer.ok("get total")["value"], 7)
        self.end([*others, newcomer])


    def test_who_stops_in_the_middle_of_an_operation_is_left_behind(self):
        # It stops in step 2: by then each has mapped the memory where the others show their inputs, so that they need nothing
        # more of the stopped one to announce the operation; in step 1 they may have to go on without its input.
        for store in (2, 10, 40):  # announced; while it sums; while it copies
            with self.subTest(store=store):
                members = [self.job.puppet(rank, 3, MUSTER_JOB=f"store-{store}", MUSTER_EVICT_AFTER_S=2,
                                           **({"MUSTER_KILL": f"step=2,chunk={store},stop"} if rank == 1 else {}))
                           for rank in range(3)]
                every(members, "open")
                every(members, "register total 8 1")
                every(members, "begin")
                each(members, lambda m: f"all_reduce 100000 {m.rank + 1}")
                self.commit(members)
                every(members, "begin")
                for member in members:
                    member.tell(f"all_reduce 100000 {member.rank + 1}")
                still, others = members[1], [members[0], members[2]]
                for other in others:
                    got = ok(other.hear())
                    self.assertEqual((got["value"], got["contributors"]), (6, 3))
                self.assertFalse(still.has_answered())
                self.commit(others)
                still.send_signal(signal.SIGCONT)
                line = still.hear()
                self.assertRegex(line, "^(ABORTED|DEADLINE_EXCEEDED) |^ok value=6 ")
                if line.startswith("ok "):
                    self.assertRegex(still.ask("all_reduce 1 1"), "^(ABORTED|FAILED_PRECONDITION|UNAVAILABLE) ")
                self.rejoin(others, still)
                for got in every(members, "all_reduce 10 1"):
                    self.assertEqual((got["value"], got["contributors"]), (3, 3))
                self.assertEqual(len({got["digest"] for got in every(members, "digest")}), 1)
                self.end(members)


class Exclusion(Case):
    def test_who_was_left_out_while_it_stood_still_comes_back_in_the_same_process(self):
        members = [self.job.puppet(rank, 3, MUSTER_HOST_KEY="here") for rank in range(2)]
        far = self.job.puppet(2, 3, MUSTER_HOST_KEY="elsewhere")  # silence of another host is suspicious
        every([*members, far], "open")
        every([*members, far], "register total 8 1")
        every([*members, far], "begin")
        every([*members, far], "all_reduce 10 1")
        self.commit([*members, far])
        every([*members, far], "begin")

        far.send_signal(signal.SIGSTOP)
        for got in every(members, "all_reduce 100000 2 mean"):
            self.assertEqual((got["value"], got["contributors"], got["interrupted"]), (2, 2, 1))
        every(members, "set total 8")
        every(members, "commit")
        far.send_signal(signal.SIGCONT)
        self.assertRegex(far.ask("all_reduce 100000 2 mean"), "^ABORTED ")
        got = self.rejoin(members, far)
        self.assertEqual((got["restored"], got["size"], got["rank"]), (1, 3, 2))
        self.assertEqual(far.ok("get total")["value"], members[0].ok("get total")["value"])
        for got in every([*members, far], "all_reduce 10 1"):
            self.assertEqual((got["value"], got["contributors"]), (3, 3))
        self.commit([*members, far])
        self.end([*members, far])


class Expectation(Case):
    def platform_lists(self, path, count):
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"worker": [f"host{i}:1" for i in range(count)]}, file)
        os.rename(path + ".new", path)

    def test_the_first_view_waits_for_those_whom_the_platform_lists_now(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cluster.json")
            self.platform_lists(path, 3)
            members = [self.job.puppet(rank, 2, MUSTER_RESOLVER=f"file:{path}?task_type=worker&task_id={rank}",
                                       MUSTER_MIN_MEMBERS_TIMEOUT_S=600)  # two alone would not be enough before
                       for rank in range(2)]
            every(members, "open")
            every(members, "register total 8 1")
            for member in members:
                member.tell("begin")
            deadline = time.monotonic() + PATIENCE_S
            while not all(any("worker:2" in line for line in member.errors) for member in members):
                self.assertLess(time.monotonic(), deadline, [list(member.errors) for member in members])
                time.sleep(0.05)
            self.assertFalse(any(member.has_answered() for member in members))

            self.platform_lists(path, 2)  # the third machine is not coming
            for member in members:
                self.assertEqual(ok(member.hear())["size"], 2)
            every(members, "all_reduce 10 1")
            self.commit(members)
            self.end(members)


if __name__ == "__main__":
    unittest.main()
