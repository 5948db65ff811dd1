#!/usr/bin/env python3
"""Members on two hosts: two network namespaces with a cable (veth) between them, which a case may cut and mend."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS, Job, each, every, ok
from two_hosts import two_hosts, why_not

COUNT = 500_000  # f64: 4 MB, so that an operation is many chunks


def retransmitted(member):
    """How many TCP segments the member's host has sent again."""
    with open(f"/proc/{member.child.pid}/net/snmp", encoding="utf-8") as file:
        names, values = (line.split() for line in file if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


class Case(unittest.TestCase):
    def setUp(self):
        self.hosts = two_hosts(self.addCleanup)
        self.job = Job(self.hosts[0].inside, self.hosts[0].address)
        self.addCleanup(self.job.stop)

    def started(self, size, **variables):
        """Members in the middle of step 1, every other one on the second host."""
        members = []
        for rank in range(size):
            host = self.hosts[rank % 2]
            members.append(self.job.puppet(rank, size, prefix=host.inside, **host.variables, **variables))
        every(members, "open")
        every(members, "register total 8 1")
        self.epoch = None
        for got in every(members, "begin"):
            self.assertEqual((got["step"], got["size"]), (1, size))
            self.epoch = got["epoch"]
        return members

    def train(self, members):
        """The rest of the step: the same sum on all, which becomes the state, and the same digest of it."""
        answers = each(members, lambda m: f"all_reduce {COUNT} {m.rank + 0.1} mean")
        self.assertEqual(len({got["value"] for got in answers}), 1, answers)
        self.assertEqual({got["contributors"] for got in answers}, {len(members)})
        every(members, f"set total {answers[0]['value']!r}")
        every(members, "commit")
        self.assertEqual(len({got["digest"] for got in every(members, "digest")}), 1)

    def end(self, members):
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()


class TwoHosts(Case):
    def test_members_on_both_train_over_the_cable(self):
        members = self.started(4)
        before = [host.received_bytes() for host in self.hosts]
        for got in each(members, lambda m: f"all_reduce {COUNT} {m.rank + 1} sum"):
            self.assertEqual((got["value"], got["contributors"], got["interrupted"]), (10, 4, 0))
        for host, bytes_before in zip(self.hosts, before):
            self.assertGreater(host.received_bytes() - bytes_before, COUNT * 8)
        for got in each(members, lambda m: f"broadcast {COUNT} {m.rank + 5} 1"):
            self.assertEqual(got["value"], 6)
        for got in each(members, lambda m: f"all_gather {COUNT // 4} {m.rank + 5}"):
            self.assertEqual(got["parts"], "5,6,7,8")
        self.train(members)
        self.assertEqual({(got["size"], got["epoch"]) for got in every(members, "begin")}, {(4, self.epoch)})
        self.end(members)

    def test_the_launchers_of_both_run_one_job(self):
        launchers = []
        for rank, host in enumerate(self.hosts):
            command = [*host.inside, MUSTER, "run", "--nnodes", "2", "--node-rank", str(rank), "-n", "2", "--job", "two",
                       "--registry", self.job.address, "--json", "-", "--", os.path.join(PROGRAMS, "stepper"),
                       "20", "8", "total", str(COUNT // 10)]
            launchers.append(subprocess.Popen(command, env=dict(CLEAN, **host.variables), text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            self.addCleanup(launchers[-1].wait)
            self.addCleanup(launchers[-1].kill)
        digests = []
        for launcher in launchers:
            output, errors = launcher.communicate(timeout=PATIENCE_S)
            self.assertEqual(launcher.returncode, 0, errors)
            result = json.loads(output.splitlines()[-1])
            self.assertEqual((result["restarts"], result["survivors_restarted"], result["steps"]), (0, 0, 20), result)
            self.assertEqual((output + errors).count("total 20"), 2)
            digests += result["digests"]
        self.assertEqual((len(digests), len(set(digests))), (4, 1))


class Cable(Case):
    def wait_for(self, holds):
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            self.assertLess(time.monotonic(), deadline)

    def tell_while_it_is_cut(self, members):
        """Begin an operation, and mend the cable as soon as the near host has sent in vain; how long it was cut."""
        sent_again = retransmitted(members[0])
        began = time.monotonic()
        self.hosts[1].do("link", "set", "cable", "down")
        for member in members:
            member.tell(f"all_reduce {COUNT} {member.rank + 0.1} mean")
        self.wait_for(lambda: retransmitted(members[0]) > sent_again)
        self.assertFalse(any(member.has_answered() for member in members))
        self.hosts[1].do("link", "set", "cable", "up")
        return time.monotonic() - began

    def test_it_is_cut_and_mended_during_an_operation_and_no_view_changes(self):
        for attempt in range(10):
            members = self.started(2, MUSTER_JOB=f"cut{attempt}")
            if self.tell_while_it_is_cut(members) < 0.5:  # who is silent for a second is suspected
                break
            for member in members:
                member.kill()
        else:
            self.skipTest("this machine is too busy to mend the cable in time")
        answers = [ok(member.hear()) for member in members]
        self.assertEqual(answers[0], answers[1])
        self.assertEqual((answers[0]["contributors"], answers[0]["interrupted"]), (2, 0))
        self.train(members)
        self.assertEqual({(got["step"], got["size"], got["epoch"], got["restored"]) for got in every(members, "begin")},
                         {(2, 2, self.epoch, 0)})
        self.end(members)


class Connections(Case):
    """Single connections between the hosts fail; the cable does not."""

    def ports(self, members):
        """The ports, near and far, of the connections between two members: the control link's, then the stripes'."""
        registry_port = self.job.address.rsplit(":", 1)[1]
        inside = self.hosts[0].inside
        lines = subprocess.run([*inside, "ss", "-Htin", "state", "established", "dst", self.hosts[1].address],
                               text=True, capture_output=True, check=True).stdout.splitlines()
        found = []
        for at in range(0, len(lines), 2):
            near, far = (end.rsplit(":", 1)[1] for end in lines[at].split()[2:4])
            bytes_acked = re.search(r"bytes_acked:(\d+)", lines[at + 1])
            if near != registry_port:
                found.append((int(bytes_acked[1]) if bytes_acked else 0, near, far))
        self.assertEqual(len(found), 1 + self.stripes, lines)
        return [ends for _, *ends in sorted(found)]

    stripes = 2  # between hosts, if nothing is said

    def started_with_data(self, **variables):
        members = self.started(2, **variables)
        each(members, lambda m: f"all_reduce {COUNT} {m.rank + 0.1} mean")
        return members

    def assert_resumed(self, members, link, operations=1):
        """Operations end as if nothing had been, until both have said that the link is back."""
        deadline = time.monotonic() + PATIENCE_S
        while operations > 0 or not all(any(f"link={link}" in line for line in list(m.errors)) for m in members):
            self.assertLess(time.monotonic(), deadline, [list(member.errors) for member in members])
            answers = each(members, lambda m: f"all_reduce {COUNT} {m.rank + 0.1} mean")
            self.assertEqual(answers[0], answers[1])
            self.assertEqual((answers[0]["contributors"], answers[0]["interrupted"]), (2, 0))
            operations -= 1

    def assert_same_view(self, members):
        self.train(members)
        self.assertEqual({(got["step"], got["size"], got["epoch"], got["restored"]) for got in every(members, "begin")},
                         {(2, 2, self.epoch, 0)})
        self.end(members)

    def reset(self, near, far):
        done = subprocess.run([*self.hosts[0].inside, "ss", "-K", "sport", "=", near, "dport", "=", far],
                              text=True, capture_output=True)
        if near not in done.stdout:
            self.skipTest(f"ss cannot reset connections here: {done.stderr}")

    def test_the_control_link_is_reset_and_no_view_changes(self):
        members = self.started_with_data()
        self.reset(*self.ports(members)[0])
        self.assert_resumed(members, "control")
        self.assert_same_view(members)

    def test_one_of_several_stripes_is_reset_and_no_view_changes(self):
        for self.stripes, zerocopy in (1, "0"), (2, "64K"), (4, "0"):
            with self.subTest(stripes=self.stripes, zerocopy=zerocopy):
                members = self.started_with_data(MUSTER_STRIPES=self.stripes, MUSTER_ZEROCOPY=zerocopy,
                                                 MUSTER_JOB=f"stripes-{self.stripes}")
                for member in members:
                    member.tell(f"all_reduce {COUNT} {member.rank + 0.1} mean")
                self.reset(*self.ports(members)[-1])
                answers = [ok(member.hear()) for member in members]
                self.assertEqual(answers[0], answers[1])
                self.assert_resumed(members, "data")
                self.assert_same_view(members)

    def test_all_links_are_reset_at_once_and_no_view_changes(self):
        members = self.started_with_data()
        for ends in self.ports(members):
            self.reset(*ends)
        self.assert_resumed(members, "control")
        self.assert_resumed(members, "data")
        self.assert_same_view(members)

    def test_the_control_link_carries_nothing_any_more_and_no_view_changes(self):
        members = self.started_with_data()
        ends = self.ports(members)[0]
        for host, (source, target) in zip(self.hosts, (ends, ends[::-1])):
            host.do("route", "add", "blackhole", "default", "table", "7")
            host.do("rule", "add", "pref", "1", "ipproto", "tcp", "sport", source, "dport", target, "lookup", "7")
        self.assert_resumed(members, "control", operations=30)
        self.assert_same_view(members)


class Deaths(Case):
    def test_who_dies_while_the_cable_is_cut_is_noticed_all_the_same(self):
        members = self.started(2)
        self.hosts[1].do("link", "set", "cable", "down")
        members[1].kill()
        got = members[0].ok(f"all_reduce {COUNT} 1 mean")
        self.assertEqual((got["value"], got["contributors"]), (1, 1))
        members[0].ok("commit")
        got = members[0].ok("begin")
        self.assertEqual((got["step"], got["size"], got["restored"]), (2, 1, 0))
        self.end(members[:1])

    def test_one_of_a_host_is_killed_and_the_others_of_both_go_on(self):
        members = self.started(4)
        rest = members[:3]
        for member in rest:
            member.tell(f"all_reduce {COUNT} {member.rank + 0.1} mean")
        members[3].kill()
        answers = [ok(member.hear()) for member in rest]
        self.assertEqual({(got["value"], got["contributors"]) for got in answers}, {(answers[0]["value"], 3)})
        every(rest, "commit")
        for got in every(rest, "begin"):
            self.assertEqual((got["step"], got["size"], got["restored"]), (2, 3, 0))
        self.train(rest)
        self.end(rest)

    def test_all_of_a_host_are_killed_and_the_majority_on_the_other_goes_on(self):
        members = self.started(3)
        rest = [members[0], members[2]]
        for member in members:
            member.tell(f"all_reduce {COUNT} {member.rank + 0.1} mean 8")
        members[1].kill()
        answers = [ok(member.hear()) for member in rest]
        self.assertEqual(len({(got["value"], got["contributors"]) for got in answers}), 1, answers)
        every(rest, "commit")
        for got in every(rest, "begin"):
            self.assertEqual((got["step"], got["size"], got["restored"]), (2, 2, 0))
        self.train(rest)
        self.end(rest)


if __name__ == "__main__":
    if WHY := why_not():
        needs.skip(WHY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the cleanups
    unittest.main()
