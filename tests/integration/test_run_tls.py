#!/usr/bin/env python3
"""muster run --tls auto: a job whose registry and links speak TLS, through deaths and renewals; nobody else gets in."""
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PEER_VERSION, PROGRAMS

STEPPER = os.path.join(PROGRAMS, "stepper")


def run(*options, program=(STEPPER, "20", "1000", "w", "20000"), **variables):
    return subprocess.run([MUSTER, "run", *options, "--", *program], capture_output=True, text=True, timeout=PATIENCE_S, env=dict(CLEAN, **variables))


def talk(port, *texts):
    """The bytes that a stranger hears who says these."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain:
        try:
            for text in texts:
                plain.sendall(text)
            while got := plain.recv(4096):
                heard += got
        except ConnectionError:
            pass
    return heard


class Job:
    """One that holds still at its end until it may go."""

    def __init__(self, case, *options, steps=5, below=(), **variables):
        folder = tempfile.TemporaryDirectory()
        case.addCleanup(folder.cleanup)
        self.go = os.path.join(folder.name, "go")
        count = "1" if below else "2"
        self.process = subprocess.Popen([MUSTER, "run", "-n", count, *options, "--", *below, STEPPER, str(steps)], text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=dict(CLEAN, STEPPER_HOLD=self.go, **variables))
        case.addCleanup(self.process.communicate)
        case.addCleanup(self.process.kill)
        self.lines = []
        while sum("] total " in line for line in self.lines) < 2:
            line = self.process.stdout.readline()
            if not line:
                case.fail("".join(self.lines))
            self.lines.append(line)

    def workers(self):
        lines = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
        processes = {int(pid): (int(parent), args) for pid, parent, *args in (line.split() for line in lines)}
        return [pid for pid, (_, args) in processes.items() if args[0] == STEPPER and self.is_below(pid, processes)]

    def is_below(self, pid, processes):
        while pid in processes and pid != self.process.pid:
            pid = processes[pid][0]
        return pid == self.process.pid

    def environment(self):
        with open(f"/proc/{self.workers()[0]}/environ", encoding="utf-8") as file:
            return dict(entry.split("=", 1) for entry in file.read().split("\0") if "=" in entry)

    def ports(self, has_launcher=True):
        """Where the workers and the launcher listen."""
        pids = [self.process.pid] * has_launcher + self.workers()
        inodes = set()
        for pid in pids:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
                if found:
                    inodes.add(found.group(1))
        with open("/proc/net/tcp", encoding="utf-8") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes]

    def end(self, case):
        open(self.go, "w", encoding="utf-8").close()
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self.lines.append(out)
        case.assertEqual(self.process.returncode, 0, "".join(self.lines))


class TlsAuto(unittest.TestCase):
    def test_members_die_and_come_back_over_the_wire(self):
        self.run_with_deaths()

    def test_certificates_are_renewed_while_the_job_runs(self):
        job = Job(self, "--tls", "auto", "--tls-life", "3")
        first = self.certificate(job)
        until = time.monotonic() + PATIENCE_S
        while self.certificate(job) == first and time.monotonic() < until:
            time.sleep(0.05)
        self.assertNotEqual(self.certificate(job), first)
        job.end(self)

    def certificate(self, job):
        """The certificates that a worker has inherited."""
        with open(f"/proc/{job.workers()[0]}/fd/4", encoding="ascii") as file:
            return file.read().split("-----BEGIN PRIVATE KEY-----", maxsplit=1)[0]

    def test_strangers_stay_outside(self):
        job = Job(self, "--tls", "auto")
        self.assertTrue(job.environment()["MUSTER_REGISTRY"].startswith("https://"))
        ports = job.ports()
        self.assertGreaterEqual(len(ports), 3, ports)
        for port in ports:
            self.check_plain_is_closed(port)
            self.check_stranger_is_refused(port)
        job.end(self)

    def check_plain_is_closed(self, port):
        for text in (b"MSTR" + bytes(132), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            talk(port, text)

    def check_stranger_is_refused(self, port):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "muster-link"])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain:
            with self.assertRaises(OSError) as refusal:
                with context.wrap_socket(plain, server_hostname="localhost") as secured:
                    secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                    secured.recv(1)
                    raise OSError("was let in")
            self.assertIn("CERTIFICATE_REQUIRED", str(refusal.exception).upper().replace(" ", "_"))

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [Job(self, "--tls", "auto", "--job", name) for name in ("one", "two")]
        for job in jobs:
            job.end(self)

    def run_with_deaths(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary.json")
            done = run("-n", "4", "--tls", "auto", *options, "--json", path, "--kill", "worker:1@step=20,chunk=0", "--kill", "worker:0@step=60",
                       program=(STEPPER, "150", "1000", "w", "20000"), MUSTER_WIRE="tcp")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path, encoding="utf-8") as file:
                summary = json.load(file)
        self.assertEqual((summary["kills"], summary["steps_lost"], summary["identical"]), (2, 0, True), summary)

    def test_members_die_and_come_back_where_data_is_only_authenticated(self):
        self.run_with_deaths("--tls-data", "authenticated")

    def hello(self, job, purpose):
        """As that of a member, from an incarnation that exists; nonce and names of keys are made up."""
        number = struct.pack
        return (b"MSTR" + number("<IIHH", PEER_VERSION, purpose, 0, 1) + os.urandom(16) + job.environment()["MUSTER_JOB"].encode().ljust(64, b"\0") +
                number("<QQII", 0x100, 0, 0, 0) + bytes(16) + os.urandom(16 + 32))

    def test_strangers_do_not_get_a_word_where_data_is_only_authenticated(self):
        job = Job(self, "--tls", "auto", "--tls-data", "authenticated", MUSTER_WIRE="tcp")
        self.assertEqual(job.environment()["MUSTER_TLS_DATA"], "authenticated")
        frame = bytes([1, 1]) + bytes(62)
        for port in job.ports(has_launcher=False):
            self.assertEqual(talk(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), b"")
            for purpose in (2, 3, 1):  # data, state, control; the log has the first within a second
                self.assertEqual(talk(port, self.hello(job, purpose), bytes(32), frame), b"")
            self.check_stranger_is_refused(port)
        job.end(self)
        self.assertIn("tls_peer_refused", "".join(job.lines))
        self.assertIn("names no key", "".join(job.lines))

    def test_what_it_cannot_do_is_said(self):
        for options, words in ((("--registry", "127.0.0.1:1"), "several launchers need one authority"),
                               (("--resumable", "/tmp/never"), "leave out --resumable"),
                               (("--job", "a b"), "letters, digits")):
            done = run("-n", "1", "--tls", "auto", *options, program=("true",))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

        done = run("-n", "1", "--tls-data", "authenticated", program=("true",))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--tls must be auto", done.stderr)

    def test_a_launcher_below_uses_the_same_registry(self):
        done = run("-n", "1", "--tls", "auto", program=(MUSTER, "run", "-n", "2", "--", STEPPER, "3"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_members_of_a_launcher_below_are_members_above(self):
        show = ("/bin/sh", "-c", "echo $MUSTER_TLS_CERT_FILE $MUSTER_TLS_PEERS; cmp /proc/self/fd/4 /proc/$PPID/fd/4 && echo same")
        done = run("-n", "1", "--tls", "auto", "--job", "above", program=(MUSTER, "run", "-q", "-n", "1", "--", *show))
        self.assertIn("/proc/self/fd/4 spiffe://muster/job/above/*", done.stdout, done.stderr)
        self.assertIn("same", done.stdout, done.stderr)
        job = Job(self, "--tls", "auto", below=(MUSTER, "run", "-n", "2", "--"))
        ports = job.ports()
        self.assertGreaterEqual(len(ports), 3, ports)
        for port in ports:
            self.check_plain_is_closed(port)
            self.check_stranger_is_refused(port)
        job.end(self)

    def test_certificates_of_ones_own_reach_the_members(self):
        show = ("/bin/sh", "-c", "echo cert=$MUSTER_TLS_CERT_FILE key=$MUSTER_TLS_KEY_FILE peers=$MUSTER_TLS_PEERS.")
        own = dict(MUSTER_TLS_CERT_FILE="/own/cert.pem", MUSTER_TLS_KEY_FILE="/own/key.pem", MUSTER_TLS_PEERS="spiffe://own/*")
        self.assertIn("cert=/own/cert.pem key=/own/key.pem peers=spiffe://own/*.", run("-n", "1", program=show, **own).stdout)
        auto = run("-n", "1", "--tls", "auto", "--job", "a", program=show, **own).stdout
        self.assertIn("cert=/proc/self/fd/4 key= peers=spiffe://muster/job/a/*.", auto)

    def test_what_a_member_lacks_is_named(self):
        member = dict(RANK="0", WORLD_SIZE="1", MUSTER_REGISTRY="https://127.0.0.1:1")
        for variables, words in ((dict(MUSTER_TLS_DATA="authenticated"), "MUSTER_TLS_DATA without MUSTER_TLS_CERT_FILE"),
                                 (dict(MUSTER_TLS_DATA="plain", MUSTER_TLS_CERT_FILE="/nowhere/cert.pem", MUSTER_TLS_PEERS="*",
                                       MUSTER_TLS_CA_FILE="/nowhere/ca.pem"), "must be encrypted or authenticated"),
                                 (dict(MUSTER_REGISTRY_CA_FILE="/nowhere/ca.pem"), "/nowhere/ca.pem cannot be read"),
                                 (dict(MUSTER_TLS_CERT_FILE="/nowhere/cert.pem"), "MUSTER_TLS_PEERS"),
                                 (dict(MUSTER_TLS_CERT_FILE="/nowhere/cert.pem", MUSTER_TLS_PEERS="*"), "MUSTER_TLS_CA_FILE"),
                                 (dict(MUSTER_TLS_CERT_FILE="/nowhere/cert.pem", MUSTER_TLS_PEERS="*", MUSTER_TLS_CA_FILE="/nowhere/ca.pem"),
                                  "/nowhere/cert.pem cannot be read")):
            done = subprocess.run([STEPPER, "1"], capture_output=True, text=True, timeout=PATIENCE_S, env=dict(CLEAN, **member, **variables))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
