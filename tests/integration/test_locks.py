#!/usr/bin/env python3
"""Locks and elections beside those of stock etcdctl, on the embedded registry and on etcd; holders that are killed."""
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from etcd_cluster import ETCD, ETCDCTL, Embedded, EtcdCluster, etcdctl
from puppets import BINARIES, CLEAN, PATIENCE_S, PROGRAMS


class Talker:
    """A process that says line by line what becomes of it."""

    def __init__(self, case, *command, **env):
        self.case = case
        self.process = subprocess.Popen(command, env=dict(CLEAN, **env), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        case.addCleanup(self.let_go)

    def hear(self, first=""):
        line = self.process.stdout.readline().rstrip("\n")
        self.case.assertTrue(line.startswith(first) and line, f"{line!r} instead of {first!r}")
        return line

    def number(self, first):
        return int(self.hear(first).split()[1])

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def let_go(self):
        self.process.stdin.close()

    def end(self, code=0):
        self.let_go()
        self.case.assertEqual(self.process.wait(timeout=PATIENCE_S), code)


class OnRegistry:
    """The cases; a subclass says on which registry."""

    def locker(self, *words):
        return Talker(self, os.path.join(PROGRAMS, "locker"), *words, MUSTER_REGISTRY=self.registry.endpoints)

    def ctl(self, *words):
        return Talker(self, ETCDCTL, "--endpoints", self.registry.endpoints, *words, ETCDCTL_API="3")

    def queued(self, name):
        return etcdctl(self.registry.endpoints, "get", "--prefix", "--keys-only", name + "/").stdout.split()

    def wait_until_queued(self, name, count):
        while len(self.queued(name)) != count:
            pass

    def test_who_has_the_lock_is_killed_and_the_next_has_it_with_a_higher_token(self):
        first = self.locker("lock", "killed")
        token = first.number("held")
        second = self.locker("lock", "killed")
        self.wait_until_queued("killed", 2)
        first.process.send_signal(signal.SIGKILL)
        self.assertGreater(second.number("held"), token)
        second.let_go()
        second.hear("unlocked")
        second.end()
        self.assertEqual(self.queued("killed"), [])

    def test_a_holder_that_stood_still_is_told_that_it_has_lost(self):
        first = self.locker("lock", "still")
        token = first.number("held")
        first.process.send_signal(signal.SIGSTOP)
        second = self.locker("lock", "still")
        self.assertGreater(second.number("held"), token)
        first.process.send_signal(signal.SIGCONT)
        first.hear("lost")
        first.end()
        second.end()

    def test_etcdctl_waits_for_our_lock_and_we_for_its(self):
        ours = self.locker("lock", "both")
        ours.hear("held")
        theirs = self.ctl("lock", "--ttl=5", "both")
        self.wait_until_queued("both", 2)
        again = self.locker("lock", "both")
        self.wait_until_queued("both", 3)
        ours.end()
        theirs.hear("both/")
        theirs.process.send_signal(signal.SIGINT)
        again.hear("held")
        again.end()

    def test_etcdctl_runs_in_our_election_and_we_in_its(self):
        observer = self.locker("observe", "vote")
        observer.hear("nobody")
        ours = self.locker("elect", "vote", "ours")
        term = ours.number("elected")
        observer.hear("leader ours")
        theirs = self.ctl("elect", "vote", "theirs")
        listener = self.ctl("elect", "--listen", "vote")
        listener.hear("vote/")
        listener.hear("ours")
        ours.tell("ours2")
        ours.hear("proclaimed")
        observer.hear("leader ours2")
        listener.hear("vote/")
        listener.hear("ours2")
        self.wait_until_queued("vote", 2)
        again = self.locker("elect", "vote", "again")
        self.wait_until_queued("vote", 3)
        ours.end()
        theirs.hear("vote/")
        theirs.hear("theirs")
        observer.hear("leader theirs")
        listener.process.kill()
        theirs.process.send_signal(signal.SIGINT)
        self.assertGreater(again.number("elected"), term)
        observer.hear("leader again")
        again.end()
        observer.hear("nobody")
        observer.end()


class Example(unittest.TestCase):
    def test_the_next_leads_when_the_leader_is_killed(self):
        registry = Embedded(self.addCleanup)
        first, second = (Talker(self, os.path.join(BINARIES, "bin", "leader"), "cleaner", MUSTER_REGISTRY=registry.endpoints) for _ in range(2))
        leader = first if first.process.pid == int(etcdctl_leader(registry)) else second
        other = second if leader is first else first
        leader.hear(f"process {leader.process.pid} leads")
        leader.hear(f"process {leader.process.pid} did piece 1")
        leader.process.kill()
        other.hear(f"process {other.process.pid} leads")
        other.hear(f"process {other.process.pid} did piece 1")


def etcdctl_leader(registry):
    """The number of the process that leads, once one does."""
    while not (word := etcdctl(registry.endpoints, "get", "--prefix", "cleaner/", "--sort-by=CREATE", "--limit=1", "--print-value-only").stdout):
        pass
    return word.split()[1]


@unittest.skipUnless(ETCDCTL, "etcdctl is not installed (Debian: etcd-client)")
class OnEmbedded(OnRegistry, unittest.TestCase):
    def setUp(self):
        self.registry = Embedded(self.addCleanup)


@unittest.skipUnless(ETCD and ETCDCTL, "etcd is not installed (Debian: etcd-server, etcd-client)")
class OnEtcd(OnRegistry, unittest.TestCase):
    def setUp(self):
        self.registry = EtcdCluster(self.addCleanup, size=1)


if __name__ == "__main__":
    needs.tool("etcdctl", "etcd-client")
    unittest.main()
