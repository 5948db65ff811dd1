#!/usr/bin/env python3
"""`muster registry` as its operator sees it: /healthz and the log when writes fail or the quota is passed, gauges, the lines at its start
and end, SIGHUP, the mode of its file, and etcd's pages at the port of its clients."""
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs
from etcd_cluster import ETCD, EtcdCluster
from puppets import CLEAN, MUSTER, PATIENCE_S
from tls_files import OPENSSL, TlsFiles

ETCDCTL = needs.tool("etcdctl", "etcd-client")
needs.tool("curl", "curl")
KIB = 1024


def wait_until(is_so, text):
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, text()
        time.sleep(0.05)


class Registry:
    """A command of muster that serves, with a status page where it has one."""

    def __init__(self, case, *words, prefix=(), command="registry", **popen):
        self.process = subprocess.Popen([*prefix, MUSTER, command, "--listen", "127.0.0.1:0", *words], text=True, env=CLEAN,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stderr.readline, "")), daemon=True)
        self.reader.start()
        case.addCleanup(self.discard)
        words_said = self.process.stdout.readline().split()
        case.assertEqual(words_said[:1], ["listening"], self.lines)
        self.address = words_said[1]
        self.status = self.process.stdout.readline().split()[1] if "--status" in words else None

    def discard(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()

    def end(self):
        self.process.terminate()
        code = self.process.wait(timeout=PATIENCE_S)
        self.reader.join()
        return code

    def log(self):
        return "".join(self.lines)

    def wait_for_log(self, text):
        wait_until(lambda: text in self.log(), self.log)

    def get(self, path):
        """Status and text of a page."""
        try:
            with urllib.request.urlopen(self.status + path, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name):
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics")[1], re.M)
        assert found, self.get("/metrics")[1]
        return float(found[1])

    def ctl(self, *words, **options):
        return subprocess.run([ETCDCTL, "--endpoints", self.address, *words], env=dict(os.environ, ETCDCTL_API="3"), text=True,
                              capture_output=True, timeout=PATIENCE_S, check=False, **options)

    def put(self, key, size):
        return self.ctl("put", key, input="x" * size)

    def put_until_refused(self, size=200 * KIB):
        for i in range(200):
            done = self.put(f"k{i}", size)
            if done.returncode != 0:
                return done.stderr
        raise AssertionError("200 puts were taken")


class Files(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.where = where.name
        self.data = os.path.join(self.where, "registry.db")

    def assert_healthy(self, registry):
        self.assertEqual(registry.get("/healthz"), (200, "ok\n"))

    def assert_write_failure(self, registry, told, reason):
        self.assertIn(reason, told)
        self.assertIn(self.data, told)
        self.assertNotIn("database space exceeded", told)
        code, text = registry.get("/healthz")
        self.assertEqual(code, 503)
        self.assertIn(f"registry: cannot write {self.data}: {reason}", text)
        registry.put("again", 200 * KIB)
        self.assertEqual(registry.log().count("registry_store_failed"), 1, registry.log())
        self.assertIn(reason, registry.log())
        self.assertEqual(registry.ctl("alarm", "list").stdout, "")
        self.assertEqual(registry.metric("muster_registry_write_failing"), 1)
        self.assertGreaterEqual(registry.metric("muster_registry_write_failures_total"), 2)

    def test_a_full_disk_is_told_as_such_and_gets_well_when_there_is_room(self):
        mount = f'mount -t tmpfs -o size=8m none "{self.where}" && head -c 5000000 /dev/zero >"{self.where}/ballast"'
        namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        if subprocess.run([*namespace, "sh", "-c", mount], capture_output=True, check=False).returncode != 0:
            self.skipTest("this machine lets nobody mount a tmpfs")
        registry = Registry(self, "--data", self.data, "--status", "127.0.0.1:0", prefix=[*namespace, "sh", "-c", mount + ' && exec "$@"', "-"])
        self.assert_healthy(registry)
        told = registry.put_until_refused()
        self.assert_write_failure(registry, told, "No space left on device")
        os.unlink(f"/proc/{registry.process.pid}/root/{self.where}/ballast")
        registry.wait_for_log("registry_writes_again")
        self.assert_healthy(registry)
        self.assertEqual(registry.put("room", 200 * KIB).returncode, 0)
        self.assertEqual(registry.end(), 0, registry.log())

    def test_a_write_error_is_told_with_its_reason(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        registry = Registry(self, "--data", self.data, "--status", "127.0.0.1:0", preexec_fn=limit)
        told = registry.put_until_refused()
        self.assert_write_failure(registry, told, "File too large")
        self.assertEqual(registry.ctl("get", "k0", "--keys-only").stdout.split(), ["k0"])

    def test_a_quota_that_is_passed_is_told_and_ends_by_itself(self):
        registry = Registry(self, "--data", self.data, "--quota", "1M", "--status", "127.0.0.1:0")
        told = registry.put_until_refused()
        self.assertIn("etcdserver: mvcc: database space exceeded", told)
        code, text = registry.get("/healthz")
        self.assertEqual(code, 503)
        self.assertIn("quota of 1048576", text)
        self.assertIn("--quota", text)
        self.assertEqual(registry.log().count("registry_quota_passed"), 1)
        self.assertIn("NOSPACE", registry.ctl("alarm", "list").stdout)
        self.assertEqual((registry.metric("muster_registry_over_quota"), registry.metric("muster_registry_write_failing")), (1, 0))
        self.assertEqual(registry.ctl("del", "--prefix", "k").returncode, 0)
        revision = int(registry.metric("muster_registry_revision"))
        self.assertEqual(registry.ctl("compaction", "--physical", str(revision)).returncode, 0)
        registry.wait_for_log("registry_below_quota")
        self.assert_healthy(registry)
        self.assertEqual(registry.put("room", KIB).returncode, 0)

    def test_a_launcher_ends_with_the_reason_when_the_quota_is_passed(self):
        registry = Registry(self, "--data", self.data, "--quota", "1M")
        registry.put_until_refused()
        done = subprocess.run([MUSTER, "run", "--registry", registry.address, "--job", "full", "--", "true"], env=CLEAN, text=True,
                              capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"the registry at {registry.address} refuses: etcdserver: mvcc: database space exceeded", done.stderr)

    def test_gauges_count_what_there_is(self):
        registry = Registry(self, "--data", self.data, "--status", "127.0.0.1:0")
        lease = re.search(r"lease (\w+) granted", registry.ctl("lease", "grant", "600").stdout)[1]
        for words in (("put", "a", "1"), ("put", "b", "1", f"--lease={lease}"), ("put", "b", "2"), ("put", "c", "1"), ("del", "a")):
            self.assertEqual(registry.ctl(*words).returncode, 0)
        watch = subprocess.Popen([ETCDCTL, "--endpoints", registry.address, "watch", "b"], env=dict(os.environ, ETCDCTL_API="3"))
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        wait_until(lambda: registry.metric("muster_registry_watches") == 1, registry.log)
        self.assertEqual([registry.metric("muster_registry_" + name) for name in ("keys", "leases", "revision", "quota_bytes")],
                         [2, 1, 6, 2 << 30])
        for name in ("file_bytes", "used_bytes", "journal_bytes"):
            self.assertGreater(registry.metric("muster_registry_" + name), 0, name)
        with open(f"/proc/{registry.process.pid}/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        self.assertAlmostEqual(registry.metric("process_resident_memory_bytes"), resident, delta=resident / 4)
        self.assertGreater(registry.metric("process_cpu_seconds_total"), 0)
        self.assertLess(registry.metric("process_cpu_seconds_total"), 60)
        fds = len(os.listdir(f"/proc/{registry.process.pid}/fd"))
        self.assertAlmostEqual(registry.metric("process_open_fds"), fds, delta=4)  # connections come and go
        self.assertAlmostEqual(registry.metric("process_start_time_seconds"), time.time(), delta=PATIENCE_S)
        watch.kill()
        registry.process.kill()
        registry.process.wait()
        again = Registry(self, "--data", self.data, "--status", "127.0.0.1:0")
        self.assertEqual([again.metric("muster_registry_" + name) for name in ("keys", "leases")], [2, 1])

    def test_a_line_at_the_start_and_one_at_the_end(self):
        for revision in (1, 3):
            registry = Registry(self, "--data", self.data)
            version = subprocess.run([MUSTER, "version"], text=True, capture_output=True, check=True).stdout.split()[1]
            registry.wait_for_log("registry_started")
            start = registry.log()
            for text in (version, self.data, f"revision={revision}", registry.address):
                self.assertIn(text, start)
            registry.put("a", 1)
            registry.put("b", 1)
            self.assertEqual(registry.end(), 0, registry.log())
            self.assertIn("registry_stopped", registry.log())
            self.assertIn(f"revision={revision + 2}", registry.log())
            self.assertEqual(len(registry.lines), 2, registry.log())

    def test_a_new_file_is_its_owners_alone(self):
        registry = Registry(self, "--data", self.data)
        registry.put("a", 1)
        self.assertEqual({stat.S_IMODE(os.stat(os.path.join(self.where, name)).st_mode) for name in os.listdir(self.where)}, {0o600})

    def test_a_new_file_of_a_resumable_run_is_its_owners_alone(self):
        run = os.path.join(self.where, "run")
        script = f'for file in "{run}"/registry.db*; do stat -c "%a $file" "$file"; done'
        done = subprocess.run([MUSTER, "run", "-n", "1", "--resumable", run, "--", "sh", "-c", script], env=CLEAN, text=True, capture_output=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        modes = re.findall(r"(\d{3}) \S*registry\.db", done.stdout)
        self.assertTrue(modes and set(modes) == {"600"}, done.stdout)


@unittest.skipUnless(OPENSSL, "the program openssl is not installed")
class Hangup(unittest.TestCase):
    def setUp(self):
        self.files = TlsFiles(self.addCleanup)
        self.cert, self.key = self.files.issue("server")

    def serial(self, registry):
        done = subprocess.run([OPENSSL, "s_client", "-connect", registry.address, "-alpn", "h2"], input="", text=True, errors="replace", capture_output=True,
                              timeout=PATIENCE_S, check=False)
        return subprocess.run([OPENSSL, "x509", "-noout", "-serial"], input=done.stdout, text=True, capture_output=True, check=True).stdout

    def replace(self):
        cert, key = self.files.issue("next")
        os.replace(cert, self.cert)
        os.replace(key, self.key)

    def test_certificates_are_read_again(self):
        for command, words in (("registry", ()), ("coordinator", ("--tasks", "1"))):
            with self.subTest(command=command):
                service = Registry(self, *words, "--tls-cert", self.cert, "--tls-key", self.key, command=command)
                before = self.serial(service)
                self.replace()
                service.process.send_signal(signal.SIGHUP)
                service.wait_for_log("certificates_read_again")
                self.assertIn("tls_reloaded", service.log())
                self.assertNotEqual(self.serial(service), before)
                self.assertEqual(service.end(), 0, service.log())

    def test_files_that_cannot_be_used_are_told_and_the_former_are_kept(self):
        registry = Registry(self, "--tls-cert", self.cert, "--tls-key", self.key)
        before = self.serial(registry)
        with open(self.cert, "w", encoding="utf-8") as file:
            file.write("rubbish")
        registry.process.send_signal(signal.SIGHUP)
        registry.wait_for_log("tls_reload_failed")
        self.assertEqual(self.serial(registry), before)
        self.assertNotIn("certificates_read_again", registry.log())

    def test_one_in_plain_text_goes_on(self):
        registry = Registry(self)
        registry.process.send_signal(signal.SIGHUP)
        registry.wait_for_log("reload_has_nothing_to_read")
        self.assertEqual(registry.put("a", 1).returncode, 0)
        self.assertEqual(registry.end(), 0)


class Pages(unittest.TestCase):
    """etcd's pages at the port of the clients."""

    def curl(self, address, path, *words):
        """HTTP version, status, content type and body."""
        done = subprocess.run(["curl", "-sS", "-m", str(PATIENCE_S), "-w", "\n%{http_version} %{http_code} %{content_type}", *words,
                               address + path], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        body, _, last = done.stdout.rpartition("\n")
        version, code, kind = last.split(" ", 2)
        return version, int(code), kind, body

    def raw(self, registry, text):
        """What the port answers until it closes the connection."""
        with socket.create_connection(registry.address.split(":"), timeout=PATIENCE_S) as connection:
            connection.sendall(text.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def test_health_version_and_metrics_in_both_versions_of_http(self):
        registry = Registry(self)
        for version, words in (("1.1", ("--http1.1",)), ("2", ("--http2-prior-knowledge",))):
            with self.subTest(version=version):
                seen, code, kind, body = self.curl("http://" + registry.address, "/health", *words)
                self.assertEqual((seen, code, kind, json.loads(body)), (version, 200, "application/json", {"health": "true", "reason": ""}))
                _, code, _, body = self.curl("http://" + registry.address, "/version", *words)
                self.assertEqual((code, set(json.loads(body))), (200, {"etcdserver", "etcdcluster"}))
                _, code, kind, body = self.curl("http://" + registry.address, "/metrics", *words)
                self.assertEqual(code, 200)
                self.assertTrue(kind.startswith("text/plain; version=0.0.4"), kind)
                self.assertRegex(body, r"(?m)^muster_registry_keys 0$")
                self.assertRegex(body, r"(?m)^process_resident_memory_bytes [1-9]\d+$")
                self.assertEqual(self.curl("http://" + registry.address, "/nothing", *words)[1], 404)
        self.assertEqual(registry.put("a", 1).returncode, 0)
        self.assertEqual(registry.ctl("endpoint", "health").returncode, 0)
        self.assertEqual(registry.end(), 0, registry.log())

    def test_etcdctl_checks_its_memory(self):
        registry = Registry(self)
        done = registry.ctl("check", "datascale", "--load", "s")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("PASS", done.stdout)

    @unittest.skipUnless(ETCD, "etcd is not installed (Debian: etcd-server)")
    def test_answers_are_those_of_etcd(self):
        etcd, registry = EtcdCluster(self.addCleanup, size=1).endpoints, Registry(self).address
        for path in ("/health", "/version", "/nothing"):
            with self.subTest(path=path):
                theirs, ours = (self.curl("http://" + address, path) for address in (etcd, registry))
                self.assertEqual(ours[:2], theirs[:2])
                if path == "/nothing":
                    self.assertEqual(ours[3], theirs[3])
                else:
                    self.assertLessEqual(json.loads(theirs[3]).items(), json.loads(ours[3]).items())
        self.assertEqual(*(self.curl("http://" + address, "/health", "-X", "POST")[1] for address in (etcd, registry)))

    def test_health_says_why_it_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            registry = Registry(self, "--data", os.path.join(folder, "registry.db"), "--quota", "1M")
            registry.put_until_refused()
            for words in (("--http1.1",), ("--http2-prior-knowledge",)):
                _, code, _, body = self.curl("http://" + registry.address, "/health", *words)
                self.assertEqual((code, json.loads(body)["health"]), (503, "false"))
                self.assertIn("quota of 1048576", json.loads(body)["reason"])

    @unittest.skipUnless(OPENSSL, "the program openssl is not installed")
    def test_under_tls(self):
        files = TlsFiles(self.addCleanup)
        cert, key = files.issue("server")
        registry = Registry(self, "--tls-cert", cert, "--tls-key", key)
        for version, words in (("1.1", ("--http1.1",)), ("2", ())):
            seen, code, _, body = self.curl("https://" + registry.address, "/health", "--cacert", files.ca, *words)
            self.assertEqual((seen, code, json.loads(body)["health"]), (version, 200, "true"))
        done = subprocess.run(["curl", "-sS", f"http://{registry.address}/health"], capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)

    def test_odd_requests_harm_nobody(self):
        registry = Registry(self)
        self.assertEqual(self.raw(registry, "GET /health HTTP/1.1\r\nX: " + "y" * 5000 + "\r\n\r\n").split()[1], "200")
        self.assertIn("Content-Length", self.raw(registry, "HEAD /version HTTP/1.0\r\n\r\n"))
        self.assertTrue(self.raw(registry, "HEAD /version HTTP/1.0\r\n\r\n").endswith("\r\n\r\n"))
        for text in ("GET /health\r\n\r\n", "GET  HTTP/1.1\r\n\r\n", "RUBBISH without an end\r\n\r\n", "G" * 9000,
                     "GET /" + "a" * 8187):
            self.assertIn(self.raw(registry, text).split()[1:2], (["400"], ["404"]), text[:30])
        silent = [socket.create_connection(registry.address.split(":")) for _ in range(1100)]
        for each in silent[:200]:
            each.sendall(b"GET /hea")
        self.assertEqual(self.curl("http://" + registry.address, "/health")[1], 200)
        self.assertEqual(registry.put("a", 1).returncode, 0)
        for each in silent:
            each.close()
        self.assertEqual(registry.end(), 0, registry.log())


if __name__ == "__main__":
    unittest.main()
