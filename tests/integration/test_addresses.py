#!/usr/bin/env python3
"""Where members listen and what they tell the others, on two hosts (namespaces): by themselves, as told, and what is refused."""
import contextlib
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
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS, Puppet, each, every
from two_hosts import two_hosts, why_not

STEPPER = os.path.join(PROGRAMS, "stepper")


class Case(unittest.TestCase):
    def setUp(self):
        self.hosts = two_hosts(self.addCleanup)

    def registry(self, listen="[::]:0", host=0):
        """Its port; it is reached at every address of the host."""
        process = subprocess.Popen([*self.hosts[host].inside, MUSTER, "registry", "--listen", listen, "--log-level", "error"],
                                   env=CLEAN, text=True, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        words = process.stdout.readline().split()
        self.assertEqual(words[:1], ["listening"])
        return words[1].rsplit(":", 1)[1]

    def puppet(self, rank, size, endpoints, host=None, **variables):
        host = self.hosts[rank % 2] if host is None else host
        puppet = Puppet(endpoints, rank, size, prefix=host.inside, **variables)
        self.addCleanup(puppet.discard)
        return puppet

    def listening(self, host):
        """The addresses that processes of the host listen at."""
        done = subprocess.run([*host.inside, "ss", "-Hltn"], text=True, capture_output=True, check=True)
        return sorted(line.split()[3] for line in done.stdout.splitlines())

    def train(self, members):
        every(members, "open 0 60")
        every(members, "begin")
        for got in each(members, lambda m: f"all_reduce 100000 {m.rank + 1} sum"):
            self.assertEqual((got["value"], got["contributors"]), (sum(m.rank + 1 for m in members), len(members)))

    def ipv6(self):
        for i, host in enumerate(self.hosts):
            host.do("address", "add", f"fd77::{i + 1}/64", "dev", "cable", "nodad")

    def link_local(self, host):
        found = json.loads(host.do("-json", "-6", "address", "show", "dev", "cable", "scope", "link"))[0]
        return found["ifindex"], found["addr_info"][0]["local"]


class ByThemselves(Case):
    def test_the_address_is_that_towards_the_registry(self):
        port = self.registry()
        self.ipv6()
        for endpoints, pattern in ((f"10.77.0.1:{port}", r"10\.77\.0\.{}:\d+"), (f"[fd77::1]:{port}", r"\[fd77::{}\]:\d+"),
                                   (f"127.0.0.1:1,10.77.0.1:{port}", r"10\.77\.0\.{}:\d+")):
            with self.subTest(endpoints=endpoints):
                before = [self.listening(host) for host in self.hosts]
                members = [self.puppet(rank, 3, endpoints, MUSTER_JOB=re.sub(r"\W", "-", endpoints)) for rank in range(3)]
                self.train(members)
                for number, host in enumerate(self.hosts):
                    ports = [each for each in self.listening(host) if each not in before[number]]
                    self.assertEqual(len(ports), 2 - number, ports)
                    for each_port in ports:
                        self.assertRegex(each_port, f"^{pattern.format(number + 1)}$")
                for member in members:
                    member.end()

    def test_link_local_addresses_have_other_scopes_on_other_hosts(self):
        self.hosts[1].do("link", "delete", "cable")
        self.hosts[1].do("link", "add", "spare", "type", "veth", "peer", "name", "plug")
        self.hosts[0].do("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.hosts[1].name)
        for host in self.hosts:
            subprocess.run([*host.inside, "sysctl", "-q", "-w", "net.ipv6.conf.cable.accept_dad=0"], check=False)
            host.do("link", "set", "cable", "up")
        deadline = 1000
        while "tentative" in "".join(host.do("-6", "address", "show", "dev", "cable") for host in self.hosts) and deadline:
            deadline -= 1
        places = [self.link_local(host) for host in self.hosts]
        self.assertNotEqual(places[0][0], places[1][0])
        port = self.registry()
        members = [self.puppet(rank, 2, f"[{places[0][1]}%{places[rank][0]}]:{port}") for rank in range(2)]
        self.train(members)
        for member in members:
            member.end()

    def test_a_registry_of_this_host_makes_it_loopback(self):
        port = self.registry("127.0.0.1:0")
        members = [self.puppet(rank, 2, f"127.0.0.1:{port}", host=self.hosts[0]) for rank in range(2)]
        self.train(members)
        for address in self.listening(self.hosts[0]):
            self.assertRegex(address, r"^127\.0\.0\.1:")
        for member in members:
            member.end()

    def test_tf_config_says_it(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        cluster = {"worker": ["10.77.0.1:2222", "10.77.0.2:2222"]}
        members = [self.puppet(rank, 2, endpoints, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}))
                   for rank in range(2)]
        self.train(members)
        for number, host in enumerate(self.hosts):
            self.assertIn(f"10.77.0.{number + 1}:2222", self.listening(host))
        for member in members:
            member.end()


class AsTold(Case):
    def test_interfaces_ranges_and_all_addresses(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        for told, shown in (("cable:5000-5001", "10.77.0.{}:500"), ("0.0.0.0:5000-5001", "0.0.0.0:500"), ("[::]:5000-5001", "*:500"),
                            (":5000-5001", "0.0.0.0:500")):
            with self.subTest(told=told):
                members = [self.puppet(rank, 4, endpoints, MUSTER_LISTEN=told, MUSTER_JOB=re.sub(r"\W", "-", told)) for rank in range(4)]
                self.train(members)
                for number, host in enumerate(self.hosts):  # and nothing else
                    ports = [each for each in self.listening(host) if ":500" in each]
                    self.assertEqual(ports, [shown.format(number + 1) + str(i) for i in range(2)])
                    self.assertEqual(len(self.listening(host)), len(ports) + (number == 0))
                for member in members:
                    member.end()

    def test_a_range_that_is_full_is_told(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        first = self.puppet(0, 2, endpoints, MUSTER_LISTEN="cable:5000-5001")
        second = self.puppet(2, 4, endpoints, MUSTER_LISTEN="cable:5000-5001", MUSTER_JOB="other")
        every([first, second], "open")
        third = self.puppet(4, 6, endpoints, MUSTER_LISTEN="cable:5000-5001", MUSTER_JOB="third")
        self.assertRegex(third.ask("open"), r"^UNAVAILABLE all 2 ports of the range 10\.77\.0\.1:5000-5001 .*--listen")


class Loopback(Case):
    """A member at a loopback address is of no use to those of other hosts."""

    def test_it_is_refused_beside_members_of_another_host(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        good = self.puppet(0, 2, endpoints)
        good.ok("open 0 60")
        good.tell("begin")
        bad = self.puppet(1, 2, endpoints, MUSTER_LISTEN="127.0.0.1")
        bad.ok("open 0 60")
        self.assertRegex(bad.ask("begin"), r"^INVALID_ARGUMENT worker:1 would be reached at 127\.0\.0\.1:\d+, but worker:0 "
                                           r"\(10\.77\.0\.1:\d+\) is on another host: .*--listen ADDRESS")
        self.assertFalse(good.has_answered())
        mended = self.puppet(1, 2, endpoints)
        mended.ok("open 0 60")
        self.assertIn("size=2", mended.ask("begin"))
        self.assertIn("size=2", good.hear())

    def test_a_job_of_loopback_is_not_joined_from_another_host(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        near = [self.puppet(rank, 2, endpoints, host=self.hosts[0], MUSTER_LISTEN="127.0.0.1") for rank in range(2)]
        self.train(near)
        far = self.puppet(2, 3, endpoints, host=self.hosts[1])
        far.ok("open 0 60")
        self.assertRegex(far.ask("begin"), r"^INVALID_ARGUMENT worker:[01] of job default is reached at 127\.0\.0\.1:\d+ of another host")
        every(near, "commit")
        every(near, "begin")


class Launchers(Case):
    def launch(self, rank, *words, nodes=2, program=(STEPPER, "20"), **variables):
        host = self.hosts[rank]
        many = ["--nnodes", str(nodes), "--node-rank", str(rank)] if nodes else []
        process = subprocess.Popen([*host.inside, MUSTER, "run", *many, "-n", "2", "--job", "two", *words, "--", *program],
                                   env=dict(CLEAN, **variables), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def end(self, launchers):
        texts = [launcher.communicate(timeout=PATIENCE_S)[0] for launcher in launchers]
        for launcher, text in zip(launchers, texts):
            self.assertEqual(launcher.returncode, 0, text)
            self.assertIn("view 1 with 4 members", text)
            self.assertIn("weights byte-identical on 2 workers of this machine (4 in the job)", text)
        return texts

    def test_ranges_hold_for_workers_that_are_started_again(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        with tempfile.TemporaryDirectory() as where:
            words = ["--registry", endpoints, "--listen", "cable:5000-5001", "--kill", "worker:1@step=5", "--kill", "worker:3@step=9"]
            script = f'echo "listen $MUSTER_LISTEN"; exec {STEPPER} 4000'
            hurry = os.path.join(where, "hurry")
            launchers = [self.launch(rank, *words, program=("sh", "-c", script), STEPPER_HURRY=hurry, STEPPER_LINGER_MS="25") for rank in range(2)]
            said = ["", ""]
            for rank, launcher in enumerate(launchers):
                while "rejoined in" not in said[rank]:
                    line = launcher.stdout.readline()
                    self.assertTrue(line, said[rank])
                    said[rank] += line
            with open(hurry, "w", encoding="utf-8"):
                pass
            for rank, launcher in enumerate(launchers):
                text = said[rank] + launcher.communicate(timeout=PATIENCE_S)[0]
                self.assertEqual(launcher.returncode, 0, text)
                self.assertIn("weights byte-identical on 2 workers of this machine (4 in the job)", text)
                self.assertEqual(text.count(f"listen 10.77.0.{rank + 1}:5000-5001"), 3, text)

    def test_a_resolver_names_the_addresses(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        cluster = {"worker": ["10.77.0.1:2222", "10.77.0.2:2222"]}
        script = f'echo "at $MUSTER_TASK_ADDRESS"; exec {STEPPER} 20'
        for words, shown in (([], "at 10.77.0.{}\n"), (["-n", "1", "--job", "one"], "at 10.77.0.{}:2222\n")):
            with self.subTest(words=words):
                launchers = [self.launch(rank, "--registry", endpoints, "--resolver", "tf_config:", *words, nodes=None,
                                         program=("sh", "-c", script),
                                         TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}))
                             for rank in range(2)]
                for rank, launcher in enumerate(launchers):
                    text = launcher.communicate(timeout=PATIENCE_S)[0]
                    self.assertEqual(launcher.returncode, 0, text)
                    self.assertIn(shown.format(rank + 1), text)
                    self.assertIn(f"view 1 with {2 if words else 4} members", text)

    def test_what_cannot_be_is_refused_before_a_worker_starts(self):
        endpoints = f"10.77.0.1:{self.registry()}"
        with contextlib.ExitStack() as stack:
            for told, code, named in (
                    ("127.0.0.1", 2, "must be an address that the other machines of --nnodes 2 reach"),
                    ("lo", 2, "must be an address that the other machines"), ("localhost", 2, "must be an address that the other machines"),
                    ("10.77.0.9", 2, "10.77.0.9 must be an address of this host"), ("eth9", 2, "eth9 must be"),
                    ("cable:x", 2, "cable:x"), ("cable:5-4", 2, "must not be above"), ("unix:/a", 2, "unix:/a"), ("5000", 2, "colon"),
                    ("cable:5000", 2, "got 1; give a range such as 5000-5001"),
                    ("cable:1-1", 2, "must have a port for each of the 2 workers, got 1")):
                with self.subTest(told=told):
                    for words, variables in ((["--listen", told], {}), ([], {"MUSTER_LISTEN": told})):
                        launcher = self.launch(0, "--registry", endpoints, *words, program=("echo", "started"), **variables)
                        text = launcher.communicate(timeout=PATIENCE_S)[0]
                        self.assertEqual(launcher.returncode, code, text)
                        self.assertIn(named, text)
                        self.assertNotIn("started", text)
            hold = subprocess.Popen([*self.hosts[0].inside, sys.executable, "-c",
                                     "import socket; a = [socket.create_server(('10.77.0.1', p)) for p in (5000, 5002)]; print('up', flush=True); input()"],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(hold)
            stack.callback(hold.kill)
            self.assertEqual(hold.stdout.readline(), "up\n")
            launcher = self.launch(0, "--registry", endpoints, "--listen", "cable:5000-5002", program=("echo", "started"))
            text = launcher.communicate(timeout=PATIENCE_S)[0]
            self.assertEqual(launcher.returncode, 4, text)
            self.assertIn("--listen cable:5000-5002 must have a free port for each of the 2 workers: 1 of its 3 ports are free", text)
            self.assertNotIn("started", text)

    def test_several_launchers_of_one_host_meet_at_loopback(self):
        endpoints = f"127.0.0.1:{self.registry('127.0.0.1:0')}"
        launchers = []
        for rank in range(2):
            self.hosts[1] = self.hosts[0]
            launchers.append(self.launch(rank, "--registry", endpoints))
        self.end(launchers)


if __name__ == "__main__":
    if WHY := why_not():
        needs.skip(WHY)
    needs.tool("ss", "iproute2")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the cleanups
    unittest.main()
