#!/usr/bin/env python3
"""`muster run --nnodes 2 --registry …` on two hosts (namespaces): launchers killed and resumed, a host lost and come back, an elastic
start; on `muster registry` and on etcd."""
# Entries of ctest: OnEmbedded OnEtcd
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from etcd_cluster import ETCD, ETCDCTL, Embedded, EtcdCluster
from launchers import STEPPER, Launcher, words_of
from puppets import BINARIES
from two_hosts import two_hosts, why_not

SOURCE = os.environ["MUSTER_SOURCE_DIR"]
LONG = 4000  # steps that take 25 ms each: until the case has seen what it waits for, and lets the workers hurry


class OnRegistry:
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.where = where.name
        self.hosts = two_hosts(self.addCleanup)
        self.registry = self.open_registry()
        self.addCleanup(self.end_workers)

    def end_workers(self):
        """Those of resumable launchers, when a case has failed."""
        for host in self.hosts:
            pids = subprocess.run(["ip", "netns", "pids", host.name], text=True, capture_output=True).stdout.split()
            for pid in pids:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    if "stepper" in file.read():
                        os.kill(int(pid), signal.SIGKILL)

    def path(self, *names):
        return os.path.join(self.where, *names)

    def words(self, rank, *more, nodes="2", program=None, steps=300, count=1000):
        return words_of(rank, nodes, 2, "two", self.registry.endpoints, "--json", self.path(f"{rank}.json"), *more,
                        program=program or (STEPPER, str(steps), "8", "total", str(count)))

    def hurry(self):
        with open(self.path("hurry"), "w", encoding="utf-8"):
            pass

    def start(self, rank, *words):
        host = self.hosts[rank]
        return Launcher(self, *words, inside=host.inside, STEPPER_HURRY=self.path("hurry"), STEPPER_LINGER_MS="25", **host.variables)

    def launch(self, rank, *more, **kinds):
        return self.start(rank, *self.words(rank, *more, **kinds))

    def summaries(self, ranks=(0, 1)):
        found = []
        for rank in ranks:
            with open(self.path(f"{rank}.json"), encoding="utf-8") as file:
                found.append(json.load(file))
        return found

    def assert_same(self, steps, ranks=(0, 1)):
        digests = []
        for summary in self.summaries(ranks):
            self.assertEqual((summary["steps"], summary["identical"], summary["survivors_restarted"]), (steps, True, 0), summary)
            digests += summary["digests"]
        self.assertEqual((len(digests), len(set(digests))), (2 * len(ranks), 1), digests)

    def assert_compared(self, launchers):
        """The last one to end has seen the weights of the other."""
        self.assertTrue(any("weights byte-identical on 2 machines" in launcher.text() for launcher in launchers))

    def test_a_job_trains_on_both(self):
        self.hurry()
        launchers = [self.launch(rank) for rank in range(2)]
        for launcher in launchers:
            launcher.end()
            self.assertEqual(launcher.text().count("total 300"), 2)
        self.assert_same(300)
        self.assert_compared(launchers)

    def test_the_main_job_trains_through_deaths_on_both(self):
        digits = (os.path.join(BINARIES, "bin", "digits"), "--data", f"{SOURCE}/examples/data/digits.csv", "--steps", "300", "--batch", "64")
        launchers = [self.launch(rank, "--kill", "worker:1@step=60", "--kill", "worker:2@step=120", program=digits) for rank in range(2)]
        for launcher in launchers:
            launcher.end()
        self.assert_same(300)
        self.assertEqual([summary["kills"] for summary in self.summaries()], [1, 1])

    def test_a_launcher_is_killed_and_resumed(self):
        launchers = [self.launch(rank, "--resumable", self.path(f"run{rank}"), steps=LONG, count=10) for rank in range(2)]
        for rank in (1, 0):
            launchers[rank].hear("view 1 with 4 members")
        for rank in (1, 0):
            launchers[rank].kill()
            launchers[rank] = self.start(rank, "--resume", self.path(f"run{rank}"))
            launchers[rank].hear("taken over", 2)
        self.hurry()
        for launcher in launchers:
            launcher.end()
        self.assert_same(LONG)
        self.assertEqual([summary["restarts"] for summary in self.summaries()], [0, 0])

    def lose_second_host(self, cut):
        launchers = [self.launch(rank, steps=LONG, count=10) for rank in range(2)]
        for launcher in launchers:
            launcher.hear("view 1 with 4 members")
        if cut:
            self.hosts[1].do("link", "set", "cable", "down")
        launchers[1].kill()  # its workers die with it
        launchers[0].hear("with 2 members")
        if cut:
            self.hosts[1].do("link", "set", "cable", "up")
        launchers[1] = self.launch(1, steps=LONG, count=10)
        launchers[1].hear("rejoined in", 2)
        self.hurry()
        for launcher in launchers:
            launcher.end()
        self.assert_same(LONG)

    def test_a_host_is_lost_and_comes_back(self):
        self.lose_second_host(cut=False)

    def test_a_host_is_lost_in_silence_and_comes_back(self):
        self.lose_second_host(cut=True)

    def test_an_elastic_job_starts_on_one_and_grows_to_both(self):
        first = self.launch(0, "--min-members-timeout", "2", nodes="1:2", steps=LONG, count=10)
        first.hear("view 1 with 2 members")
        second = self.launch(1, "--min-members-timeout", "2", nodes="1:2", steps=LONG, count=10)
        second.hear(" joined in", 2)
        first.hear(" joined, view ", 2)
        self.hurry()
        first.end()
        second.end()
        self.assert_same(LONG)


class OnEmbedded(OnRegistry, unittest.TestCase):
    def open_registry(self):
        return Embedded(self.addCleanup, prefix=self.hosts[0].inside, listen=f"{self.hosts[0].address}:0")


@unittest.skipUnless(ETCD and ETCDCTL, "etcd is not installed (Debian: etcd-server, etcd-client)")
class OnEtcd(OnRegistry, unittest.TestCase):
    def open_registry(self):
        return EtcdCluster(self.addCleanup, size=1, ip=self.hosts[0].address, prefix=self.hosts[0].inside)


if __name__ == "__main__":
    if WHY := why_not():
        needs.skip(WHY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the cleanups
    unittest.main()
