#!/usr/bin/env python3
"""A registry that TLS refuses: who asks it is told at once whom, why and what to do."""
import os
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS
from tls_files import OPENSSL, TlsFiles

if OPENSSL is None:
    print("skipped: the program openssl is not installed")
    sys.exit(77)

STEPPER = os.path.join(PROGRAMS, "stepper")
DENIED = 5
FOREVER_S = "100000"  # what waits for this fails by PATIENCE_S


def run(*args, **variables):
    return subprocess.run(args, capture_output=True, text=True, timeout=PATIENCE_S, env=dict(CLEAN, **variables))


class Refusals(unittest.TestCase):
    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        self.cert, self.key = self.files.issue("registry")
        self.server = subprocess.Popen([MUSTER, "registry", "--listen", "0.0.0.0:0", "--tls-cert", self.cert, "--tls-key", self.key,
                                        "--tls-client-ca", self.files.ca], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self.server.communicate)
        self.addCleanup(self.server.terminate)
        self.port = self.server.stdout.readline().rsplit(":", 1)[1].strip()
        cert, key = self.files.issue("client")
        self.good = {"MUSTER_REGISTRY_CA_FILE": self.files.ca, "MUSTER_REGISTRY_CERT_FILE": cert, "MUSTER_REGISTRY_KEY_FILE": key}

    def cases(self):
        """URL, variables, and what must be said."""
        here, stranger = f"https://127.0.0.1:{self.port}", TlsFiles(self.addCleanup)
        cert, key = stranger.issue("client")
        yield here, dict(self.good, MUSTER_REGISTRY_CA_FILE=stranger.ca), f"is not trusted by {stranger.ca}"
        yield here, {"MUSTER_REGISTRY_CA_FILE": self.files.ca}, "the server demands a certificate of ours"
        yield here, dict(self.good, MUSTER_REGISTRY_CERT_FILE=cert, MUSTER_REGISTRY_KEY_FILE=key), "the peer does not trust the issuer"
        yield f"https://127.0.0.2:{self.port}", self.good, 'not for "127.0.0.2"'

    def check(self, done, url, words):
        self.assertEqual(done.returncode, DENIED, done.stderr)
        for text in (f"TLS with {url}: ", words, "MUSTER_REGISTRY_CA_FILE"):
            self.assertIn(text, done.stderr)

    def test_a_launcher_starts_nobody(self):
        for url, variables, words in self.cases():
            with self.subTest(words):
                done = run(MUSTER, "run", "-n", "2", "--job", "j", "--registry", url, "--", "/bin/echo", "started", **variables)
                self.check(done, url, words)
                self.assertNotIn("started", done.stdout)

    def test_a_launcher_ends_when_a_registry_comes_late_and_refuses(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url, variables = f"https://127.0.0.1:{port}", dict(self.good, MUSTER_REGISTRY_CA_FILE=TlsFiles(self.addCleanup).ca)
        launcher = subprocess.Popen([MUSTER, "run", "-n", "2", "--job", "j", "--registry", url, "--", "sleep", "1000"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=dict(CLEAN, **variables))
        self.addCleanup(launcher.communicate)
        self.addCleanup(launcher.kill)
        self.assertIn("does not answer (", launcher.stderr.readline())
        with subprocess.Popen([MUSTER, "registry", "--listen", f"127.0.0.1:{port}", "--tls-cert", self.cert, "--tls-key", self.key],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as registry:
            said = launcher.stderr.read()
            registry.terminate()
        self.assertEqual(said.count(f"the registry cannot be used: TLS with {url}: "), 1, said)
        self.assertNotEqual(launcher.wait(timeout=PATIENCE_S), 0)

    def test_a_backup_ends_at_once(self):
        for url, variables, words in self.cases():
            with self.subTest(words):
                done = run(MUSTER, "registry", "backup", "--registry", url, "--output", self.files.path("backup"), "--timeout", FOREVER_S, **variables)
                self.check(done, url, words)

    def test_a_member_without_a_launcher_ends_at_once(self):
        url, variables, words = next(self.cases())
        done = run(STEPPER, "1", RANK="0", WORLD_SIZE="2", MUSTER_JOB="j", MUSTER_REGISTRY=url, **variables)
        self.assertNotEqual(done.returncode, 0)
        for text in (f"TLS with {url}: ", words, "MUSTER_REGISTRY_CA_FILE"):
            self.assertIn(text, done.stderr)

    def test_one_that_lets_us_in_among_others_is_used(self):
        url = f"https://127.0.0.2:{self.port},https://127.0.0.1:{self.port}"
        done = run(MUSTER, "registry", "backup", "--registry", url, "--output", self.files.path("backup"), "--timeout", FOREVER_S, **self.good)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_backup_that_runs_out_of_time_says_what_it_waited_for(self):
        with subprocess.Popen([MUSTER, "registry", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as plain:
            port = plain.stdout.readline().rsplit(":", 1)[1].strip()
            done = run(MUSTER, "registry", "backup", "--registry", f"https://127.0.0.1:{port}", "--output", self.files.path("backup"),
                       "--timeout", "1", **self.good)
            plain.terminate()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("does it serve plain text?", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
