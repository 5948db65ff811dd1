#!/usr/bin/env python3
"""muster run --tls auto --tls-secret: one secure job of several launchers and a registry of its own, by a file that all have; a launcher that
is killed and resumed; and who is kept out."""
import json
import os
import re
import signal
import ssl
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS
from tls_files import OPENSSL, TlsFiles
from two_hosts import two_hosts, why_not

STEPPER = os.path.join(PROGRAMS, "stepper")
USAGE, BAD_INPUT, DENIED = 2, 3, 5


class Program:
    """A command that is started; what it says is kept, and can be waited for."""

    def __init__(self, case, *words, inside=(), **variables):
        self.case, self.said, self.news = case, "", threading.Condition()
        self.is_over = False
        self.process = subprocess.Popen([*inside, MUSTER, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(CLEAN, **variables))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        case.addCleanup(self.discard)

    def read(self):
        for line in self.process.stdout:
            with self.news:
                self.said += line
                self.news.notify_all()
        with self.news:
            self.is_over = True
            self.news.notify_all()

    def hear(self, words):
        with self.news:
            self.news.wait_for(lambda: words in self.said or self.is_over, PATIENCE_S)
        self.case.assertIn(words, self.said)
        return self.said

    def end(self, code=0):
        self.process.wait(timeout=PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.case.assertEqual(self.process.returncode, code, self.said)
        return self.said

    def discard(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.process.stdout.close()


class Secret(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.secret = self.make_secret("secret")

    def path(self, name):
        return os.path.join(self.folder, name)

    def make_secret(self, name, count=32, mode=0o600):
        with open(self.path(name), "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(count))
        os.chmod(self.path(name), mode)
        return self.path(name)

    def serve(self, *words, secret=None, job="j"):
        registry = Program(self, "registry", "--listen", "127.0.0.1:0", "--tls-secret", secret or self.secret, "--job", job, *words)
        return re.search(r"listening (\S+)", registry.hear("listening ")).group(1)

    def launch(self, rank, registry, *words, secret=None, job="j", program=(STEPPER, "60", "1000", "w", "20000"), inside=(), **variables):
        """One of two machines. MASTER_PORT is for programs of others: nobody listens there."""
        return Program(self, "run", "-n", "2", "--nnodes", "2", "--node-rank", str(rank), "--master-addr", "localhost", "--master-port", "1",
                       "--job", job, "--registry", registry, "--tls", "auto", "--tls-secret", secret or self.secret, *words, "--", *program, inside=inside,
                       **dict(dict(MUSTER_WIRE="tcp"), **variables))

    def summary(self, rank):
        with open(self.path(f"{rank}.json"), encoding="utf-8") as file:
            return json.load(file)

    def run_on_two(self, registry, **variables):
        launchers = [self.launch(rank, registry, "--json", self.path(f"{rank}.json"), *(("--kill", "worker:3@step=20,chunk=0") if rank else ()), **variables)
                     for rank in range(2)]
        texts = [launcher.end() for launcher in launchers]
        self.assertEqual([self.summary(rank)["kills"] for rank in range(2)], [0, 1])
        self.assertTrue(all(self.summary(rank)["identical"] for rank in range(2)))
        return "".join(texts)

    def test_two_launchers_and_a_registry_of_the_job(self):
        self.run_on_two("https://" + self.serve())

    @unittest.skipIf(why_not(), "there can be no network namespaces here")
    def test_two_hosts(self):
        hosts = two_hosts(self.addCleanup)
        registry = Program(self, "registry", "--listen", f"{hosts[0].address}:0", "--tls-secret", self.secret, "--job", "j", inside=hosts[0].inside)
        url = "https://" + re.search(r"listening (\S+)", registry.hear("listening ")).group(1)
        launchers = [self.launch(rank, url, "--json", self.path(f"{rank}.json"), *(("--kill", "worker:3@step=20,chunk=0") if rank else ()),
                                 inside=host.inside, **host.variables) for rank, host in enumerate(hosts)]
        for launcher in launchers:
            launcher.end()
        self.assertEqual([self.summary(rank)["kills"] for rank in range(2)], [0, 1])
        self.assertTrue(all(self.summary(rank)["identical"] for rank in range(2)))

    def test_two_launchers_and_a_plain_registry(self):
        registry = Program(self, "registry", "--listen", "127.0.0.1:0")
        address = re.search(r"listening (\S+)", registry.hear("listening ")).group(1)
        self.assertIn("TLS covers only the links between members", self.run_on_two("http://" + address))

    @unittest.skipUnless(OPENSSL, "the program openssl is not installed")
    def test_two_launchers_and_a_registry_of_somebody_else(self):
        files = TlsFiles(self.addCleanup)
        cert, key = files.issue("registry")
        own_cert, own_key = files.issue("client")
        registry = Program(self, "registry", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", files.ca)
        address = re.search(r"listening (\S+)", registry.hear("listening ")).group(1)
        self.run_on_two("https://" + address, MUSTER_REGISTRY_CA_FILE=files.ca, MUSTER_REGISTRY_CERT_FILE=own_cert, MUSTER_REGISTRY_KEY_FILE=own_key)

    def test_members_know_each_other_and_not_the_secret(self):
        show = ("/bin/sh", "-c", "env | grep -e SECRET -e MUSTER_TLS_PEERS -e MUSTER_REGISTRY_PEERS; ls -l /proc/self/fd")
        said = Program(self, "run", "-n", "1", "--job", "j", "--registry", "https://" + self.serve(), "--tls", "auto", "--", *show,
                       MUSTER_TLS_SECRET_FILE=self.secret).end()
        self.assertIn("MUSTER_TLS_PEERS=spiffe://muster/job/j/*", said)
        self.assertIn("MUSTER_REGISTRY_PEERS=spiffe://muster/job/j/registry", said)
        self.assertNotIn("SECRET", said)
        self.assertNotIn(self.secret, said)

    def test_another_secret_or_job_is_kept_out(self):
        registry = "https://" + self.serve()
        for words in (dict(secret=self.make_secret("another")), dict(job="k")):
            said = self.launch(0, registry, program=("/bin/echo", "started"), **words).end(DENIED)
            self.assertIn(f"TLS with {registry}: ", said)
            self.assertIn("with the same --tls-secret", said)
            self.assertNotIn("] started", said)

    def test_strangers_stay_outside(self):
        host, port = self.serve().rsplit(":", 1)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain:
            with self.assertRaisesRegex(OSError, "(?i)certificate.required"):
                with context.wrap_socket(plain, server_hostname="localhost") as secured:
                    secured.recv(1)
                    raise OSError("was let in")

    def test_a_member_is_no_registry(self):
        """A worker's certificate does not pass for the registry's: here it serves with its own certificate."""
        steal = ("/bin/sh", "-c", 'cat /proc/self/fd/4 >"$0"; cat /proc/self/fd/5 >"$1"', self.path("worker.pem"), self.path("ca.pem"))
        Program(self, "run", "-q", "-n", "1", "--job", "j", "--tls", "auto", "--tls-secret", self.secret, "--", *steal).end()
        worker = self.path("worker.pem")
        false = Program(self, "registry", "--listen", "127.0.0.1:0", "--tls-cert", worker, "--tls-key", worker, "--tls-client-ca", self.path("ca.pem"))
        address = re.search(r"listening (\S+)", false.hear("listening ")).group(1)
        said = self.launch(0, "https://" + address, program=("/bin/echo", "started")).end(DENIED)
        self.assertIn('none of the accepted names ("spiffe://muster/job/j/registry"', said)

    def test_a_backup_is_made_with_the_secret(self):
        registry = "https://" + self.serve()
        words = ("registry", "backup", "--registry", registry, "--output", self.path("backup"), "--tls-secret")
        Program(self, *words, self.secret, "--job", "j").end()
        Program(self, *words[:-2], self.path("second"), "--tls-secret", self.make_secret("another"), "--job", "j").end(DENIED)
        self.assertTrue(os.path.exists(self.path("backup")))

    def test_status_shows_the_job_to_who_has_the_secret(self):
        registry = "https://" + self.serve()
        launchers = [self.launch(rank, registry, "-q") for rank in range(2)]
        for launcher in launchers:
            launcher.end()
        for words in (("status",), ("top", "--count", "1")):
            said = Program(self, *words, "--registry", registry, "--tls-secret", self.secret, "--job", "j").end()
            self.assertIn("j: ended, step 60,", said)
            said = Program(self, *words, "--registry", registry, "--tls-secret", self.make_secret("another"), "--job", "j").end(DENIED)
            self.assertIn("its issuer CN=j is not trusted", said)
            said = Program(self, *words, "--registry", registry, "--job", "j").end(DENIED)
            self.assertIn("or give --tls-secret and --job", said)
            said = Program(self, *words, "--registry", registry, "--tls-secret", self.secret).end(USAGE)
            self.assertIn("--tls-secret FILE and --job NAME must both be given", said)

    def test_a_killed_launcher_is_resumed(self):
        """The successor's certificates serve a worker's next life, which joins members with those of the one before."""
        directory, hurry = self.path("run"), self.path("hurry")
        launcher = Program(self, "run", "-n", "2", "--job", "j", "--tls", "auto", "--tls-secret", self.secret, "--resumable", directory,
                           "--json", self.path("0.json"), "--", STEPPER, "2000", "8", "w", "8", MUSTER_WIRE="tcp", STEPPER_HURRY=hurry, STEPPER_LINGER_MS="25")
        launcher.hear("view 1 with 2 members")
        certificate = os.path.join(directory, "tls", "task-worker-0.pem")
        self.assertEqual(os.stat(certificate).st_mode & 0o777, 0o600)
        before = self.read(certificate)
        launcher.process.kill()
        launcher.process.wait()
        successor = Program(self, "run", "--resume", directory)
        successor.hear("taken over")
        self.assertNotEqual(self.read(certificate), before)
        successor.hear("worker:1 (pid ")
        os.kill(int(re.search(r"worker:1 \(pid (\d+)\) taken over", successor.said).group(1)), signal.SIGKILL)
        successor.hear("rejoined")
        open(hurry, "w", encoding="utf-8").close()
        successor.end()
        self.assertEqual([self.summary(0)[key] for key in ("kills", "rejoins", "identical")], [1, 1, True])
        self.assertFalse(os.path.exists(os.path.dirname(certificate)))

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def test_what_cannot_be_is_said(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        auto = ("run", "-n", "1", "--tls", "auto", "--job", "j")
        rows = (((*auto, "--tls-secret", self.make_secret("open", mode=0o604)), DENIED, "open to everybody"),
                ((*auto, "--tls-secret", self.make_secret("short", 31)), BAD_INPUT, "must have 32 random bytes"),
                ((*auto, "--tls-secret", self.path("nowhere")), BAD_INPUT, "cannot be read"),
                ((*auto, "--tls-secret", pipe), BAD_INPUT, "not a regular file"),
                (("run", "-n", "1", "--tls-secret", self.secret), USAGE, "--tls must be auto with --tls-secret"),
                ((*auto, "--registry", "https://127.0.0.1:1"), USAGE, "--tls-secret FILE"),
                ((*auto, "--resumable", self.path("never")), USAGE, "--tls-secret FILE"),
                (("run", "-n", "1", "--tls", "auto", "--tls-secret", self.secret, "--registry", "https://127.0.0.1:1"), USAGE, "--job must be given with --tls-secret"))
        for words, code, text in rows:
            with self.subTest(text):
                self.assertIn(text, Program(self, *words, "--", "true").end(code))
        registry = ("registry", "--listen", "127.0.0.1:0")
        for words, text in ((("--tls-secret", self.secret), "must both be given"), (("--job", "j"), "must both be given"),
                            (("--tls-secret", self.secret, "--job", "a b"), "letters, digits"),
                            (("--tls-secret", self.secret, "--job", 64 * "a"), "1 to 63 letters"),
                            (("--tls-secret", self.secret, "--job", "j", "--tls-cert", "x", "--tls-key", "x"),
                             "leave out --tls-cert")):
            with self.subTest(text):
                self.assertIn(text, Program(self, *registry, *words).end(USAGE))


if __name__ == "__main__":
    unittest.main(verbosity=2)
