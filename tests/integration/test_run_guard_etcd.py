#!/usr/bin/env python3
"""The guard of a killed launcher (integration.run_guard) on a real etcd under TLS that has users."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs

needs.tool("etcd", "etcd-server")
needs.tool("etcdctl", "etcd-client")
needs.tool("openssl", "openssl")
from etcd_cluster import EtcdCluster
from launchers import Guarded
from tls_files import TlsFiles

PASSWORD = "correct horse"


class WithUsers(Guarded, unittest.TestCase):
    def open_registry(self):
        etcd = EtcdCluster(self.addCleanup, size=1, tls=TlsFiles(self.addCleanup))
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        password = os.path.join(where.name, "password")
        with open(password, "w", encoding="utf-8") as file:
            file.write(PASSWORD)
        os.chmod(password, 0o600)
        for words in (("user", "add", f"root:{PASSWORD}"), ("user", "grant-role", "root", "root"), ("user", "add", f"worker:{PASSWORD}"),
                      ("role", "add", "jobs"), ("role", "grant-permission", "jobs", "--prefix=true", "readwrite", "/muster"),
                      ("user", "grant-role", "worker", "jobs"), ("auth", "enable")):
            done = etcd.ctl(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.variables = {"MUSTER_REGISTRY_CA_FILE": etcd.ca, "MUSTER_REGISTRY_CERT_FILE": etcd.cert, "MUSTER_REGISTRY_KEY_FILE": etcd.key,
                          "MUSTER_REGISTRY_USER": "worker", "MUSTER_REGISTRY_PASSWORD_FILE": password}
        self.ctl_options = (*etcd.client_tls, "--user", f"root:{PASSWORD}")
        return etcd.endpoints


if __name__ == "__main__":
    unittest.main()
