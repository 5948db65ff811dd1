#!/usr/bin/env python3
"""The place of a launcher (integration.run_claim), where only the end of a lease, or a user, can tell that a former one is dead."""
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import cases
from launchers import LauncherCase
from puppets import PATIENCE_S, Job, Puppet, every


class Leases(LauncherCase, unittest.TestCase):
    def open_registry(self):
        job = Job()
        self.addCleanup(job.stop)
        return job.address

    def test_so_it_does_where_the_guard_was_killed_too(self):
        first = self.launch(slow=True)
        first.hear("with 2 members")
        first.kill(guard_too=True)
        self.launch().end()

    def test_so_it_does_on_another_host_without_a_guard_when_the_leases_are_over(self):
        first = self.launch(slow=True, host="a")
        first.hear("with 2 members")
        first.kill(guard_too=True)
        again = self.launch(host="b")
        again.hear(rf"waits for the launcher of node rank 0 at .*, pid {first.child.pid}, which does not answer")
        again.end()

    def test_a_launcher_that_was_stopped_finds_its_successor(self):
        first = self.launch(slow=True, host="a")
        first.hear("with 2 members")
        first.child.send_signal(signal.SIGSTOP)
        second = self.launch(host="b", steps=20)
        second.hear(r"waits for members of a former launcher, which live or are registered: worker:0 \(.*, pid \d+\)")
        first.child.send_signal(signal.SIGCONT)
        first.end(1)
        self.assertRegex(first.text(), rf"taken over by the launcher at .*, pid {second.child.pid}, while this one was stopped")
        second.end()

    def test_a_launcher_that_does_not_come_is_named(self):
        first = self.launch(1, nodes="3", slow=True)
        first.hear("waiting for the launchers of node rank 0, 2: job one has 3 machines; start them with the same --job and --registry")

    def test_force_new_gives_up_members_of_a_host_that_is_gone(self):
        """Nobody can tell of them: they have no launcher, and are of another host."""
        members = [Puppet(self.registry, rank, 2, MUSTER_HOST_KEY="gone", MUSTER_JOB="one") for rank in range(2)]
        for member in members:
            self.addCleanup(member.discard)
        every(members, "open 0")
        every(members, "register total 8 1")
        every(members, "begin")
        refused = self.launch(0, "--force-new", host="here")
        refused.end(4)
        self.assertRegex(refused.text(), r"--force-new: these members of job one are registered, so they live: worker:0 \(.*, pid "
                         rf"{members[0].child.pid}\), worker:1")
        for member in members:
            member.kill()
        waiting = self.launch(host="here")
        # The second one may have made a view without the first one before it was killed, too.
        waiting.hear(r"start_blocked .*waits_for=\"(worker:0 at .* \(pid \d+\), )?worker:1 at .*: members of the last view .*--force-new")
        waiting.kill()
        while True:  # their leases have some seconds left
            anew = self.launch(0, "--force-new", host="here")
            anew.child.wait(timeout=PATIENCE_S)
            anew.reader.join()
            if "try again in 10 s" not in anew.text():
                break
        anew.end()


if __name__ == "__main__":
    cases.main()
