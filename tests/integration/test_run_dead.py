#!/usr/bin/env python3
"""Records of deaths in a registry elsewhere: told before the process has been taken down, and no growing heap of them."""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS, Job

STEPPER = os.path.join(PROGRAMS, "stepper")
EVERY = 32  # tools/run/registry/dead.c: CLEAN_EVERY
PATIENCE_DEATHS = 16 * EVERY  # a look that the next view overtakes is repeated
PREFIX = "/muster/dying/"


def events(line):
    """(is it a deletion, "dead" or "members", the incarnation) of each event that etcdctl has printed."""
    for event in json.loads(line)["Events"]:
        key = base64.b64decode(event["kv"]["key"]).decode()
        if match := re.fullmatch(PREFIX + "(dead|members)/([0-9a-f]{32})", key):
            yield "type" in event, *match.groups()  # a put has none


@unittest.skipIf(shutil.which("etcdctl") is None, "etcdctl is not installed (Debian: etcd-client)")
class RunDead(unittest.TestCase):
    def start(self, *words, **variables):
        child = subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(CLEAN, **variables))
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def test_old_deaths_are_deleted_while_the_job_goes_on(self):
        """Each life commits a step before it dies, so that the launcher takes it for no crash loop and starts the next at once."""
        job = Job()
        self.addCleanup(job.stop)
        watch = self.start("etcdctl", "--endpoints", job.address, "watch", "--prefix", PREFIX, "-w", "json", ETCDCTL_API="3")
        run = self.start(MUSTER, "run", "-n", "2", "--job", "dying", "--registry", job.address, "--max-restarts", "100000",
                         "--min-members", "2", "--", STEPPER, "1000000", STEPPER_DIES="1", STEPPER_HURRY="/nonexistent/never")
        waiter = threading.Thread(target=lambda: (run.wait(), watch.terminate()))  # no run, no news
        waiter.start()
        self.addCleanup(waiter.join)
        self.addCleanup(run.kill)
        deaths, deleted, since = set(), set(), None
        for line in watch.stdout:
            for is_delete, kind, who in events(line):
                if kind == "dead":
                    (deleted if is_delete else deaths).add(who)
                elif is_delete and who in deaths and since is None:
                    since = len(deaths)  # a lease has ended: from now on there is what nobody asks for
            if deleted or since is not None and len(deaths) > since + PATIENCE_DEATHS:
                break

        self.assertTrue(deleted, f"{len(deaths)} deaths, the first record went after {since}")
        self.assertTrue(deleted <= deaths)
        self.assertGreaterEqual(len(deaths), EVERY)
        self.assertIsNone(run.poll())
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(timeout=PATIENCE_S), 128 + signal.SIGTERM)

    def test_a_death_is_told_before_the_process_is_taken_down(self):
        """Which takes its time where it has much memory: the first record comes from the kernel's mark, the second one from its exit status."""
        job = Job()
        self.addCleanup(job.stop)
        watch = self.start("etcdctl", "--endpoints", job.address, "watch", "--prefix", PREFIX + "dead/", "-w", "json", ETCDCTL_API="3")
        run = self.start(MUSTER, "run", "-n", "2", "--job", "dying", "--registry", job.address, "--kill", "worker:1@step=3", "--",
                         STEPPER, "5", "4000000", MUSTER_WIRE="tcp")
        told = []
        while len(told) < 2:
            line = watch.stdout.readline()
            told += [base64.b64decode(event["kv"]["value"]).decode() for event in json.loads(line)["Events"]]
        self.assertEqual(run.wait(timeout=PATIENCE_S), 0)
        self.assertRegex(told[0], r"^process ended at step \d+ in view \d+$")
        self.assertRegex(told[1], r"^SIGKILL at step \d+ in view \d+$")


if __name__ == "__main__":
    unittest.main()
