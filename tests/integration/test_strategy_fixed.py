#!/usr/bin/env python3
"""A fixed size: the loss of a member ends the others with UNAVAILABLE, which names it. And who answers, whether the size is fixed or not."""
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, ask_every, every


class Members(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def members(self, size, options):
        members = [self.job.puppet(rank, size) for rank in range(size)]
        every(members, f"open 0 0 - {options}")
        every(members, "register total 8 1")
        return members


class Fixed(Members):
    def expect_end(self, members):
        for line in ask_every(members, "begin"):
            self.assertRegex(line, r"^UNAVAILABLE worker:1 is gone \(.*\), and the size of this strategy is fixed$")
        for member in members:
            member.end()

    def test_a_death_in_the_middle_of_a_step_ends_the_others(self):
        members = self.members(3, "fixed=1")
        every(members, "begin")
        every(members, "all_reduce 1 3")
        others = [members[0], members[2]]
        for member in others:
            member.tell("all_reduce 1 3")
        members[1].kill()
        for member in others:
            self.assertRegex(member.hear(), "^UNAVAILABLE worker:1 is gone ")
        for line in ask_every(others, "check_health 1"):
            self.assertRegex(line, "^UNAVAILABLE worker:1 is gone ")
        self.expect_end(others)

    def test_a_death_between_steps_ends_the_others_in_their_next_begin(self):
        members = self.members(3, "fixed=1")
        every(members, "begin")
        every(members, "commit")
        members[1].kill()
        others = [members[0], members[2]]
        for member, line in zip(others, ask_every(others, "begin")):
            if line.startswith("ok step=2 "):  # it has not heard of the death yet
                self.assertRegex(member.ask("all_reduce 1 3"), "^UNAVAILABLE worker:1 is gone ")
        self.expect_end(others)

    def test_members_whose_work_is_done_end_in_order(self):
        members = self.members(3, "fixed=1")
        every(members, "begin")
        every(members, "all_reduce 1 3")
        every(members, "commit")
        for member in members:
            member.end()


class Health(Members):
    def test_members_answer_whatever_their_program_does(self):
        members = self.members(3, "fixed=0")
        every(members, "begin")
        members[0].ok("check_health 60")
        members[1].send_signal(signal.SIGSTOP)
        self.assertRegex(members[0].ask("check_health 0.7"), r"^UNAVAILABLE 1 of 3 do not answer: worker:1 \(silent for 0\.7 s\)$")
        members[1].send_signal(signal.SIGCONT)
        members[0].ok("check_health 60")
        every(members, "all_reduce 1 3")
        every(members, "commit")
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def test_a_member_that_has_died_is_named_at_once(self):
        members = self.members(2, "fixed=0")
        every(members, "begin")
        members[0].ok("check_health 60")
        members[1].kill()
        self.assertRegex(members[0].ask("check_health 60"), r"^UNAVAILABLE 1 of 2 do not answer: worker:1 \(gone\)$")
        members[0].ask("barrier")
        members[0].ok("begin")
        members[0].ok("check_health 60")  # nobody else is a member any more
        members[0].end()


if __name__ == "__main__":
    unittest.main()
