#!/usr/bin/env python3
"""The place of a launcher: a job whose launchers were killed begins anew by itself; a living launcher keeps its place; launchers that
disagree are told. MUSTER_HOST_KEY makes hosts of one machine."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from launchers import Places
from puppets import Job


class OnEmbedded(Places, unittest.TestCase):
    def open_registry(self):
        job = Job()
        self.addCleanup(job.stop)
        return job.address



if __name__ == "__main__":
    unittest.main()
