#!/usr/bin/env python3
"""`muster params serve --registry`: servers share the tables of a job; one that is killed, stopped or added loses and doubles nothing."""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import MUSTER, PATIENCE_S, ParamsCluster, children_of

BINARIES = os.environ["MUSTER_BINARY_DIR"]
LEDGER = os.path.join(BINARIES, "tests", "programs", "params_ledger")


class Cluster(ParamsCluster):
    def ledger(self, addresses, element, pushes):
        process = self.start(LEDGER, addresses, "j", str(element), str(pushes))
        self.assertEqual(process.stdout.readline(), "begun\n")
        return process

    def assert_nothing_lost(self, ledgers):
        for ledger in ledgers:
            out, err = ledger.stdout.read(), ledger.stderr.read()  # communicate() misses lines that readline() has taken along
            self.assertEqual((ledger.wait(timeout=PATIENCE_S), err), (0, ""), out)
            self.assertRegex(out, r"^done \d+ lost 0 doubled 0 ")

    def test_rows_are_spread_over_servers(self):
        _, addresses = self.servers(3)
        self.assert_nothing_lost([self.ledger(addresses, i, 300) for i in range(2)])

    def test_any_server_tells_of_the_others(self):
        _, addresses = self.servers(3)
        self.assert_nothing_lost([self.ledger(addresses.split(",")[i], i, 300) for i in range(2)])

    def test_the_example_of_the_docs_counts(self):
        _, addresses = self.servers(3, "--replicas", "2")
        for _ in range(2):
            done = subprocess.run([os.path.join(BINARIES, "bin", "counter_params"), addresses.split(",")[0], "j"], capture_output=True, text=True,
                                  timeout=PATIENCE_S, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "totals 200 200 200 200\n")

    def test_a_killed_server_with_replicas_loses_and_doubles_nothing(self):
        witness, first, log = self.logged_server("--replicas", "2", "--expect", "3")
        keepers, others = self.servers(2, "--replicas", "2", "--expect", "3")
        ledgers = [self.ledger(f"{first},{others}", i, 20000) for i in range(2)]
        self.wait_for_copies(log)
        for keeper in keepers:
            maps = self.maps_of(log)
            self.kill_server(keeper)
            self.wait_for_copies(log, maps)
        self.assert_nothing_lost(ledgers)
        self.assertIsNone(witness.poll())

    def test_two_of_three_copies_killed_together_lose_and_double_nothing(self):
        keepers, addresses = self.servers(4, "--replicas", "3")
        ledgers = [self.ledger(addresses, i, 20000) for i in range(2)]
        for keeper in keepers[1:3]:  # the second one while the copies of the first are learned
            self.kill_server(keeper)
        self.assert_nothing_lost(ledgers)

    def test_a_lost_keeper_with_replicas_loses_and_doubles_nothing(self):
        keepers, addresses = self.servers(3, "--replicas", "2")
        ledgers = [self.ledger(addresses, i, 10000) for i in range(2)]
        keepers[1].kill()  # its server ends with it
        self.assert_nothing_lost(ledgers)

    def test_a_killed_server_without_replicas_goes_on_in_its_memory(self):
        keepers, addresses = self.servers(3)
        ledgers = [self.ledger(addresses, i, 20000) for i in range(2)]
        for keeper in keepers:
            os.kill(children_of(keeper.pid)[0], signal.SIGKILL)
        self.assert_nothing_lost(ledgers)

    def test_servers_come_and_go_amid_pushes(self):
        keepers, addresses = self.servers(2)
        ledgers = [self.ledger(addresses, i, 20000) for i in range(2)]
        self.server()
        keepers[0].send_signal(signal.SIGTERM)
        _, err = keepers[0].communicate(timeout=PATIENCE_S)
        self.assertEqual((keepers[0].returncode, err), (0, ""))
        self.assert_nothing_lost(ledgers)

    def test_a_server_that_cannot_give_its_shards_away_says_so(self):
        keepers, addresses = self.servers(2, "--drain-timeout", "0.3")
        self.assert_nothing_lost([self.ledger(addresses, 0, 10)])  # both have shards
        others = children_of(keepers[1].pid)  # the server and its spare
        for other in others:
            os.kill(other, signal.SIGSTOP)
        try:
            keepers[0].send_signal(signal.SIGTERM)
            _, err = keepers[0].communicate(timeout=PATIENCE_S)
        finally:
            for other in others:
                os.kill(other, signal.SIGCONT)
        self.assertEqual(keepers[0].returncode, 1)
        self.assertIn("params_not_drained", err)

    def test_a_job_that_waits_for_servers_says_for_how_many(self):
        log = self.logged_server("--expect", "2")[2]
        self.wait_until(lambda: self.lines_of(log, "params_job_waits"), "the job waits silently")
        self.assertIn(" servers=1 expect=2\n", self.lines_of(log, "params_job_waits")[-1])
        self.server("--expect", "2")
        self.wait_until(lambda: self.maps_of(log), "the job has not begun")

    def test_servers_that_all_end_wait_for_nobody(self):
        keepers, _ = self.servers(2)
        for keeper in keepers:
            keeper.send_signal(signal.SIGTERM)
        for keeper in keepers:
            _, err = keeper.communicate(timeout=PATIENCE_S)
            self.assertEqual((keeper.returncode, err), (0, ""))

    def test_servers_of_a_job_whose_rows_are_gone_say_so_and_begin_anew_by_force(self):
        keepers, addresses = self.servers(2)
        self.assert_nothing_lost([self.ledger(addresses, 0, 10)])
        for keeper in keepers:
            keeper.send_signal(signal.SIGTERM)
        for keeper in keepers:
            keeper.communicate(timeout=PATIENCE_S)
        others, _ = self.several("--memory-max", "64M")
        _, err = others.communicate(timeout=PATIENCE_S)
        self.assertEqual(others.returncode, 1)
        self.assertIn("muster params serve: the registry has the map of the job's former servers, which have all gone (one at 127.0.0.1:", err)
        _, addresses = self.several("--force-new", "--memory-max", "64M")
        self.assert_nothing_lost([self.ledger(addresses, 0, 10)])

    def several(self, *words):
        """Three seats by one command, and their addresses."""
        return self.server("--servers", "3", *words)

    def test_one_command_serves_in_several_seats(self):
        supervisor, addresses = self.several("--status", "127.0.0.1:0")
        self.assertEqual(len(set(addresses.split(","))), 3)
        pages = [supervisor.stdout.readline().split() for _ in range(3)]
        self.assertEqual(len({page for word, page in pages if word == "status"}), 3)
        self.assert_nothing_lost([self.ledger(addresses.split(",")[i], i, 300) for i in range(2)])
        supervisor.send_signal(signal.SIGTERM)
        out, err = supervisor.communicate(timeout=PATIENCE_S)
        self.assertEqual((supervisor.returncode, out), (0, ""), err)
        self.assertNotIn(" error ", err)

    def test_ports_of_several_seats_count_up(self):
        host = "127." + ".".join(str(random.randrange(1, 255)) for _ in range(3))  # nobody else has ports there
        _, addresses = self.several("--listen", f"{host}:7300")
        self.assertEqual(addresses, f"{host}:7300,{host}:7301,{host}:7302")

    def test_a_seat_outlives_its_keeper_and_its_supervisor_does_not(self):
        supervisor, addresses = self.several()
        ledgers = [self.ledger(addresses, i, 20000) for i in range(2)]
        for keeper in children_of(supervisor.pid):
            os.kill(keeper, signal.SIGKILL)
        self.assert_nothing_lost(ledgers)
        keepers = children_of(supervisor.pid)
        supervisor.kill()
        self.wait_until(lambda: not any(os.path.exists(f"/proc/{keeper}") for keeper in keepers), "a keeper lives on")

    def test_a_seat_with_replicas_that_loses_its_keeper_joins_again(self):
        supervisor, addresses = self.several("--replicas", "2")
        ledgers = [self.ledger(addresses, i, 10000) for i in range(2)]
        os.kill(children_of(supervisor.pid)[1], signal.SIGKILL)
        self.assert_nothing_lost(ledgers)
        self.wait_until(lambda: len(children_of(supervisor.pid)) == 3, "no keeper comes again")

    def test_a_seat_that_drains_leaves_the_others(self):
        supervisor, addresses = self.several()
        ledgers = [self.ledger(addresses, i, 10000) for i in range(2)]
        os.kill(children_of(supervisor.pid)[0], signal.SIGTERM)
        self.wait_until(lambda: len(children_of(supervisor.pid)) == 2, "it does not end")
        self.assert_nothing_lost(ledgers)
        supervisor.send_signal(signal.SIGTERM)
        _, err = supervisor.communicate(timeout=PATIENCE_S)
        self.assertEqual((supervisor.returncode, err), (0, ""))

    def drain(self, address, *words):
        return subprocess.run([MUSTER, "params", "drain", address, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def test_a_server_is_drained_from_outside(self):
        keepers, addresses = self.servers(3)
        ledgers = [self.ledger(addresses, i, 10000) for i in range(2)]
        for keeper, address in list(zip(keepers, addresses.split(",")))[:2]:
            done = self.drain(address)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            line = json.loads(done.stdout)
            self.assertEqual((sorted(line), line["drained"]), (["drained", "seconds"], address))
            _, err = keeper.communicate(timeout=PATIENCE_S)
            self.assertEqual((keeper.returncode, err), (0, ""))
        self.assert_nothing_lost(ledgers)

    def test_the_last_server_is_not_drained_from_outside(self):
        process, address = self.server()
        done = self.drain(address)
        self.assertEqual((done.returncode != 0, done.stdout), (True, ""))
        self.assertIn("no other server of the job", done.stderr)
        self.assertIsNone(process.poll())

    def ask(self, address, timeout):
        """What drain and inspect say of an address that is not a server's."""
        for words in (("drain", address), ("inspect", "--server", address)):
            yield subprocess.run([MUSTER, "params", *words, "--timeout", str(timeout)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def test_commands_that_meet_a_registry_say_so(self):
        for done in self.ask(self.registry, PATIENCE_S):  # it answers at once
            self.assertEqual((done.returncode != 0, done.stdout), (True, ""))
            self.assertIn(f"{self.registry} is not a server of parameters: a registry or another gRPC server answers there; give the address of a "
                          "'muster params serve'\n", done.stderr)

    def test_commands_that_meet_a_silent_port_say_what_should_be_there(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            for done in self.ask(address, 0.5):
                self.assertEqual((done.returncode != 0, done.stdout), (True, ""))
                self.assertIn(f"{address} has not answered within 0.5 s (--timeout): it must be a 'muster params serve' that runs", done.stderr)

    def test_a_drain_names_one_server(self):
        for words in ((), ("127.0.0.1:1", "127.0.0.1:2"), ("127.0.0.1:1", "--tls-key", "key.pem"), ("here",), ("127.0.0.1:1,127.0.0.1:2",)):
            done = self.drain(*words) if words else subprocess.run([MUSTER, "params", "drain"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)

    def test_a_second_server_at_an_address_gets_no_shards(self):
        witness, first, log = self.logged_server("--replicas", "2", "--expect", "2")
        _, second = self.server("--replicas", "2", "--expect", "2")
        self.server("--replicas", "2", "--reach", second)
        self.wait_until(lambda: self.lines_of(log, "params_replica_refused"), "nobody tells of it")
        self.assertIn(f'address={second} reason="another process answers at its address"', self.lines_of(log, "params_replica_refused")[0])
        ledgers = [self.ledger(f"{first},{second}", i, 10000) for i in range(2)]
        self.wait_until(lambda: self.inspect_errors(first), "inspect does not tell of the third server")
        self.assertEqual(self.inspect_errors(first), ["another server answers at this address: this one is gone, or both have one --reach"])
        witness.kill()
        self.assert_nothing_lost(ledgers)

    def inspect_errors(self, address):
        done = subprocess.run([MUSTER, "params", "inspect", "--json", "--interval", "0", "--server", address], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        return [server["error"] for server in json.loads(done.stdout)["servers"] if "error" in server]

    def test_a_server_with_another_number_of_shards_is_refused(self):
        _, addresses = self.servers(2)
        ledger = self.ledger(addresses, 0, 1000)
        other = self.start(MUSTER, "params", "serve", "--registry", self.registry, "--job", "j", "--shards", "64")
        _, err = other.communicate(timeout=PATIENCE_S)
        self.assertEqual(other.returncode, 1)
        self.assertIn("muster params serve: the servers of job j have 256 shards, this one has 64: start it with as many\n", err)
        self.assert_nothing_lost([ledger])

    def test_seats_end_together_when_one_cannot_begin(self):
        done = subprocess.run([MUSTER, "params", "serve", "--registry", self.registry, "--job", "j", "--servers", "2", "--tls-cert", "nowhere.pem",
                               "--tls-key", "nowhere.pem"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn("nowhere.pem", done.stderr)

    def test_wrong_options_are_refused_with_what_to_do(self):
        for words, text in ((("--replicas", "2"), "need --registry HOST:PORT"), (("--expect", "2"), "need --registry HOST:PORT"),
                            (("--servers", "2"), "need --registry HOST:PORT"), (("--drain-timeout", "5"), "need --registry HOST:PORT"),
                            (("--replica-lag-max", "5"), "need --registry HOST:PORT"), (("--job", "a/b"), "--job: a job's name must not have a '/'"),
                            (("--job", "j" * 64), "--job: a job's name must have 1 to 63 bytes"), (("--shards", "3"), "--shards must be a power of two"),
                            (("--registry", self.registry, "--job", "j", "--reach", "0.0.0.0:5"), "--reach must be an address by which others"),
                            (("--registry", self.registry, "--job", "j", "--servers", "2", "--listen", "127.0.0.1:65535"), "--listen must be an address"),
                            (("--registry", self.registry, "--job", "j", "--servers", "2", "--reach", "here"), '--reach: "here": the port is missing'),
                            (("--registry", self.registry), "--registry needs --job NAME"),
                            (("--registry", "nowhere", "--job", "j"), "--registry: "),
                            (("--registry", self.registry, "--job", "a/b"), "--job: a job's name must not have a '/'"),
                            (("--registry", self.registry, "--job", "x\ny"), "got byte 0x0a behind \"x\""),
                            (("--registry", self.registry, "--job", "j", "--listen", "0.0.0.0:0"), "--reach must say by which HOST:PORT"),
                            (("--registry", self.registry, "--job", "j", "--replicas", "6"), "--replicas: must be at most 5, got")):
            done = subprocess.run([MUSTER, "params", "serve", *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(text, done.stderr)


unittest.main(verbosity=0)
