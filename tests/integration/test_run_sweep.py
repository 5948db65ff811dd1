#!/usr/bin/env python3
"""Keys of jobs that ended more than a day ago are removed by a launcher; those of a job that lives, or may be resumed, stay."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from launchers import Launcher, LauncherCase
from puppets import CLEAN, MUSTER, PATIENCE_S, Job

DAY_S = 24 * 3600


@unittest.skipIf(shutil.which("etcdctl") is None, "etcdctl is not installed (Debian: etcd-client)")
class RunSweep(LauncherCase, unittest.TestCase):
    def open_registry(self):
        job = Job()
        self.addCleanup(job.stop)
        return job.address

    def etcdctl(self, *words):
        return subprocess.run(["etcdctl", "--endpoints", self.registry, *words], text=True, capture_output=True, check=True,
                              env=dict(CLEAN, ETCDCTL_API="3"), timeout=PATIENCE_S).stdout.split("\n")

    def keys(self, job):
        return [key for key in self.etcdctl("get", "--prefix", f"/muster/{job}/", "--keys-only") if key]

    def look(self):
        """A launcher comes, an hour after the last one."""
        self.etcdctl("del", "/muster-sweep")
        self.launch(job="another").end()

    def age(self, job):
        """The mark of the first look becomes two days old."""
        since, revision = self.etcdctl("get", f"/muster/{job}/ended", "--print-value-only")[0].split()
        self.assertLess(abs(int(since) - time.time()), 3600)
        self.etcdctl("put", f"/muster/{job}/ended", f"{int(since) - 2 * DAY_S} {revision}")

    def test_an_ended_job_is_removed_a_day_after_it_was_seen_so(self):
        self.launch(job="old").end()
        self.assertIn("/muster/old/view", self.keys("old"))
        self.look()
        self.look()  # the mark is not a day old yet
        self.assertIn("/muster/old/view", self.keys("old"))
        self.age("old")
        self.look()
        self.assertEqual(self.keys("old"), [])

    def test_a_job_that_came_back_is_not_removed(self):
        self.launch(job="old").end()
        self.look()
        self.age("old")
        self.launch(job="old").end()
        self.look()
        self.assertIn("/muster/old/view", self.keys("old"))

    def test_a_job_whose_members_are_not_known_to_be_dead_stays(self):
        """Their leases are gone, as after an absence of the registry."""
        first = self.launch(job="alive", slow=True)
        first.hear("with 2 members")
        view = [key for key in self.keys("alive") if key.endswith("view")]
        for name in ("members", "launchers"):
            first.child.send_signal(19)  # SIGSTOP: nothing is registered again
            self.etcdctl("del", "--prefix", f"/muster/alive/{name}/")
        self.look()
        self.assertEqual([key for key in self.keys("alive") if key.endswith(("view", "ended"))], view)

    def test_a_run_that_can_be_resumed_stays(self):
        with tempfile.TemporaryDirectory() as where:
            directory = os.path.join(where, "run")
            first = self.launch(0, "--resumable", directory, job="later", slow=True)
            first.hear("with 2 members")
            first.kill()
            for key in ("members", "launchers"):
                self.etcdctl("del", "--prefix", f"/muster/later/{key}/")
            for key in [key for key in self.keys("later") if "/dead/" in key]:
                self.etcdctl("del", key)
            self.assertIn("/muster/later/resumable/0", self.keys("later"))
            self.look()
            self.assertNotIn("/muster/later/ended", self.keys("later"))
            again = Launcher(self, "--resume", directory)
            again.hear("taken over")
            again.child.terminate()
            again.end(143)
            self.assertNotIn("/muster/later/resumable/0", self.keys("later"))


if __name__ == "__main__":
    unittest.main()
