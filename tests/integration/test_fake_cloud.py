#!/usr/bin/env python3
"""The fake cloud as a program: ready line, scripts, cases, TLS with its own authority, faults."""
import contextlib
import http.client
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs

PROGRAM = pathlib.Path(os.environ.get("MUSTER_BINARY_DIR", "build-asan")) / "bin" / "fake_cloud"
SCRIPT = [
    {"match": {"path": "/once"}, "times": 1, "response": {"body": {"at": "{{base}}"}}},
    {"match": {"method": "POST", "path_regex": "/a/.*", "query": {"q": "x y"}, "query_absent": ["z"]},
     "response": {"status": 201, "headers": {"X-A": "b"}, "body": "made"}},
    {"match": {"path": "/chunks"}, "response": {"chunks": [{"body": {"n": 1}}, {"after_ms": 1, "body": {"n": 2}}]}},
    {"match": {"path": "/cut"}, "response": {"body": "0123456789", "truncate": 3}},
    {"match": {"path": "/close"}, "response": {"close": True}},
]


class FakeCloud:
    def __init__(self, script, *options):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / "script.json"
        path.write_text(json.dumps(script))
        self.authority = str(path.with_name("ca.pem"))
        options = [self.authority if o == "CA" else o for o in options]
        self.process = subprocess.Popen([PROGRAM, *options, "--log", path], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        ready = self.process.stdout.readline().split()
        assert ready[0] == "listening", ready
        self.host, port = ready[1].rsplit(":", 1)
        self.port = int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.log = self.process.communicate()[1]
        self.folder.cleanup()

    def ask(self, method, target, secure=None):
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=30, **({"context": secure} if secure else {}))
        with contextlib.closing(connection):
            connection.request(method, target)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()


class Program(unittest.TestCase):
    def test_entries_answer_in_order_and_are_used_up(self):
        with FakeCloud(SCRIPT) as cloud:
            status, headers, body = cloud.ask("GET", "/once")
            self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
            self.assertEqual(json.loads(body), {"at": f"http://{cloud.host}:{cloud.port}"})
            self.assertEqual(cloud.ask("GET", "/once")[::2], (404, b"{}"))
        self.assertEqual(cloud.log, "200 GET /once\n404 GET /once\n")

    def test_a_match_looks_at_method_path_and_query(self):
        with FakeCloud(SCRIPT) as cloud:
            status, headers, body = cloud.ask("POST", "/a/b%20c?q=x+y")
            self.assertEqual((status, headers["X-A"], body), (201, "b", b"made"))
            self.assertEqual(cloud.ask("GET", "/a/b?q=x+y")[0], 404)
            self.assertEqual(cloud.ask("POST", "/a/b?q=x+y&z=1")[0], 404)

    def test_pieces_come_as_lines_of_json(self):
        with FakeCloud(SCRIPT) as cloud:
            self.assertEqual(cloud.ask("GET", "/chunks")[2], b'{"n":1}\n{"n":2}\n')

    def test_faults_break_the_connection(self):
        with FakeCloud(SCRIPT) as cloud:
            with self.assertRaises(http.client.IncompleteRead):
                cloud.ask("GET", "/cut")
            with self.assertRaises(http.client.RemoteDisconnected):
                cloud.ask("GET", "/close")

    def test_tls_is_sound_unless_it_shall_be_expired(self):
        with FakeCloud(SCRIPT, "--tls", "--ca-out", "CA") as cloud:
            trusting = ssl.create_default_context(cafile=cloud.authority)
            self.assertEqual(cloud.ask("GET", "/chunks", trusting)[0], 200)
            with self.assertRaises(ssl.SSLCertVerificationError):
                cloud.ask("GET", "/chunks", ssl.create_default_context())
        with FakeCloud(SCRIPT, "--tls", "--expired", "--ca-out", "CA") as cloud:
            trusting = ssl.create_default_context(cafile=cloud.authority)
            with self.assertRaisesRegex(ssl.SSLCertVerificationError, "expired"):
                cloud.ask("GET", "/chunks", trusting)

    def test_a_case_is_picked_by_name(self):
        cases = {"cases": [{"name": "one", "http": []}, {"name": "two", "http": SCRIPT}]}
        with FakeCloud(cases, "--case", "two") as cloud:
            self.assertEqual(cloud.ask("GET", "/once")[0], 200)

    def test_a_script_that_is_none_is_refused(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("{}")
            file.flush()
            done = subprocess.run([PROGRAM, file.name], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a script is a list", done.stderr)


if __name__ == "__main__":
    needs.program("fake_cloud")
    unittest.main(verbosity=2)
