#!/usr/bin/env python3
"""Rules of the strategy that a program can break without noticing, in real processes that meet at a `muster registry`."""
import os
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, every, ok


def first_to_answer(members):
    """What each says, as it comes: what one says in error is heard although the others wait for it."""
    open_ones = list(members)
    while open_ones:
        answered = next((member for member in open_ones if member.has_answered()), None)
        if answered is None:
            time.sleep(0.01)
            continue
        open_ones.remove(answered)
        yield ok(answered.hear())


class Case(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def end(self, members):
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()


class EarlyChanges(Case):
    """Registered tensors that change before the step's first operation: statistics, counters, states of generators."""
    ELEMENTS = 1 << 18

    def newcomer(self, rank, size, **variables):
        puppet = self.job.puppet(rank, size, **variables)
        puppet.ok("open")
        puppet.ok(f"register total {self.ELEMENTS} 99")
        return puppet

    def train(self, members):
        """Everybody trains until all of them have made some steps together: the same ones."""
        for member in members:
            member.tell(f"train_early total {len(members)} 5")
        steps = {got["step"] for got in first_to_answer(members)}
        self.assertEqual(len(steps), 1, steps)
        self.assertEqual({got["value"] for got in every(members, "get total")}, {steps.pop() + 1})

    def test_a_joiner_gets_the_committed_state(self):
        for wire in ("auto", "tcp"):
            with self.subTest(wire=wire):
                variables = {"MUSTER_JOB": wire, "MUSTER_WIRE": wire}
                members = self.job.members(3, state=(("total", self.ELEMENTS),), **variables)
                self.train(members)
                for life in range(5):
                    members[life % 3].kill()
                    members[life % 3] = self.newcomer(life % 3, 3, **variables)
                    self.train(members)
                self.end(members)

    def test_several_joiners_at_once_get_it_too(self):
        members = self.job.members(4, state=(("total", self.ELEMENTS),))
        self.train(members)
        for victims in ((1, 2), (0, 3), (1, 2, 3)):
            for rank in victims:
                members[rank].kill()
            for rank in victims:
                members[rank] = self.newcomer(rank, 4)
            self.train(members)
        self.end(members)

    def test_a_joiner_that_dies_or_stands_still_keeps_nobody(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            variables = {"MUSTER_JOB": number.name, "MUSTER_EVICT_AFTER_S": 1}
            members = self.job.members(3, state=(("total", self.ELEMENTS),), **variables)
            self.train(members)
            for life in range(6 if number == signal.SIGKILL else 2):
                members[2].kill()
                members[2] = self.newcomer(2, 3, **variables)
                members[2].tell("begin")
                for member in members[:2]:
                    member.tell("train_early total 2 500")
                time.sleep(0.004 * life)  # on its way, in the view, or in the step: whatever it is, the others go on
                members[2].send_signal(number)
                for got in first_to_answer(members[:2]):
                    self.assertIn("step", got)
            members.pop().kill()
            self.end(members)


class Waits(Case):
    def test_two_processes_of_one_task_are_named(self):
        twins = [self.job.puppet(0, 2, MUSTER_JOB="twins") for _ in range(2)]
        for twin in twins:
            twin.ok("open")
            twin.ok("register total 8 1")
            twin.tell("begin")
        words = 'waits_for="tasks that are not registered: worker:1; worker:0 at 127.0.0.1:{} (pid {}) has the task of this process, too: give each its own"'
        words = re.compile(re.escape(words).replace(r"\{\}", r"\d+"))
        for twin in twins:
            while not any(words.search(line) for line in twin.errors):
                self.assertFalse(twin.has_answered())
                time.sleep(0.02)
        for twin in twins:
            twin.kill()

    def test_who_waits_for_tasks_says_so_in_one_line_of_a_kind(self):
        first = self.job.puppet(0, 2, MUSTER_JOB="late")
        first.ok("open")
        first.ok("register total 8 1")
        first.tell("begin")
        words = re.compile(rf'start_blocked job=late registry={re.escape(self.job.address)} waits_for="tasks that are not registered: worker:1" seconds=(\d+) timeout_seconds=300')
        while not any(words.search(line) for line in first.errors):
            self.assertFalse(first.has_answered())
            time.sleep(0.02)
        second = self.job.puppet(1, 2, MUSTER_JOB="late")
        second.ok("open")
        second.ok("register total 8 1")
        second.ok("begin")
        ok(first.hear())
        every([first, second], "commit")
        self.end([first, second])
        said = [line for line in first.errors if "worker:1" in line]
        self.assertTrue(all(words.search(line) for line in said), said)
        self.assertGreaterEqual(int(words.search(said[0]).group(1)), 2)


class Ends(Case):
    def begun(self, size, **variables):
        members = self.job.members(size, **variables)
        every(members, "begin")
        return members

    def go_on(self, rest):
        """The rest ends its step without the one who has gone, at once."""
        started_s = time.monotonic()
        for got in every(rest, "all_reduce 100 4 mean"):
            self.assertEqual((got["value"], got["contributors"]), (4, len(rest)))
        every(rest, "commit")
        for got in every(rest, "begin"):
            self.assertEqual((got["step"], got["size"]), (2, len(rest)))
        return time.monotonic() - started_s

    def test_who_abandons_keeps_nobody_and_has_only_close_left(self):
        members = self.begun(3)
        members[1].ok("abandon no_data")
        for command in ("begin", "all_reduce 1 1", "commit"):
            self.assertRegex(members[1].ask(command), "^CANCELLED abandoned: no_data")
        self.go_on([members[0], members[2]])
        self.end(members)

    def test_who_abandons_before_its_first_begin_keeps_nobody(self):
        members = self.job.members(2, MUSTER_MIN_MEMBERS_TIMEOUT_S=1)
        members[1].ok("abandon")
        self.assertRegex(members[1].ask("begin"), "^CANCELLED abandoned: ")
        self.assertEqual(members[0].ok("begin")["size"], 1)
        self.end(members)

    def test_an_end_without_close_is_told_before_the_process_is_gone(self):
        # The others know no process of another host: without a word they would wait for 10 s of silence.
        for where in ("behind commit", "behind begin", "in a step"):
            with self.subTest(where=where):
                members = [self.job.puppet(rank, 3, MUSTER_JOB=where.replace(" ", "-"), PUPPET_LINGERS_S="600" if rank == 1 else "0")
                           for rank in range(3)]
                every(members, "open")
                every(members, "register total 8 1")
                every(members, "begin")
                if where == "behind commit":
                    every(members, "commit")
                    every([members[0], members[2]], "begin")
                elif where == "in a step":
                    every(members, "all_reduce 1 1")
                members[1].tell("exit 0")  # its process stays: it takes its time to die
                for got in every([members[0], members[2]], "all_reduce 100 4 mean"):
                    self.assertEqual((got["value"], got["contributors"]), (4, 2))
                self.assertTrue(members[1].is_alive())
                members[1].kill()
                self.end([members[0], members[2]])


    def test_an_interpreter_that_takes_itself_down_keeps_nobody(self):
        members = self.begun(3)
        every(members, "all_reduce 1 1")
        members[1].ok("finalize")
        self.go_on([members[0], members[2]])
        self.assertRegex(members[1].ask("commit"), "^CANCELLED abandoned: ")
        self.end(members)


class FewerCalls(Case):
    def test_who_commits_without_an_operation_ends_it_on_those_who_wait(self):
        members = self.job.members(3)
        every(members, "begin")
        every(members, "all_reduce 1 1")
        for member in members[:2]:
            member.tell("all_reduce 1 2")
        members[2].ok("commit")
        for member in members[:2]:
            self.assertRegex(member.hear(), r"^INVALID_ARGUMENT all_reduce: operation #1: rank 2 \(worker:2\) has called commit of step 1 "
                                            r"after 1 operation, this rank all_reduce\(")
        every(members[:2], "commit")
        self.assertRegex(members[2].ask("begin"), r"^INVALID_ARGUMENT step 1 was committed here without an operation that other members wait for")
        for got in every(members[:2], "begin"):
            self.assertEqual(got["step"], 2)
        for got in every(members[:2], "all_reduce 1 3"):
            self.assertEqual(got["value"], 6)
        every(members[:2], "commit")
        self.end(members)


class OneAtATime(Case):
    def test_a_call_while_another_thread_is_in_one_is_refused_and_harms_nothing(self):
        members = self.job.members(2)
        every(members, "begin")
        members[0].ok("background_barrier")
        while "loader" not in members[0].ask("register late 1 1"):  # until the other thread is in
            pass
        line = members[0].ask("all_reduce 1 1")
        self.assertRegex(line, r"^FAILED_PRECONDITION all_reduce by thread \d+ \(puppet\) while thread \d+ \(loader\) is in barrier: ")
        for command in ("begin", "commit", "register late 1 1"):
            self.assertRegex(members[0].ask(command), rf"^FAILED_PRECONDITION {command.split()[0]} by thread .*\(loader\) is in barrier")
        members[1].ok("barrier")
        members[0].ok("background_end")
        for got in every(members, "all_reduce 1 3"):  # of another thread, one after the other
            self.assertEqual(got["value"], 6)
        every(members, "commit")
        self.end(members)

    def test_reports_of_two_threads_do_not_mix(self):
        members = self.job.members(1)
        every(members, "begin")
        self.assertEqual(members[0].ok("report_twice")["refused"], 1)
        every(members, "commit")
        self.end(members)

    def test_a_fork_is_no_member(self):
        members = self.job.members(2)
        every(members, "begin")
        got = members[0].ok("fork")
        self.assertEqual({got[name] for name in ("begin", "all_reduce", "commit")}, {"FAILED_PRECONDITION"})
        self.assertEqual((got["fork"], got["exit"]), (1, 7))
        for got in every(members, "all_reduce 1 3"):
            self.assertEqual((got["value"], got["contributors"]), (6, 2))
        every(members, "commit")
        self.end(members)


if __name__ == "__main__":
    unittest.main()
