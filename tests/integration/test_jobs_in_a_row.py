#!/usr/bin/env python3
"""One job after another on one registry: the next one begins with its own processes alone, whatever is left of the former."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import Job, every

SIZE = 3
ROUNDS = 3


class JobsInARow(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def begun(self):
        """Members of a job that all of its tasks have begun together, whichever of them came last."""
        members = self.job.members(SIZE)
        for got in every(members, "begin"):
            self.assertEqual((got["step"], got["size"]), (1, SIZE))
        every(members, "all_reduce 10 1")
        return members

    def test_members_leave_one_by_one(self):
        for _ in range(ROUNDS):
            for member in self.begun():
                member.end()

    def test_members_leave_at_once(self):
        for _ in range(ROUNDS):
            members = self.begun()
            for member in members:
                member.child.stdin.close()
            for member in members:
                member.end()

    def test_a_killed_member_is_not_waited_for_by_the_next_job(self):
        for rank in range(ROUNDS):
            members = self.begun()
            members.pop(rank).kill()
            for member in members:
                member.end()

    def test_who_closes_before_the_job_has_begun_is_not_counted(self):
        self.job.puppet(2, SIZE).ok("open 0")
        self.job.puppets[-1].end()
        for member in self.begun():
            member.end()

    def test_who_is_killed_before_the_job_has_begun_is_not_counted(self):
        self.job.puppet(2, SIZE).ok("open 0")
        self.job.puppets[-1].kill()
        for member in self.begun():
            member.end()


if __name__ == "__main__":
    unittest.main(verbosity=2)
