#!/usr/bin/env python3
"""What a registry keeps of a job whose workers die again and again: not every death for ever."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
from etcd_cluster import ETCDCTL, Embedded, etcdctl
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

DEATHS = 36  # the launcher looks at the 32nd


class Deaths(unittest.TestCase):
    def test_the_keys_of_the_dead_do_not_pile_up(self):
        registry = Embedded(self.addCleanup)
        with tempfile.TemporaryDirectory() as where:
            hurry, summary = os.path.join(where, "hurry"), os.path.join(where, "summary.json")
            job = subprocess.Popen([MUSTER, "run", "-n", "2", "--job", "mortal", "--registry", registry.endpoints, "--max-restarts", "200", "--json",
                                    summary, "--", "sh", "-c", "echo life $RANK $$; exec $STEPPER 20000"], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=dict(CLEAN, STEPPER=os.path.join(PROGRAMS, "stepper"), STEPPER_HURRY=hurry))
            self.addCleanup(job.communicate)
            self.addCleanup(job.kill)
            lives = 0
            while lives <= DEATHS:
                line = job.stdout.readline()
                self.assertTrue(line)
                if life := re.search(r"life 1 (\d+)", line):
                    lives += 1
                    self.wait_for_member(registry, lives)
                    if lives <= DEATHS:
                        os.kill(int(life[1]), signal.SIGKILL)
            found = etcdctl(registry.endpoints, "get", "--prefix", "--keys-only", "/muster/mortal/dead/").stdout.split()
            self.assertLess(len(found), 32)
            with open(hurry, "w", encoding="utf-8"):
                pass
            job.communicate(timeout=PATIENCE_S)
            self.assertEqual(job.returncode, 0)
            with open(summary, encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual((result["kills"], result["steps"], result["identical"], result["survivors_restarted"]), (DEATHS, 20000, True, 0))

    def wait_for_member(self, registry, lives):
        """Until the view has changed for this life: each takes one out and lets one in."""
        while True:
            view = etcdctl(registry.endpoints, "get", "/muster/mortal/view", "-w", "json").stdout
            version = json.loads(view).get("kvs", [{"version": 0}])[0]["version"] if view else 0
            if version >= 2 * lives - 1:
                return


if __name__ == "__main__":
    if not ETCDCTL:
        print("skipped: etcdctl is not installed (Debian: etcd-client)")
        sys.exit(77)
    unittest.main()
