#!/usr/bin/env python3
"""A registry that TLS refuses, or that speaks TLS where plain text was asked: its clients are told at once whom, why and what to do."""
# Entries of ctest: Refusals Mismatches Strangers
import os
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from ports import held_port
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS
from tls_files import TlsFiles

needs.tool("openssl", "openssl")

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
        port = held_port(self.addCleanup)
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
        self.assertEqual(said.count(f"TLS with {url}: "), 1, said)
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


class Mismatches(unittest.TestCase):
    """A registry that speaks TLS is asked in plain text, and the reverse: both sides are told both values at once."""

    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        cert, key = self.files.issue("registry")
        self.secured = ("--tls-cert", cert, "--tls-key", key)
        self.variables = {"MUSTER_REGISTRY_CA_FILE": self.files.ca}

    def start(self, *args, address="127.0.0.1:0"):
        """The address of a registry that was started with args, and its log."""
        log = open(self.files.path(f"log-{len(args)}"), "w+")
        self.addCleanup(log.close)
        server = subprocess.Popen([MUSTER, "registry", "--listen", address, *args], stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.terminate)
        return "127.0.0.1:" + server.stdout.readline().rsplit(":", 1)[1].strip(), log.name

    def cases(self):
        """URL, what its users are told, the registry's log, and what that says."""
        address, log = self.start(*self.secured)
        yield (address, f"registry {address} speaks TLS, and is asked in plain text: write https://{address} and name its authority in "
               "MUSTER_REGISTRY_CA_FILE", log, 'client_speaks_plain_text peer=127.0.0.1:')
        address, log = self.start()
        yield (f"https://{address}", f"registry {address} speaks plain text, and https:// asks for TLS: write {address} without https://, or "
               "start the registry with --tls-cert and --tls-key", log, 'client_speaks_tls peer=127.0.0.1:')

    def commands(self, url):
        yield MUSTER, "run", "-n", "2", "--job", "j", "--registry", url, "--", "/bin/echo", "started"
        yield MUSTER, "registry", "backup", "--registry", url, "--output", self.files.path("backup"), "--timeout", FOREVER_S
        yield MUSTER, "status", "--registry", url

    def test_both_sides_are_told_at_once(self):
        for url, words, log, event in self.cases():
            for command in self.commands(url):
                with self.subTest(event, command=command[1]):
                    done = run(*command, **self.variables)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertEqual(done.stderr.count(words), 1, done.stderr)
                    self.assertNotIn("started", done.stdout)
            with open(log) as file:
                self.assertEqual([event in line for line in file if "client_speaks" in line], [True])  # once, of three

    def test_a_member_without_a_launcher_ends_at_once(self):
        for url, words, log, event in self.cases():
            with self.subTest(event):
                done = run(STEPPER, "1", RANK="0", WORLD_SIZE="2", MUSTER_JOB="j", MUSTER_REGISTRY=url, **self.variables)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)

    def test_a_launcher_ends_when_a_registry_comes_late_and_speaks_something_else(self):
        for scheme, args, words in (("", self.secured, "speaks TLS"), ("https://", (), "speaks plain text")):
            with self.subTest(words):
                address = f"127.0.0.1:{held_port(self.addCleanup)}"
                launcher = subprocess.Popen([MUSTER, "run", "-n", "2", "--job", "j", "--registry", scheme + address, "--", "sleep", "1000"],
                                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=dict(CLEAN, **self.variables))
                self.addCleanup(launcher.communicate)
                self.addCleanup(launcher.kill)
                self.assertIn("does not answer (", launcher.stderr.readline())
                self.start(*args, address=address)
                said = launcher.stderr.read()
                self.assertEqual(said.count(f"registry {address} {words}"), 1, said)
                self.assertNotEqual(launcher.wait(timeout=PATIENCE_S), 0)

    def test_one_that_speaks_what_is_asked_among_others_is_used(self):
        secured, plain = self.start(*self.secured)[0], self.start()[0]
        for number, url in enumerate((f"{secured},{plain}", f"https://{plain},https://{secured}")):
            with self.subTest(url):
                done = run(MUSTER, "registry", "backup", "--registry", url, "--output", self.files.path(f"backup-{number}"), "--timeout", FOREVER_S,
                           **self.variables)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_one_that_does_not_answer_does_not_hide_the_others(self):
        secured = self.start(*self.secured)[0]
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))  # and does not listen
            url = f"127.0.0.1:{silent.getsockname()[1]},{secured}"
            done = run(MUSTER, "registry", "backup", "--registry", url, "--output", self.files.path("backup"), "--timeout", FOREVER_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"registry {secured} speaks TLS", done.stderr)

    def test_a_server_of_another_make_that_answers_in_http1_is_told(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with subprocess.Popen([MUSTER, "registry", "backup", "--registry", address, "--output", self.files.path("backup"), "--timeout", FOREVER_S],
                                  stderr=subprocess.PIPE, text=True, env=CLEAN) as backup:
                with listener.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
                    said = backup.communicate(timeout=PATIENCE_S)[1]
        self.assertNotEqual(backup.returncode, 0)
        self.assertIn(f"registry {address} speaks TLS", said)


class Peer:
    """A server that answers the first bytes of each connection with answer_to(bytes), and ends it."""

    def __init__(self, case, answer_to):
        self.answer_to, self.heard = answer_to, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        case.addCleanup(self.stop)

    def serve(self):
        while True:
            connection = self.listener.accept()[0]
            with connection:
                heard = connection.recv(65536)
                if heard == b"stop":
                    return
                self.heard.append(heard)
                try:
                    connection.sendall(self.answer_to(heard))
                except ConnectionError:
                    pass  # the client has seen enough

    def stop(self):
        with socket.create_connection(self.listener.getsockname()) as connection:
            connection.sendall(b"stop")
        self.thread.join()
        self.listener.close()


class Strangers(unittest.TestCase):
    """A server that closes without a word on the wrong kind, as etcd does, or is no registry: told at once, by another dial that tells nothing."""

    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        with open(self.files.path("password"), "w", encoding="utf-8") as file:
            file.write("a-secret")
        os.chmod(self.files.path("password"), 0o600)
        self.variables = {"MUSTER_REGISTRY_CA_FILE": self.files.ca, "MUSTER_REGISTRY_USER": "somebody",
                          "MUSTER_REGISTRY_PASSWORD_FILE": self.files.path("password")}

    def commands(self, url):
        yield MUSTER, "run", "-n", "2", "--job", "j", "--registry", url, "--", "/bin/echo", "started"
        yield MUSTER, "registry", "backup", "--registry", url, "--output", self.files.path("backup"), "--timeout", FOREVER_S
        yield MUSTER, "status", "--registry", url
        yield STEPPER, "1"

    def check(self, url, words):
        for command in self.commands(url):
            done = run(*command, **self.variables, RANK="0", WORLD_SIZE="2", MUSTER_JOB="j", MUSTER_REGISTRY=url)
            self.assertNotEqual(done.returncode, 0, command)
            self.assertIn(words, done.stderr, command)
            self.assertNotIn("started", done.stdout)

    def test_tls_that_closes_on_plain_text_is_told(self):
        peer = Peer(self, lambda heard: b"\x16\x03\x03\x00\x7a" if heard[:1] == b"\x16" else b"")
        self.check(peer.address, f"registry {peer.address} speaks TLS, and is asked in plain text: write https://{peer.address} and name its "
                   "authority in MUSTER_REGISTRY_CA_FILE")
        self.assertEqual(len({heard for heard in peer.heard if heard[:1] == b"\x16"}), 1)  # a constant
        self.check_nothing_was_given_away(peer)

    def test_plain_text_that_closes_on_tls_is_told(self):
        peer = Peer(self, lambda heard: b"\0\0\0\4\0\0\0\0\0" if heard[:4] == b"PRI " else b"")
        self.check("https://" + peer.address, f"registry {peer.address} speaks plain text, and https:// asks for TLS: write {peer.address} without "
                   "https://")
        self.assertEqual({heard for heard in peer.heard if heard[:1] != b"\x16"}, {b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"})
        self.check_nothing_was_given_away(peer)

    def check_nothing_was_given_away(self, peer):
        said = b"".join(peer.heard)
        for secret in (b"somebody", b"a-secret", b"etcdserverpb"):
            self.assertNotIn(secret, said)

    def test_what_does_not_speak_http2_is_told(self):
        for answer, words in ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP/1.1, not HTTP/2 (gRPC)"),
                              (b"<!DOCTYPE HTML>\n", "does not speak HTTP/2 (gRPC)"),
                              (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP/2 (gRPC)")):
            with self.subTest(answer):
                peer = Peer(self, lambda _, answer=answer: answer)
                self.check(peer.address, f"the server at {peer.address} {words}: is this the registry's address?")

    def test_a_page_of_a_launcher_is_not_a_registry(self):
        launcher = subprocess.Popen([MUSTER, "run", "-n", "1", "--status", "127.0.0.1:0", "--", "sleep", "1000"], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True, env=CLEAN)
        self.addCleanup(launcher.communicate)
        self.addCleanup(launcher.terminate)
        address = launcher.stderr.readline().split("http://")[1].strip()
        self.check(address, f"the server at {address} speaks HTTP/1.1, not HTTP/2 (gRPC): is this the registry's address?")


if __name__ == "__main__":
    unittest.main(verbosity=2)
