#!/usr/bin/env python3
"""`muster params serve` under TLS: clients with a certificate are served, others are refused and told why, a policy knows them by their
certificates, and SIGHUP reads certificates again.

Needs grpcio (MUSTER_GRPC_PYTHON names an interpreter that has it), protobuf, protoc and openssl.
"""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
import params_stranger
from tls_files import TlsFiles

needs.run_with("grpc", "python3-grpcio")
needs.tool("openssl", "openssl")
import grpc
from params_cluster import MUSTER, PATIENCE_S, ParamsCluster

WORKER, READER, SERVER = "spiffe://test/job/7/task/worker", "spiffe://test/job/7/task/reader", "spiffe://test/job/7/server"
METHODS = "/muster.params.v1.Params/"


def setUpModule():
    global pb
    pb = params_stranger.messages(unittest.addModuleCleanup)


def read(path):
    with open(path, "rb") as file:
        return file.read()


class JobPolicy(ParamsCluster):
    """Servers of a job send what comes by gRPC to each other: under a policy, with their own certificates."""

    def setUp(self):
        super().setUp()
        self.files = TlsFiles(self.addCleanup)
        self.worker, self.reader = (self.files.issue(name, f"URI:{uri}") for name, uri in (("worker", WORKER), ("reader", READER)))

    def words_with(self, *everything):
        """Options of servers that let these do everything, and readers pull."""
        cert, key = self.files.issue("server", f"DNS:localhost,IP:127.0.0.1,URI:{SERVER}")
        policy = self.files.path("policy.json")
        with open(policy, "w", encoding="ascii") as file:
            json.dump({"name": "params", "allow_rules": [{"name": "all", "source": {"principals": everything}},
                                                         {"name": "readers", "source": {"principals": [READER]},
                                                          "request": {"paths": [METHODS + name for name in ("Open", "Pull", "Watch")]}}]}, file)
        return ("--expect", "2", "--replicas", "2", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", self.files.ca, "--authorization",
                policy)

    def dial(self, address, pair):
        cert, key = map(read, pair)
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(read(self.files.ca), key, cert))
        self.addCleanup(channel.close)
        return params_stranger.Stranger(channel, pb)

    def test_a_policy_holds_at_each_server_of_a_job(self):
        keys = list(range(1000))  # enough that each server leads some
        self.addresses = self.servers(2, *self.words_with(SERVER, WORKER))[1].split(",")
        workers = [self.dial(address, self.worker) for address in self.addresses]
        readers = [self.dial(address, self.reader) for address in self.addresses]
        source = params_stranger.until_answered(workers[0].Open, pb.OpenRequest(name="worker")).source
        params_stranger.until_answered(workers[0].Table, pb.TableRequest(schema=pb.Schema(name="items", row_elements=1)))
        push = pb.PushRequest(source=source, sequence=1, table_name="items", keys=keys, values=[1.0] * len(keys))
        for worker in workers:
            self.assertEqual(params_stranger.until_answered(worker.Push, push).applied, len(keys))
        for reader in readers:
            self.assertEqual(set(reader.Pull(pb.PullRequest(table_name="items", keys=keys)).values), {1.0})
            watch = reader.watch()
            self.assertEqual(len(next(watch).servers), 2)
            watch.cancel()
            for method, request in (("Push", push), ("Tick", pb.TickRequest(source=source, clock=1, sources=1)),
                                    ("Table", pb.TableRequest(schema=pb.Schema(name="items"))), ("Inspect", pb.InspectRequest())):
                with self.assertRaises(grpc.RpcError) as refused:
                    getattr(reader, method)(request)
                self.assertEqual((refused.exception.code(), refused.exception.details()),
                                 (grpc.StatusCode.PERMISSION_DENIED, f"{READER} may not call {METHODS}{method}"))

    def test_servers_that_may_not_copy_to_each_other_are_told_of_once(self):
        words = self.words_with(WORKER)
        logs = [self.logged_server(*words)[2] for _ in range(2)]
        for log in logs:
            self.wait_until(lambda: self.lines_of(log, "params_replica_still"), "they wait for each other for ever")
            refusal, = self.lines_of(log, "call_not_allowed")
            self.assertIn(f"caller={SERVER} method={METHODS}Replicate", refusal)
            self.assertEqual(self.lines_of(log, "params_client_dropped"), [])


class Tls(unittest.TestCase):
    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        self.server = self.files.issue("server", "DNS:localhost,IP:127.0.0.1")
        self.worker = self.files.issue("worker", f"URI:{WORKER}")
        self.reader = self.files.issue("reader", f"URI:{READER}")
        self.log = []

    def serve(self, *words):
        cert, key = self.server
        self.process = subprocess.Popen([MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", "--tls-cert", cert, "--tls-key", key,
                                         "--tls-client-ca", self.files.ca, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.address = self.process.stdout.readline().split()[1]
        self.reading = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reading.start()

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)
        self.reading.join()
        self.process.stdout.close()
        self.process.stderr.close()
        self.assertEqual(self.process.returncode, 0, self.log)

    def wait_for_log(self, text):
        until = time.monotonic() + PATIENCE_S
        while not any(text in line for line in self.log):
            self.assertLess(time.monotonic(), until, self.log)
            time.sleep(0.01)

    def dial(self, pair=None):
        cert, key = (None, None) if pair is None else map(read, pair)
        channel = grpc.secure_channel(self.address, grpc.ssl_channel_credentials(read(self.files.ca), key, cert))
        self.addCleanup(channel.close)
        return params_stranger.Stranger(channel, pb)

    def inspect(self, *words, code=0):
        done = subprocess.run([MUSTER, "params", "inspect", "--json", "--server", self.address, *words], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def as_worker(self):
        return ["--tls-ca", self.files.ca, "--tls-cert", self.worker[0], "--tls-key", self.worker[1]]

    def push(self, stranger, sequence=1):
        source = stranger.Open(pb.OpenRequest(name="stranger")).source
        stranger.Table(pb.TableRequest(schema=pb.Schema(name="items", row_elements=1)))
        return stranger.Push(pb.PushRequest(source=source, sequence=sequence, table_name="items", keys=[5], values=[1]))

    def refusal(self, act):
        with self.assertRaises(grpc.RpcError) as refused:
            act()
        return refused.exception

    def test_certificates_are_demanded(self):
        self.serve()
        self.assertEqual(self.push(self.dial(self.worker)).applied, 1)
        self.assertEqual(json.loads(self.inspect(*self.as_worker()).stdout)["servers"][0]["rows"], 1)
        for stranger in (self.dial(), self.dial(TlsFiles(self.addCleanup).issue("worker", f"URI:{WORKER}")),
                         params_stranger.Stranger(grpc.insecure_channel(self.address), pb)):
            self.assertEqual(self.refusal(lambda: self.push(stranger)).code(), grpc.StatusCode.UNAVAILABLE)
            stranger.channel.close()
        self.wait_for_log("the client showed no certificate")

    def test_inspect_says_what_is_wrong(self):
        self.serve()
        self.assertIn("demands a certificate", self.inspect("--tls-ca", self.files.ca, code=4).stderr)
        self.assertNotEqual(self.inspect(code=4).stderr, "")
        self.assertIn("nothing.pem", self.inspect("--tls-ca", "nothing.pem", code=3).stderr)

    def cut(self, address):
        folder = self.files.path("cut")
        os.makedirs(folder, exist_ok=True)
        return subprocess.run([MUSTER, "params", "cut", "--server", address, *self.as_worker(), folder], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def test_a_server_is_known_by_what_was_dialled(self):
        self.serve()
        for address in (self.address, self.address.replace("127.0.0.1", "localhost")):
            done = self.cut(address)
            self.assertEqual((done.returncode, done.stderr), (0, ""), address)
            self.assertEqual(self.inspect("--server", address, *self.as_worker()).stderr, "")

    def test_a_server_with_another_name_is_refused(self):
        self.server = self.files.issue("other", "DNS:other.example,IP:127.0.0.9")
        self.serve()
        done = self.cut(self.address)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn('not for "127.0.0.1" or "muster-link": dial a name that it has', done.stderr)

    def test_a_server_with_the_certificate_of_a_member_is_accepted(self):
        self.server = self.files.issue("member", "DNS:muster-link")
        self.serve()
        self.assertEqual(self.cut(self.address).stderr, "")

    def test_a_client_whose_certificate_is_refused_is_told_at_once(self):
        self.serve()
        folder = self.files.path("cut")
        os.mkdir(folder)
        done = subprocess.run([MUSTER, "params", "cut", "--server", self.address, "--tls-ca", self.files.ca, "--timeout", str(10 * PATIENCE_S), folder],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("demands a certificate", done.stderr)

    def test_a_client_in_plain_text_reads_that_it_has_no_tls(self):
        self.serve()
        folder = self.files.path("plain")
        os.mkdir(folder)
        words = "the connection, which has no TLS, .*before .*first message"
        for seconds in ("2", "20"):  # on a busy machine no connection may have ended in the first time
            done = subprocess.run([MUSTER, "params", "cut", "--server", self.address, "--timeout", seconds, folder], capture_output=True, text=True,
                                  timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, 4, done.stderr)
            if re.search(words, done.stderr):
                break
        self.assertRegex(done.stderr, words)

    def test_a_policy_knows_clients_by_their_certificates(self):
        policy = self.files.path("policy.json")
        with open(policy, "w", encoding="ascii") as file:
            json.dump({"name": "params", "allow_rules": [{"name": "workers", "source": {"principals": [WORKER]}},
                                                         {"name": "readers", "source": {"principals": [READER]},
                                                          "request": {"paths": [METHODS + name for name in ("Open", "Table", "Pull")]}}]}, file)
        self.serve("--authorization", policy)
        reader = self.dial(self.reader)
        refused = self.refusal(lambda: self.push(reader))
        self.assertEqual(refused.code(), grpc.StatusCode.PERMISSION_DENIED)
        self.assertIn(f"{READER} may not call {METHODS}Push", refused.details())
        self.assertEqual(list(reader.Pull(pb.PullRequest(table_name="items", keys=[5])).values), [0])
        self.assertEqual(self.push(self.dial(self.worker)).applied, 1)

    def test_sighup_reads_certificates_again(self):
        self.serve()
        self.process.send_signal(signal.SIGHUP)
        self.wait_for_log("certificates_read_again")
        self.assertEqual(self.push(self.dial(self.worker)).applied, 1)
        self.assertFalse(any("killed" in line for line in self.log), self.log)

    def test_wrong_files_and_halves_are_refused(self):
        for words, code, text in ((["--tls-cert", self.server[0]], 2, "--tls-key"), (["--tls-client-ca", self.files.ca], 2, "--tls-cert"),
                                  (["--tls-cert", "nothing.pem", "--tls-key", self.server[1]], 3, "nothing.pem"),
                                  (["--authorization", "nothing.json"], 3, "nothing.json")):
            done = subprocess.run([MUSTER, "params", "serve", "--memory-max", "64M", *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
