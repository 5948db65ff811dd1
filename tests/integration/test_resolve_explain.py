#!/usr/bin/env python3
"""`muster resolve` against clouds that are well: every request is explained, credentials are looked for in order, a
service account signs, and memory stays bounded when an answer does not."""
import base64
import hashlib
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.environ.get("MUSTER_SOURCE_DIR", "."), "tests", "lib"))
import guard

guard.enter()
import needs
from cloud_people import Person
from cloud_scripts import GCE_SPEC, GROUP, TOKEN, compute, group_page, metadata, pods, token_answer
from fake_clouds import METADATA, MUSTER, PATIENCE_S, SECRETS, FakeCloud, clean_environment, entry, resolve, \
    secrets_in, told

GCE = "gce:instance_group=ig&port=8470&api_endpoint={base}"
RSS_MAX_KIB = 100 << 10


def needs_token(name):
    return {"headers": {"Authorization": "Bearer " + SECRETS[name]}}


class Explained(unittest.TestCase):
    """Some requests fail first."""

    SCRIPT = metadata() + [entry("POST", GROUP, 1, status=503, body={}), entry("POST", GROUP, 1, status=401, body={}),
                           entry("POST", GROUP, 1, status=302, headers={"Location": "/list?access_token=sEcReT-u&a=b"}),
                           entry("GET", "/list", body=group_page("a", "b"))] + compute()

    def explain(self, *options):
        with FakeCloud(self.SCRIPT) as cloud:
            done = resolve(GCE.format(base=cloud.base), "--explain", *options,
                           GCE_METADATA_HOST=cloud.hostport)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(secrets_in(told(done), ["sEcReT"]), [])
            log = [line.split(" ", 2) for line in cloud.log.splitlines()]
        self.assertGreater(len(log), 12)
        return done, [(method, re.sub("access_token=[^&]*", "access_token=***", target), int(status))
                      for status, method, target in log]

    def test_to_people(self):
        done, log = self.explain()
        lines = re.findall(r"(?m)^request   (\w+): (\w+) http://127[^/ ]*(\S+) -> (\d+), \d+ bytes, [\d.]+ ms, "
                           r"attempt (\d+)$", done.stderr)
        self.assertEqual(len(lines), len(re.findall("(?m)^request", done.stderr)), done.stderr)
        shown = [(method, target, int(status)) for _, method, target, status, _ in lines]
        self.assertEqual(sorted(shown), sorted(log))
        listing = [(int(status), int(attempt)) for source, method, _, status, attempt in lines if method == "POST"]
        self.assertEqual(listing[:3], [(503, 1), (401, 2), (302, 2)])
        self.assertEqual({source for source, *_ in lines}, {"metadata", "gce"})
        self.assertIn("variable  GOOGLE_APPLICATION_CREDENTIALS is not set\n", done.stderr)
        self.assertRegex(done.stderr, r"(?m)^variable  GCE_METADATA_HOST=127\.0\.0\.1:\d+$")

    def test_to_programs(self):
        done, log = self.explain("--json")
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        requests = [line for line in lines if line["explain"] == "request"]
        shown = [(r["method"], "/" + r["url"].split("/", 3)[3], r["status"]) for r in requests]
        self.assertEqual(sorted(shown), sorted(log))
        for r in requests:
            self.assertEqual(r["rc"], "OK")
            self.assertGreater(r["duration_ms"], 0)
            self.assertGreaterEqual(r["bytes"], 0)
            self.assertIn(r["source"], ("metadata", "gce"))
        self.assertEqual([r["attempt"] for r in requests if r["method"] == "POST"][:3], [1, 2, 2])
        variables = {line["name"]: line for line in lines if line["explain"] == "variable"}
        self.assertFalse(variables["GOOGLE_APPLICATION_CREDENTIALS"]["is_set"])
        self.assertIn("127.0.0.1", variables["GCE_METADATA_HOST"]["value"])
        files = [line for line in lines if line["explain"] == "file"]
        self.assertEqual([file["error"] for file in files if "count" not in file], ["not found"])

    def test_urls_with_secrets(self):
        base = "http://127.0.0.1:1"
        for uri, variables in (("kubernetes:api_server=http://me:sEcReT-p@127.0.0.1:1", {}),
                               ("tpu:tpu=n&project=p&zone=z&anonymous=true",
                                {"TPU_API_DISCOVERY_URL": base + "/x?key=sEcReT-k", "HTTPS_PROXY": "http://a:sEcReT@b:1"})):
            for options in (("--explain",), ("--explain", "--json")):
                with self.subTest(uri, options=options):
                    done = resolve(uri, *options, "--timeout", "0.5", MUSTER_LOG_LEVEL="trace", **variables)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn("127.0.0.1:1" if variables else "user name and password", done.stderr)
                    self.assertNotIn("sEcReT", told(done))

    def test_what_has_no_answer(self):
        done = resolve("kubernetes:api_server=http://127.0.0.1:1", "--explain", "--json", "--timeout", "0.5")
        self.assertEqual(done.returncode, 4)
        requests = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        requests = [line for line in requests if line["explain"] == "request"]
        self.assertGreater(len(requests), 0)
        self.assertEqual([(request["status"], request["attempt"]) for request in requests],
                         [(0, number) for number in range(1, len(requests) + 1)])
        if requests[-1]["rc"] == "DEADLINE_EXCEEDED":  # the end came while it was under way
            requests.pop()
        for request in requests:
            self.assertEqual(request["rc"], "UNAVAILABLE")
            self.assertIn("Connection refused", request["error"])


class Chain(unittest.TestCase):
    """GOOGLE_APPLICATION_CREDENTIALS, then gcloud's file, then the metadata server."""

    SCRIPT = [entry("POST", "/by-variable/token", body=token_answer("rotated")),
              entry("POST", "/by-gcloud/token", body=token_answer("bearer")),
              *metadata(), *compute()]

    def ask(self, cloud, **variables):
        done = resolve(GCE.format(base=cloud.base), "--json", GCE_METADATA_HOST=cloud.hostport, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["cluster_spec"], GCE_SPEC)

    def test_order(self):
        def user(cloud, path):
            return {"type": "authorized_user", "client_id": "me", "client_secret": "x", "refresh_token": "y",
                    "token_uri": cloud.base + path}
        for named, gcloud, home, asked in ((True, True, True, "/by-variable/token"), (False, True, True, "/by-gcloud/token"),
                                           (False, False, True, "/by-gcloud/token"), (False, False, False, TOKEN)):
            with self.subTest(asked, gcloud=gcloud), FakeCloud(self.SCRIPT) as cloud, Person(cloud.base) as person:
                path = person.write("named.json", user(cloud, "/by-variable/token"))
                name = "application_default_credentials.json"
                config = os.path.dirname(person.write("sdk/" + name, user(cloud, "/by-gcloud/token")))
                person.write("home/.config/gcloud/" + name, user(cloud, "/by-gcloud/token"))
                self.ask(cloud, GOOGLE_APPLICATION_CREDENTIALS=path if named else None,
                         CLOUDSDK_CONFIG=config if gcloud else None,
                         HOME=os.path.join(person.folder.name, "home") if home else "/nonexistent")
                tokens = {line.split()[2] for line in cloud.log.splitlines() if line.endswith("/token")}
                self.assertEqual(tokens, {asked})

    def test_a_named_file_that_is_bad_is_not_passed_over(self):
        with FakeCloud(self.SCRIPT) as cloud:
            done = resolve(GCE.format(base=cloud.base), GCE_METADATA_HOST=cloud.hostport,
                           GOOGLE_APPLICATION_CREDENTIALS="/nonexistent.json")
            self.assertEqual(done.returncode, 3)
            self.assertEqual(cloud.log, "")


class TokenServer(http.server.BaseHTTPRequestHandler):
    """Believes whoever has signed with the key."""

    modulus = 0
    claims = None

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        signed, _, signature = form["assertion"][0].rpartition(".")
        answer, status = {"error": "invalid_grant"}, 400
        if form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"] and self.is_signed(signed, signature):
            TokenServer.claims = json.loads(self.decode(signed.split(".")[1]))
            answer, status = token_answer(), 200
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @staticmethod
    def decode(text):
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    @classmethod
    def is_signed(cls, text, signature):
        """RS256: RFC 8017 8.2.2 with the public exponent that OpenSSL chooses."""
        told_ = pow(int.from_bytes(cls.decode(signature), "big"), 65537, cls.modulus).to_bytes(256, "big")
        digest = bytes.fromhex("3031300d060960864801650304020105000420") + hashlib.sha256(text.encode()).digest()
        return told_ == b"\0\1" + b"\xff" * (256 - 3 - len(digest)) + b"\0" + digest


class ServiceAccount(unittest.TestCase):
    def serve(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TokenServer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}"

    def test_its_signature_holds(self):
        base = self.serve()
        script = metadata(token=None) + [entry("POST", GROUP, match=needs_token("access-token"), body=group_page("a", "b")),
                                         entry("POST", GROUP, status=401, body={})] + compute()[1:]
        with FakeCloud(script) as cloud, Person(base) as person:
            if not person.has_key:
                self.skipTest("openssl is not installed")
            other = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA"], capture_output=True, text=True, check=True)
            for key, code in ((person.key, 0), (other.stdout, 5)):
                told_ = subprocess.run(["openssl", "rsa", "-noout", "-modulus"], input=key, capture_output=True, text=True,
                                       check=True)
                TokenServer.modulus = int(told_.stdout.split("=")[1], 16)
                done = resolve(GCE.format(base=cloud.base), "--json", "--explain", GCE_METADATA_HOST=cloud.hostport,
                               GOOGLE_APPLICATION_CREDENTIALS=person.service)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(secrets_in(told(done), person.marks), [])
        claims = TokenServer.claims
        self.assertEqual((claims["iss"], claims["aud"]), ("robot@proj", base + "/token"))
        self.assertEqual(claims["exp"] - claims["iat"], 3600)
        self.assertIn("cloud-platform", claims["scope"])


class Flood(threading.Thread):
    """Answers everything with a body of a GiB whose length nobody knows before."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.sent = 0
        self.start()

    def run(self):
        while True:
            try:
                link = self.listener.accept()[0]
            except OSError:
                return
            with link:
                try:
                    link.recv(65536)
                    link.sendall(b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Type: application/json\r\n\r\n")
                    for _ in range(1 << 10):
                        link.sendall(b" " * (1 << 20))
                        self.sent += 1 << 20
                except OSError:
                    pass


class Memory(unittest.TestCase):
    def measure(self, uri, **variables):
        """Exit code, peak of memory in KiB, standard error. The sanitizer's quarantine is not muster's."""
        env = clean_environment(ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1", **variables)
        with subprocess.Popen([MUSTER, "resolve", "--json", "--timeout", str(PATIENCE_S), "--resolver", uri], env=env,
                              text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
            errors = child.stderr.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode, usage.ru_maxrss, errors

    def check(self, uri, **variables):
        code, peak_kib, errors = self.measure(uri, **variables)
        self.assertEqual(code, 1, errors)
        self.assertIn("(RESOURCE_EXHAUSTED)", errors)
        self.assertLess(peak_kib, RSS_MAX_KIB)

    def test_a_length_that_is_announced(self):
        answer = {"body": " ", "repeat_bytes": 1 << 30}
        with FakeCloud([pods(**answer)]) as cloud:
            self.check(f"kubernetes:api_server={cloud.base}")
        many = [f"i{number}" for number in range(64)]
        script = metadata() + compute(body=group_page(*many))[:1] + [entry("GET", "/compute/.*", **answer)]
        with FakeCloud(script) as cloud:
            self.check(GCE.format(base=cloud.base), GCE_METADATA_HOST=cloud.hostport)
        for name in ("project", "zone", "token"):
            replaced = {name: dict(metadata()[("project", "zone", "token").index(name)])}
            replaced[name]["response"] = dict(answer, headers=METADATA)
            with FakeCloud(metadata(**replaced) + compute()) as cloud:
                self.check(GCE.format(base=cloud.base), GCE_METADATA_HOST=cloud.hostport)

    def test_a_length_that_is_not(self):
        flood = Flood()
        place = "&project=p&zone=z&anonymous=true"
        for uri in (f"kubernetes:api_server={flood.base}", GCE.format(base=flood.base) + place,
                    f"tpu:tpu=n&api_endpoint={flood.base}{place}"):
            with self.subTest(uri):
                self.check(uri)
        flood.listener.close()
        self.assertLess(flood.sent, 3 * (64 << 20))


if __name__ == "__main__":
    needs.program("fake_cloud")
    unittest.main(verbosity=2)
