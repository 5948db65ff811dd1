#!/usr/bin/env python3
"""The guard of a killed launcher writes which members died with it, to a registry under TLS."""
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs

needs.tool("openssl", "openssl")
from etcd_cluster import Embedded
from launchers import Guarded
from tls_files import TlsFiles


class UnderTls(Guarded, unittest.TestCase):
    """Which demands certificates."""

    reads = shutil.which("etcdctl") is not None

    def open_registry(self):
        files = TlsFiles(self.addCleanup)
        (cert, key), (own, own_key) = files.issue("registry"), files.issue("client")
        self.variables = {"MUSTER_REGISTRY_CA_FILE": files.ca, "MUSTER_REGISTRY_CERT_FILE": own, "MUSTER_REGISTRY_KEY_FILE": own_key}
        self.ctl_options = ("--cacert", files.ca, "--cert", own, "--key", own_key)
        return "https://" + Embedded(self.addCleanup, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", files.ca).endpoints


class OfOneJob(Guarded, unittest.TestCase):
    """Which admits the members and launchers of this job alone."""

    reads = False

    def open_registry(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        secret = os.path.join(where.name, "secret")
        with open(secret, "wb") as file:
            file.write(os.urandom(32))
        os.chmod(secret, 0o600)
        self.options = ("--tls", "auto", "--tls-secret", secret)
        return "https://" + Embedded(self.addCleanup, "--tls-secret", secret, "--job", "one").endpoints


if __name__ == "__main__":
    unittest.main()
