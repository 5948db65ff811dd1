#!/usr/bin/env python3
"""What parameter exchange promises for faults other than the death of a server: clients that die, a registry that is away, a server that
stands still, descriptors and memory that run out. The deaths of servers are in test_params_serve.py and test_params_cluster.py, lost hosts
in test_params_two_hosts.py."""
import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import MUSTER, PATIENCE_S, ParamsCluster, children_of

PROGRAMS = os.path.join(os.environ["MUSTER_BINARY_DIR"], "tests", "programs")
FOREVER = 10**9
SMALL_DISK = "mount -t tmpfs -o size=4m small {} && echo mounted"


def can_mount():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["unshare", "-m", "sh", "-c", SMALL_DISK.format(folder)], capture_output=True, text=True,
                              check=False)
    return done.stdout == "mounted\n"


class Faults(ParamsCluster):
    def client(self, program, addresses, element, pushes, *held, **options):
        process = self.start(os.path.join(PROGRAMS, program), addresses, "j", str(element), str(pushes), *held, **options)
        self.assertEqual(process.stdout.readline(), "begun\n")
        return process

    def assert_nothing_lost(self, ledger):
        out, err = ledger.stdout.read(), ledger.stderr.read()
        self.assertEqual((ledger.wait(timeout=PATIENCE_S), err), (0, ""), out)
        self.assertRegex(out, r"^done \d+ lost 0 doubled 0 ")

    def assert_rows_are_alike(self, address):
        done = subprocess.run([os.path.join(PROGRAMS, "params_pulse"), address, "j", "0", "0"], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [int(word) for word in done.stdout.split()[1:]]

    def test_a_killed_client_has_each_push_in_all_rows_or_in_none(self):
        _, address = self.serve("--job", "j")
        other = self.client("params_ledger", address, 0, 5000)
        for element in range(1, 4):
            victim = self.client("params_pulse", address, element, FOREVER)
            victim.kill()
        self.assert_nothing_lost(other)
        self.assertTrue(all(count >= 1 for count in self.assert_rows_are_alike(address)[1:]))

    def registry_at(self, address, data):
        process = self.start(MUSTER, "registry", "--listen", address, "--data", data)
        self.assertEqual(process.stdout.readline(), f"listening {address}\n")
        return process

    def test_pushes_go_on_without_the_registry_and_the_map_changes_when_it_is_back(self):
        self.registry = "127." + ".".join(str(random.randrange(1, 255)) for _ in range(3)) + ":7400"  # nobody else has ports there
        data = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "registry")
        registry = self.registry_at(self.registry, data)
        keepers, addresses, logs = zip(*[self.logged_server("--replicas", "2", "--expect", "3") for _ in range(3)])
        for log in logs:
            self.wait_for_copies(log)
        self.assert_nothing_lost(self.client("params_ledger", ",".join(addresses), 0, 1))  # the job's first table needs the registry
        registry.kill()
        registry.wait()

        self.assert_nothing_lost(self.client("params_ledger", ",".join(addresses), 1, 3000))
        maps = self.maps_of(log)
        keepers[0].kill()
        self.registry_at(self.registry, data)

        self.wait_until(lambda: any("servers=2 " in line for line in self.maps_of(log)[len(maps):]), "no map without the killed server")
        self.assert_nothing_lost(self.client("params_ledger", addresses[-1], 2, 3000))

    def test_pushes_wait_for_a_server_that_stands_still_and_none_is_lost(self):
        keepers, addresses = self.servers(2)
        ledger = self.client("params_ledger", addresses, 0, 20000)
        victim = children_of(keepers[0].pid)[0]
        os.kill(victim, signal.SIGSTOP)
        try:
            late = self.start(os.path.join(PROGRAMS, "params_pulse"), addresses.split(",")[1], "j", "1", "3")
        finally:
            os.kill(victim, signal.SIGCONT)
        self.assert_nothing_lost(ledger)
        self.assertEqual((late.wait(timeout=PATIENCE_S), late.stderr.read()), (0, ""))

    def test_pushes_do_not_wait_for_a_replica_that_stands_still(self):
        keepers, addresses, logs = zip(*[self.logged_server("--replicas", "2", "--expect", "3", "--replica-lag-max", "0.2")
                                         for _ in range(3)])
        for log in logs:
            self.wait_for_copies(log)
        ledger = self.client("params_ledger", ",".join(addresses), 0, 20000, "held", source=subprocess.PIPE)
        victim = children_of(keepers[0].pid)[0]
        os.kill(victim, signal.SIGSTOP)
        try:
            # Pushes under way at the stop may wait for the victim as the primary alone; those begun after it also wait for its copies.
            ledger.stdin.write("\n")
            ledger.stdin.flush()
            self.wait_until(lambda: any(self.lines_of(log, "params_replica_still") for log in logs[1:]), "primaries wait for their replica")
            told = [line for log in logs[1:] for line in self.lines_of(log, "params_replica_still")]
            self.assertIn(f" address={addresses[0]} ", told[0])
        finally:
            os.kill(victim, signal.SIGCONT)
        self.assert_nothing_lost(ledger)
        self.wait_for_copies(logs[1])

    def test_clients_are_served_while_descriptors_have_run_out(self):
        keeper, address = self.serve("--job", "j")
        ledger = self.client("params_ledger", address, 0, 20000)
        server = children_of(keeper.pid)[0]
        used = len(os.listdir(f"/proc/{server}/fd"))
        before = resource.prlimit(server, resource.RLIMIT_NOFILE)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (used + 2, before[1]))
        host, port = address.rsplit(":", 1)
        with contextlib.ExitStack() as knocks:
            for _ in range(16):
                knocks.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            self.assert_nothing_lost(ledger)
        self.assert_nothing_lost(self.client("params_ledger", address, 1, 100))
        resource.prlimit(server, resource.RLIMIT_NOFILE, before)

    @unittest.skipUnless(can_mount(), "a file system of its own cannot be mounted here (unshare -m)")
    def test_a_cut_on_a_full_disk_is_refused_and_pushes_go_on(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        holder = self.start("unshare", "-m", "sh", "-c", SMALL_DISK.format(folder) + " && exec sleep infinity")
        self.assertEqual(holder.stdout.readline(), "mounted\n")
        inside = ("nsenter", "-t", str(holder.pid), "-m", "--")
        process = self.start(*inside, MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--job", "j")
        address = process.stdout.readline().split()[1]
        ledger = self.client("params_ledger", address, 0, 20000)
        cut = (*inside, MUSTER, "params", "cut", "--server", address, "--job", "j", "--timeout", str(PATIENCE_S), folder)

        filled = subprocess.run([*inside, "dd", "if=/dev/zero", f"of={folder}/filler", "bs=1k"], capture_output=True, text=True, check=False)
        self.assertIn("No space left", filled.stderr)
        done = subprocess.run(cut, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode != 0, done.stdout), (True, ""))
        self.assertRegex(done.stderr, f"cannot write {folder}/.*: No space left on device")
        subprocess.run([*inside, "rm", f"{folder}/filler"], check=True)
        done = subprocess.run(cut, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

        self.assert_nothing_lost(ledger)


unittest.main(verbosity=0)
