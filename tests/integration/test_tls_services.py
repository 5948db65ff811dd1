#!/usr/bin/env python3
"""`muster coordinator` and `muster server` under TLS: grpcio with a certificate is served, without one, with another's or in plain text it is
refused, and a policy knows callers by their certificates.

Needs grpcio (MUSTER_GRPC_PYTHON names an interpreter that has it).
"""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
from tls_files import TlsFiles

needs.run_with("grpc", "python3-grpcio")
needs.tool("openssl", "openssl")
import grpc

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
PATIENCE_S = 60
COORDINATION = "/tensorflow.CoordinationService/"
SPIFFE = "spiffe://test/job/7/task/1"


def field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Services(unittest.TestCase):
    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        self.ours = self.files.issue("member", f"URI:{SPIFFE}")
        self.strangers = TlsFiles(self.addCleanup).issue("member", f"URI:{SPIFFE}")

    def serve(self, *words):
        cert, key = self.files.issue("server")
        process = subprocess.Popen([MUSTER, *words, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", self.files.ca],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self.end, process)
        return process.stdout.readline().split()[1].rsplit(":", 1)[1]

    def end(self, process):
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0)

    def dial(self, port, pair=None):
        cert, key = (None, None) if pair is None else map(read, pair)
        credentials = grpc.ssl_channel_credentials(read(self.files.ca), key, cert)
        channel = grpc.secure_channel(f"localhost:{port}", credentials)
        self.addCleanup(channel.close)
        return channel

    def ask(self, channel, method, request=b""):
        return channel.unary_unary(method)(request, timeout=PATIENCE_S)

    def check_refusals(self, port, method):
        for channel in (self.dial(port), self.dial(port, self.strangers), grpc.insecure_channel(f"localhost:{port}")):
            with self.assertRaises(grpc.RpcError) as refusal:
                self.ask(channel, method)
            self.assertEqual(refusal.exception.code(), grpc.StatusCode.UNAVAILABLE)
            channel.close()

    def check_keys(self, port):
        """What one connection inserts, another one reads."""
        self.ask(self.dial(port, self.ours), COORDINATION + "InsertKeyValue", field(1, field(1, b"a") + field(2, b"42")))
        answer = self.ask(self.dial(port, self.ours), COORDINATION + "TryGetKeyValue", field(1, b"a"))
        self.assertIn(b"42", answer)

    def test_a_coordinator(self):
        port = self.serve("coordinator", "--listen", "127.0.0.1:0", "--tasks", "1")
        self.check_refusals(port, COORDINATION + "TryGetKeyValue")
        self.check_keys(port)

    def test_a_server(self):
        port = self.serve("server", "--port", "0", "--coordination", "1")
        self.check_refusals(port, "/tensorflow.WorkerService/GetStatus")
        self.ask(self.dial(port, self.ours), "/tensorflow.WorkerService/GetStatus")
        self.check_keys(port)

    def test_a_policy_knows_callers_by_their_certificates(self):
        policy = self.files.path("policy.json")
        with open(policy, "w", encoding="utf-8") as file:
            file.write('{"allow_rules": [{"name": "members", "source": {"principals": ["spiffe://test/job/7/*"]}}]}')
        guests = self.files.issue("guest", "URI:spiffe://test/job/8/task/1")
        for words in (("coordinator", "--listen", "127.0.0.1:0", "--tasks", "1"), ("server", "--port", "0", "--coordination", "1")):
            port = self.serve(*words, "--authorization", policy)
            self.check_keys(port)
            with self.assertRaises(grpc.RpcError) as refusal:
                self.ask(self.dial(port, guests), COORDINATION + "TryGetKeyValue", field(1, b"a"))
            self.assertEqual(refusal.exception.code(), grpc.StatusCode.PERMISSION_DENIED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
