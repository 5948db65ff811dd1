#!/usr/bin/env python3
"""Servers of parameters on two hosts (network namespaces): a host that is lost, and one that is cut off, lose and double nothing."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
from params_cluster import MUSTER, PATIENCE_S, ParamsCluster
from two_hosts import two_hosts, why_not

LEDGER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "tests", "programs", "params_ledger")
PUSHES = 20000


class TwoHosts(ParamsCluster):
    """The registry is on the first host: the second one is alone behind a cut."""

    def setUp(self):
        self.hosts = two_hosts(self.addCleanup)
        self.host = self.hosts[0]
        self.registry = self.start_on(self.host, MUSTER, "registry", "--listen", f"{self.host.address}:0").stdout.readline().split()[1]

    def start_on(self, host, *words, **files):
        return self.start(*host.inside, "env", *(f"{name}={value}" for name, value in host.variables.items()), *words, **files)

    def serve_on(self, host, log, *words):
        return self.start_on(host, MUSTER, "params", "serve", "--listen", f"{host.address}:0", "--memory-max", self.memory, "--registry",
                             self.registry, "--job", "j", "--expect", "2", *words, log=log)

    def serve_on_both(self, *words):
        """The addresses of the two servers; the log of the first says which maps it has seen."""
        log = self.log_file()
        keepers = [self.serve_on(self.hosts[0], log, *words), self.serve_on(self.hosts[1], self.log_file(), *words)]
        addresses = [keeper.stdout.readline().split()[1] for keeper in keepers]
        return addresses, log.name

    def ledger_on(self, host, addresses, element):
        process = self.start_on(host, LEDGER, addresses, "j", str(element), str(PUSHES))
        self.assertEqual(process.stdout.readline(), "begun\n")
        return process

    def assert_nothing_lost(self, ledger):
        out, err = ledger.stdout.read(), ledger.stderr.read()
        self.assertEqual((ledger.wait(timeout=PATIENCE_S), err), (0, ""), out)
        self.assertRegex(out, r"^done \d+ lost 0 doubled 0 ")

    def wait_for_map(self, log, words, maps=0):
        self.wait_until(lambda: any(all(word in line for word in words) for line in self.maps_of(log)[maps:]), f"no map has {words}")

    def cut(self):
        self.hosts[1].do("link", "set", "cable", "down")

    def mend(self):
        self.hosts[1].do("link", "set", "cable", "up")

    def test_a_lost_host_with_replicas_loses_nothing_and_learns_again(self):
        addresses, log = self.serve_on_both("--replicas", "2")
        self.wait_for_map(log, ("servers=2 ", "short_shards=0\n"))
        ledger = self.ledger_on(self.hosts[0], ",".join(addresses), 0)
        maps = len(self.maps_of(log))
        self.cut()
        self.wait_for_map(log, ("servers=1 ",), maps)
        self.assert_nothing_lost(ledger)
        maps = len(self.maps_of(log))
        self.mend()
        self.wait_for_map(log, ("servers=2 ", "short_shards=0\n"), maps)

    def test_a_server_that_is_cut_off_acknowledges_nothing_that_is_lost(self):
        addresses, log = self.serve_on_both("--replicas", "2")
        self.wait_for_map(log, ("servers=2 ", "short_shards=0\n"))
        behind = self.ledger_on(self.hosts[1], ",".join(reversed(addresses)), 1)
        before = self.ledger_on(self.hosts[0], ",".join(addresses), 0)
        maps = len(self.maps_of(log))
        self.cut()
        self.wait_for_map(log, ("servers=1 ",), maps)
        self.assert_nothing_lost(before)
        self.mend()
        self.assert_nothing_lost(behind)

    def test_shards_of_a_lost_host_without_replicas_wait_for_it(self):
        addresses, log = self.serve_on_both()
        self.wait_for_map(log, ("servers=2 ",))
        ledger = self.ledger_on(self.hosts[0], ",".join(addresses), 0)
        self.cut()
        self.wait_until(lambda: self.lines_of(log, "params_server_lost"), "the log names no lost server")
        (lost,) = self.lines_of(log, "params_server_lost")
        self.assertRegex(lost, rf"address={addresses[1]} waiting_shards=1\d\d\n")
        self.assertIsNone(ledger.poll())
        self.mend()
        self.assert_nothing_lost(ledger)
        self.wait_until(lambda: self.lines_of(log, "params_server_back"), "the log does not name the server that is back")


reason = why_not()
if reason:
    needs.skip(reason)
unittest.main(verbosity=0)
