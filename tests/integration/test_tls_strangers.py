#!/usr/bin/env python3
"""TLS with strangers: openssl s_client, curl, nghttp, etcdctl and etcd; and our own client, reload included."""
import os
import shutil
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from ports import held_port
from tls_files import OPENSSL, TlsFiles

needs.tool("openssl", "openssl")

BINARIES = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin")
MUSTER = os.path.join(BINARIES, "muster")
PATIENCE_S = 60
SETTINGS = b"\x04\0\0\0\0\0"  # type, flags and stream of HTTP/2's first frame
CURL, NGHTTP, ETCD, ETCDCTL = (shutil.which(name) for name in ("curl", "nghttp", "etcd", "etcdctl"))


class Server:
    """A program that says where it listens."""

    def __init__(self, case, *args):
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        case.addCleanup(self.stop, case)
        line = self.process.stdout.readline()
        if not line.startswith("listening"):
            case.fail(f"{args[0]} said {line!r}: {self.process.stderr.read()}")
        self.port = line.rsplit(":", 1)[1].strip()

    def stop(self, case):
        self.process.terminate()
        _, err = self.process.communicate(timeout=PATIENCE_S)
        case.assertEqual(self.process.returncode, 0, err)


def run(*args, input=None, env=None):
    return subprocess.run(args, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, input=input, env=dict(os.environ, **(env or {})))


class Echo(unittest.TestCase):
    """bench_rpc_server."""

    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        self.cert, self.key = self.files.issue("server")

    def serve(self, *args):
        return Server(self, os.path.join(BINARIES, "bench_rpc_server"), "--port", "0", "--tls-cert", self.cert, "--tls-key", self.key, *args)

    def s_client(self, server, *args):
        done = run(OPENSSL, "s_client", "-connect", f"127.0.0.1:{server.port}", "-servername", "localhost", "-CAfile", self.files.ca,
                   "-verify_return_error", *args, input="")
        return done.stdout + done.stderr

    def client(self, server, *args):
        return run(os.path.join(BINARIES, "bench_rpc_client"), "--port", server.port, *args)

    def test_openssl_speaks_1_2_and_1_3_and_nothing_older(self):
        server = self.serve()
        for flag, name in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
            text = self.s_client(server, "-alpn", "h2", flag)
            self.assertIn("ALPN protocol: h2", text)
            self.assertIn(f"New, {name}, Cipher is", text)
            self.assertIn("Verify return code: 0 (ok)", text)
        text = self.s_client(server, "-alpn", "h2", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
        self.assertIn("alert protocol version", text)
        self.assertIn("Compression: NONE", self.s_client(server, "-alpn", "h2", "-tls1_2"))

    def test_without_h2_there_is_no_connection(self):
        server = self.serve()
        for words in (("-alpn", "http/1.1"), ()):  # alert 120 has no name in OpenSSL 3.0.13
            self.assertRegex(self.s_client(server, *words), "alert no application protocol|SSL alert number 120")

    def test_renegotiation_is_refused(self):
        process = subprocess.Popen([OPENSSL, "s_client", "-connect", f"127.0.0.1:{self.serve().port}", "-alpn", "h2", "-tls1_2"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.kill)
        text = b""
        while SETTINGS not in text:  # amid a handshake s_client takes them for an unexpected record
            piece = os.read(process.stdout.fileno(), 65536)
            self.assertTrue(piece, text)
            text += piece
        text += process.communicate(b"R\n", timeout=PATIENCE_S)[0]
        self.assertIn(b"no renegotiation", text)

    def test_openssl_resumes(self):
        server = self.serve()
        session = self.files.path("session")
        for flag in ("-tls1_2", "-tls1_3"):
            # The ticket of TLS 1.3 comes after the handshake: s_client stays until we have it.
            process = subprocess.Popen([OPENSSL, "s_client", "-connect", f"127.0.0.1:{server.port}", "-alpn", "h2", flag, "-sess_out", session],
                                       stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until = time.monotonic() + PATIENCE_S
            while not (os.path.exists(session) and os.path.getsize(session)) and time.monotonic() < until:
                time.sleep(0.01)
            process.communicate(timeout=PATIENCE_S)
            self.assertIn("Reused, TLSv1", self.s_client(server, "-alpn", "h2", flag, "-sess_in", session))
            os.remove(session)

    def test_a_certificate_is_demanded(self):
        server = self.serve("--tls-client-ca", self.files.ca)
        cert, key = self.files.issue("client")
        self.assertIn("certificate required", self.s_client(server, "-alpn", "h2", "-tls1_3", "-ign_eof"))
        done = self.client(server, "--check", "1", "--tls-ca", self.files.ca, "--tls-cert", cert, "--tls-key", key)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.client(server, "--check", "1", "--tls-ca", self.files.ca)
        self.assertNotEqual(done.returncode, 0)

    def test_our_client_checks_every_kind_of_call(self):
        done = self.client(self.serve(), "--check", "1", "--tls-ca", self.files.ca)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_our_client_says_whom_it_does_not_trust(self):
        done = self.client(self.serve(), "--calls", "1", "--tls-ca", TlsFiles(self.addCleanup).ca)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is not trusted by", done.stderr)

    @unittest.skipUnless(CURL, "curl is not installed")
    def test_curl_gets_a_page(self):
        server = self.serve()
        done = run(CURL, "--silent", "--show-error", "--http2", "--cacert", self.files.ca, "--write-out", "%{http_version} %{http_code}",
                   "--output", os.devnull, f"https://localhost:{server.port}/")
        self.assertEqual(done.stdout, "2 200", done.stderr)

    @unittest.skipUnless(NGHTTP, "nghttp is not installed (Debian: nghttp2-client)")
    def test_nghttp_gets_a_page(self):
        done = run(NGHTTP, "-nv", f"https://localhost:{self.serve().port}/")
        self.assertIn("The negotiated protocol: h2", done.stdout)
        self.assertIn(":status: 200", done.stdout)

    def test_plain_text_is_closed(self):
        with socket.create_connection(("127.0.0.1", int(self.serve().port)), timeout=PATIENCE_S) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            answer = b"".join(iter(lambda: plain.recv(4096), b""))
        self.assertLess(len(answer), 64)  # an alert at most


class Registry(unittest.TestCase):
    """muster registry, and real etcd."""

    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        self.cert, self.key = self.files.issue("registry")
        self.client_cert, self.client_key = self.files.issue("client")
        self.env = {"MUSTER_REGISTRY_CA_FILE": self.files.ca, "MUSTER_REGISTRY_CERT_FILE": self.client_cert,
                    "MUSTER_REGISTRY_KEY_FILE": self.client_key}

    def run_job(self, url):
        return run(MUSTER, "run", "-n", "2", "--registry", url, "--job", "tls", "--", "true", env=self.env)

    def serve(self):
        return Server(self, MUSTER, "registry", "--listen", "127.0.0.1:0", "--tls-cert", self.cert, "--tls-key", self.key,
                      "--tls-client-ca", self.files.ca)

    def test_a_job_finds_it_under_mutual_tls(self):
        done = self.run_job(f"https://localhost:{self.serve().port}")
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(ETCDCTL, "etcdctl is not installed (Debian: etcd-client)")
    def test_a_policy_says_who_may_write(self):
        policy = self.files.path("policy.json")
        with open(policy, "w") as file:
            file.write('{"allow_rules": [{"name": "readers", "source": {"principals": ["localhost"]},'
                       ' "request": {"paths": ["/etcdserverpb.KV/Range"]}}]}')
        server = Server(self, MUSTER, "registry", "--listen", "127.0.0.1:0", "--tls-cert", self.cert, "--tls-key", self.key,
                        "--tls-client-ca", self.files.ca, "--authorization", policy)
        flags = [ETCDCTL, f"--endpoints=https://127.0.0.1:{server.port}", f"--cacert={self.files.ca}", f"--cert={self.client_cert}",
                 f"--key={self.client_key}"]
        self.assertEqual(run(*flags, "get", "a", env={"ETCDCTL_API": "3"}).returncode, 0)
        done = run(*flags, "put", "a", "b", env={"ETCDCTL_API": "3"})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("localhost may not call /etcdserverpb.KV/Put", done.stderr)

    def test_a_policy_that_cannot_be_is_named(self):
        policy = self.files.path("bad.json")
        with open(policy, "w") as file:
            file.write('{"allow_rule": []}')
        for command in (("registry",), ("coordinator", "--tasks", "1"), ("server",)):
            done = run(MUSTER, *command, "--authorization", policy)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn('"allow_rule" in the policy is not known', done.stderr)

    def test_options_that_lack_a_half_are_named(self):
        done = run(MUSTER, "registry", "--tls-cert", self.cert)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--tls-key", done.stderr)
        done = run(MUSTER, "coordinator", "--tasks", "1", "--tls-cert", self.cert, "--tls-key", self.client_key)
        self.assertIn("does not belong to the certificate", done.stderr)

    def test_a_pipe_is_refused(self):
        pipe = self.files.path("pipe")
        os.mkfifo(pipe)
        for options in (("--tls-cert", pipe, "--tls-key", self.key), ("--tls-cert", self.cert, "--tls-key", pipe),
                        ("--tls-cert", self.cert, "--tls-key", self.key, "--tls-client-ca", pipe)):
            done = run(MUSTER, "registry", "--listen", "127.0.0.1:0", *options)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(f"{pipe} is not a regular file", done.stderr)

    @unittest.skipUnless(ETCDCTL, "etcdctl is not installed (Debian: etcd-client)")
    def test_etcdctl_puts_and_gets(self):
        flags = [ETCDCTL, f"--endpoints=https://127.0.0.1:{self.serve().port}", f"--cacert={self.files.ca}", f"--cert={self.client_cert}",
                 f"--key={self.client_key}"]
        api = {"ETCDCTL_API": "3"}
        done = run(*flags, "put", "a", "b", env=api)
        self.assertEqual(done.stdout.strip(), "OK", done.stderr)
        self.assertEqual(run(*flags, "get", "a", env=api).stdout.split(), ["a", "b"])

    @unittest.skipUnless(ETCD, "etcd is not installed (Debian: etcd-server)")
    def test_a_job_runs_on_real_etcd_under_mutual_tls(self):
        client, peer = (f"{scheme}://127.0.0.1:{held_port(self.addCleanup)}" for scheme in ("https", "http"))
        log = open(self.files.path("etcd.log"), "w+")
        etcd = subprocess.Popen([ETCD, "--data-dir", self.files.path("etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
                                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                                 "--cert-file", self.cert, "--key-file", self.key, "--client-cert-auth", "--trusted-ca-file", self.files.ca],
                                stdout=log, stderr=log)
        self.addCleanup(log.close)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.kill)
        done = self.run_job(client)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
