#!/usr/bin/env python3
"""The keys of ended jobs (integration.run_sweep) on a real etcd."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs

needs.tool("etcd", "etcd-server")
needs.tool("etcdctl", "etcd-client")
from etcd_cluster import EtcdCluster
from launchers import Sweeps


class OnEtcd(Sweeps, unittest.TestCase):
    def open_registry(self):
        return EtcdCluster(self.addCleanup, size=1).endpoints


if __name__ == "__main__":
    unittest.main()
