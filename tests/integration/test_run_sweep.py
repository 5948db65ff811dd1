#!/usr/bin/env python3
"""Keys of jobs that ended more than a day ago are removed by a launcher; those of a job that lives, or may be resumed, stay."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs

needs.tool("etcdctl", "etcd-client")
from launchers import Sweeps
from puppets import Job


class OnEmbedded(Sweeps, unittest.TestCase):
    def open_registry(self):
        job = Job()
        self.addCleanup(job.stop)
        return job.address


if __name__ == "__main__":
    unittest.main()
