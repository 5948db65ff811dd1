#!/usr/bin/env python3
"""Commands with addresses where nobody is, where somebody else is, or that are not of this machine: a text names each address once, and the
option and the remedy where there is one."""
import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import cases
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

STEPPER = os.path.join(PROGRAMS, "stepper")
ADDRESS = re.compile(r"(?:\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]|[a-z][a-z.-]*[a-z]):\d+\b|[a-z_.]+\.example\.org")
ELSEWHERE = "192.0.2.1:0"  # RFC 5737
NOBODY = 65534


class Addresses(unittest.TestCase):
    """{dead} and {other}: nobody listens there; {taken}: somebody does, and says nothing; {here}: a folder."""

    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        dead, other, taken = socket.socket(), socket.socket(), socket.create_server(("127.0.0.1", 0))
        for one in (dead, other):
            one.bind(("127.0.0.1", 0))
        for one in (dead, other, taken):
            self.addCleanup(one.close)
        self.fill = {name: "127.0.0.1:%d" % one.getsockname()[1] for name, one in (("dead", dead), ("other", other), ("taken", taken))}
        self.fill |= {"taken_port": str(taken.getsockname()[1]), "here": where.name}
        with open(os.path.join(where.name, "kubeconfig"), "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "a",
                       "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                       "clusters": [{"name": "a", "cluster": {"server": "http://" + self.fill["dead"]}}],
                       "users": [{"name": "a", "user": {"token": "t"}}]}, file)

    def filled(self, text):
        return re.sub(r"\{(dead|other|taken|taken_port|here)\}", lambda match: self.fill[match[1]], text)

    def run_filled(self, words, **options):
        variables = {"GCE_METADATA_HOST": self.fill["dead"], "KUBECONFIG": os.path.join(self.fill["here"], "kubeconfig")}
        return subprocess.run([MUSTER, *map(self.filled, words)], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                              env=dict(CLEAN, **variables), **options)

    def check(self, *rows):
        """Rows of a command and what it says besides; most of a case is waiting, so they run side by side."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for words, wanted, run in [(words, wanted, pool.submit(self.run_filled, words)) for words, *wanted in rows]:
                with self.subTest(" ".join(words)):
                    done = run.result()
                    if os.environ.get("SHOW"):
                        print(words, done.returncode, "\n   ", done.stderr.strip().replace("\n", "\n    "))
                    self.assertNotIn("Sanitizer", done.stderr)
                    self.assertTrue(done.returncode != 0 or "muster resolve: warning: " in done.stderr, done.stderr)
                    for line in done.stderr.splitlines():
                        addresses = ADDRESS.findall(line)
                        self.assertEqual(len(addresses), len(set(addresses)), line)
                    for text in wanted:
                        self.assertIn(self.filled(text), done.stderr)

    def test_a_registry_that_does_not_answer(self):
        backup = ("--output", "{here}/backup", "--timeout", "0.5")
        self.check((("status", "--registry", "{dead}"), "the registry at {dead} does not answer (Connection refused)"),
                   (("status", "--registry", "https://{dead}"), "the registry at https://{dead} does not answer (Connection refused)"),
                   (("status", "--registry", "{dead},{other}"), "the registry at {dead},{other} does not answer (Connection refused)"),
                   (("top", "--count", "1", "--registry", "{dead}"), "the registry at {dead} does not answer (Connection refused)"),
                   (("registry", "backup", "--registry", "{dead}", *backup), "the registry at {dead}: "),
                   (("registry", "backup", "--registry", "{taken}", *backup), "the registry at {taken}: "),
                   (("run", "-n", "1", "--job", "j", "--registry", "{dead}", "--force-new", "--", "/bin/true"),
                    "--force-new: the registry at {dead} does not answer"))

    def test_a_launcher_that_waits_for_a_registry(self):
        launcher = subprocess.Popen([MUSTER, "run", "-n", "1", "--job", "j", "--registry", self.fill["dead"], "--", "sleep", "1000"],
                                    stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=CLEAN)
        self.addCleanup(launcher.communicate)
        self.addCleanup(launcher.terminate)
        self.assertIn(f"the registry at {self.fill['dead']} does not answer (Connection refused): is", launcher.stderr.readline())

    def test_a_cloud_that_does_not_answer(self):
        uris = ("kubernetes:api_server=http://{dead}", "gce:instance_group=g&port=1&project=p&zone=z&api_endpoint=http://{dead}&anonymous=true",
                "gce:instance_group=g&port=1", "tpu:tpu=a&project=p&zone=z&api_endpoint=http://{dead}", "tpu:tpu=a", "tpu_vm:port=1",
                "dns:a.example.org:1?server={dead}", "dns:_a._tcp.example.org?server={dead}", "kubernetes:location=off",
                "union:static:worker=a:1|kubernetes:api_server=http://{dead}", "tpu:tpu=grpc://{dead}")
        self.check(*((("resolve", "--resolver", uri, "--timeout", "5", "--explain", *more), "example.org" if "dns" in uri else "{dead}")
                     for uri in uris for more in ((), ("--json",))))

    def test_a_port_that_is_in_use(self):
        taken, choose = "listen on {taken}: Address already in use", "another process listens there; end it, or choose another "
        self.check((("registry", "--listen", "{taken}"), taken, choose + "--listen"),
                   (("registry", "--listen", "127.0.0.1:0", "--status", "{taken}"), taken, choose + "--status"),
                   (("coordinator", "--tasks", "1", "--listen", "{taken}"), taken, choose + "--listen"),
                   (("coordinator", "--tasks", "1", "--status", "{taken}"), taken, choose + "--status"),
                   (("server", "--cluster", '{"worker": ["{taken}"]}'), ":{taken_port}: Address already in use", choose + "--port"),
                   (("server", "--port", "{taken_port}"), ":{taken_port}: Address already in use", choose + "--port"),
                   (("run", "-n", "1", "--status", "{taken}", "--", "/bin/true"), taken, choose + "--status"),
                   (("run", "-n", "1", "--listen", "{taken}", "--", STEPPER, "1"), "--listen {taken} must have a free port"))

    def test_an_address_that_is_not_of_this_machine(self):
        name = " must name an address of this machine ('ip address' lists them), 127.0.0.1 for this machine alone, or 0.0.0.0"
        self.check((("registry", "--listen", ELSEWHERE), "--listen" + name), (("registry", "--status", ELSEWHERE), "--status" + name),
                   (("coordinator", "--tasks", "1", "--listen", ELSEWHERE), "--listen" + name),
                   (("coordinator", "--tasks", "1", "--status", ELSEWHERE), "--status" + name), (("server", "--bind", "192.0.2.1"), "--bind" + name),
                   (("run", "-n", "1", "--status", ELSEWHERE, "--", "/bin/true"), "--status" + name),
                   (("run", "-n", "1", "--listen", ELSEWHERE, "--", STEPPER, "1"), "--listen 192.0.2.1 must be an address of this host"))

    @unittest.skipIf(os.geteuid() != 0, "only the superuser can become somebody else")
    def test_a_port_below_1024(self):
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as file:
            if int(file.read()) <= 1:
                self.skipTest("this machine lets everybody listen there")
        for words, option in ((("run", "-n", "1", "--status", "127.0.0.1:1", "--", "/bin/true"), "--status"), (("registry", "--listen", "127.0.0.1:1"), "--listen")):
            done = self.run_filled(words, user=NOBODY, group=NOBODY, extra_groups=[])
            self.assertIn(f"ports below 1024 need the capability CAP_NET_BIND_SERVICE; choose a {option} from 1024 on", done.stderr)

    @unittest.skipIf(os.geteuid() != 0, "only the superuser can become somebody else")
    def test_a_file_that_may_not_be_opened_is_not_taken_for_a_port(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            with open(os.path.join(folder, "theirs.db"), "w", opener=lambda path, flags: os.open(path, flags, 0o600)):
                pass
            for name, why, code in (("theirs.db", "cannot open registry file {}: Permission denied", 5),
                                    ("new.db", "cannot make registry file {}: its folder cannot be written to", 5),
                                    ("none/new.db", "cannot open registry file {}: its folder does not exist", 3)):
                path = os.path.join(folder, name)
                done = subprocess.run([MUSTER, "registry", "--listen", "127.0.0.1:0", "--data", path], user=NOBODY, group=NOBODY, extra_groups=[],
                                      env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)
                self.assertEqual((done.returncode, done.stderr), (code, f"muster registry: {why.format(path)}\n"))

    def test_a_text_that_is_not_an_address(self):
        self.check(*((words, option) for wrong in ("127.0.0.1:99999", "127.0.0.1", "127.0.0.1:x", "256.1.1.1:1")
                     for words, option in ((("registry", "--listen", wrong), "--listen: "), (("registry", "--status", wrong), "--status: "),
                                           (("coordinator", "--tasks", "1", "--listen", wrong), "--listen: must be an address such as"),
                                           (("status", "--registry", wrong), "--registry: "),
                                           (("run", "-n", "1", "--status", wrong, "--", "/bin/true"), "--status: must be an address such as"),
                                           (("run", "-n", "1", "--job", "j", "--registry", wrong, "--", "/bin/true"), "--registry: "))))


if __name__ == "__main__":
    cases.main()
