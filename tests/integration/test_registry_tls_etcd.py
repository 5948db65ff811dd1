#!/usr/bin/env python3
"""A real etcd that speaks TLS where plain text was asked, or the reverse (integration.registry_tls): it closes without a word."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs

needs.tool("etcd", "etcd-server")
needs.tool("etcdctl", "etcd-client")
needs.tool("openssl", "openssl")
from etcd_cluster import EtcdCluster
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS
from tls_files import TlsFiles


class OnEtcd(unittest.TestCase):
    def check(self, endpoints, words, variables):
        """Of the whole cluster, and of one that is alone."""
        for url in (endpoints, endpoints.split(",")[0]):
            for command in ((MUSTER, "run", "-n", "2", "--job", "j", "--registry", url, "--", "/bin/echo", "started"),
                            (MUSTER, "status", "--registry", url),
                            (os.path.join(PROGRAMS, "stepper"), "1")):
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                                      env=dict(CLEAN, **variables, RANK="0", WORLD_SIZE="2", MUSTER_JOB="j", MUSTER_REGISTRY=url))
                self.assertNotEqual(done.returncode, 0, command)
                self.assertRegex(done.stderr, words, command)
                self.assertNotIn("started", done.stdout)

    def test_tls_is_asked_in_plain_text(self):
        files = TlsFiles(self.addCleanup)
        etcd = EtcdCluster(self.addCleanup, tls=files)
        self.check(etcd.endpoints.replace("https://", ""), r"registry (127.0.0.1:\d+) speaks TLS, and is asked in plain text: write https://\1 and "
                   "name its authority in MUSTER_REGISTRY_CA_FILE", {"MUSTER_REGISTRY_CA_FILE": files.ca})

    def test_plain_text_is_asked_for_tls(self):
        etcd = EtcdCluster(self.addCleanup)
        self.check(",".join("https://" + endpoint for endpoint in etcd.endpoints.split(",")), r"registry (127.0.0.1:\d+) speaks plain text, and "
                   r"https:// asks for TLS: write \1 without https://", {"MUSTER_REGISTRY_CA_FILE": TlsFiles(self.addCleanup).ca})


if __name__ == "__main__":
    unittest.main()
