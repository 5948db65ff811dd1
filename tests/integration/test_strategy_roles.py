#!/usr/bin/env python3
"""Roles: the chief and the workers of TF_CONFIG train, an evaluator is alone, a ps is refused; and a program without a cluster trains alone."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import BINARIES, CLEAN, PATIENCE_S, Job, Puppet, ask_every, every, ok

# Every process listens where the kernel finds a port: these addresses only name the tasks.
CLUSTER = {"worker": ["127.0.0.1:0", "127.0.0.1:0"], "ps": ["127.0.0.1:0"], "evaluator": ["127.0.0.1:0"]}
UNTOLD = {"RANK": None, "WORLD_SIZE": None, "MUSTER_REGISTRY": None, "TF_CONFIG": None}


def config(task_type, index, cluster=None):
    return json.dumps({"cluster": cluster or CLUSTER, "task": {"type": task_type, "index": index}})


class Roles(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def task(self, task_type, index, cluster=None, **variables):
        return self.job.puppet(index, 1, **dict(UNTOLD, MUSTER_REGISTRY=self.job.address, TF_CONFIG=config(task_type, index, cluster), **variables))

    def test_two_workers_train_and_the_numbers_of_an_evaluator_do_not_count(self):
        evaluator = self.task("evaluator", 0)
        workers = [self.task("worker", index) for index in range(2)]
        ps = self.task("ps", 0)
        every([evaluator, *workers], "open")
        self.assertRegex(ps.ask("open"), "^INVALID_ARGUMENT this process is task ps:0 .*a ps task does not train")
        for member, value in ((evaluator, 100), (workers[0], 1), (workers[1], 2)):
            member.ok(f"register total 8 {value}")

        begun = every([evaluator, *workers], "begin")
        self.assertEqual([(got["rank"], got["size"]) for got in begun], [(0, 1), (0, 2), (1, 2)])
        sums = every([evaluator, *workers], "all_reduce 1 3")
        self.assertEqual([(got["value"], got["contributors"]) for got in sums], [(3, 1), (6, 2), (6, 2)])
        self.assertEqual(workers[1].ok("get total")["value"], 1)  # the first worker's, not the evaluator's
        roles = every([evaluator, *workers], "role")
        self.assertEqual([(got["chief"], got["id"], got["count"], got["alone"], got["checkpoint"]) for got in roles],
                         [(1, 0, 1, 1, 1), (1, 0, 2, 0, 1), (0, 1, 2, 0, 0)])
        self.assertEqual([(got["pipeline"], got["pipelines"]) for got in roles], [(0, 1), (0, 2), (1, 2)])
        every([evaluator, *workers], "commit")

        workers[0].kill()  # the chief: another one saves from here on
        ok(workers[1].ask("begin"))
        workers[1].ask("barrier")
        self.assertEqual(workers[1].ok("begin")["size"], 1)
        self.assertEqual((workers[1].ok("role")["chief"], workers[1].ok("role")["checkpoint"]), (0, 1))
        for member in (evaluator, workers[1], ps):
            member.end()

    def test_an_evaluator_leaves_the_checkpoints_to_those_that_train(self):
        with tempfile.TemporaryDirectory() as folder:
            variables = {"MUSTER_CHECKPOINT_DIR": folder, "MUSTER_CHECKPOINT_EVERY": "1"}
            evaluator, worker = self.task("evaluator", 0, **variables), self.task("worker", 0, dict(CLUSTER, worker=["127.0.0.1:0"]), **variables)
            for member, steps in ((evaluator, 3), (worker, 2)):
                member.ok("open")
                member.ok("register total 8 1")
                for _ in range(steps):
                    member.ok("begin")
                    member.ok("commit")
                member.ok("close")
                member.end()
            self.assertEqual({name.split("-")[1] for name in os.listdir(folder) if name.startswith("checkpoint-")}, {"000000000001", "000000000002"})
            evaluator = self.task("evaluator", 0, **variables)
            evaluator.ok("open")
            evaluator.ok("register total 8 1")
            self.assertEqual(evaluator.ok("begin")["step"], 3)  # it reads them
            evaluator.end()

    def test_a_chief_comes_before_the_workers(self):
        cluster = {"worker": ["127.0.0.1:0"], "chief": ["127.0.0.1:0"]}
        members = [self.task("worker", 0, cluster), self.task("chief", 0, cluster)]
        every(members, "open")
        every(members, "register total 8 1")
        self.assertEqual([got["rank"] for got in every(members, "begin")], [1, 0])
        self.assertEqual([(got["chief"], got["id"]) for got in every(members, "role")], [(0, 1), (1, 0)])
        every(members, "commit")
        for member in members:
            member.child.stdin.close()
        for member in members:
            member.end()

    def test_clusters_against_the_rules_are_refused(self):
        for cluster, text in (({"chief": ["a:1", "b:1"], "worker": ["c:1"]}, "the job 'chief' must have one task, got 2"),
                              ({"worker": ["c:1"], "trainer": ["b:1"]}, "must be chief, worker, ps or evaluator, got 'trainer'")):
            self.assertRegex(self.task("worker", 0, cluster).ask("open"), f"^INVALID_ARGUMENT .*{text}")


class Alone(unittest.TestCase):
    def train(self, **variables):
        member = Puppet("", 0, 1, **dict(UNTOLD, **variables))
        self.addCleanup(member.discard)
        member.ok("open")
        member.ok("register total 8 1")
        for step in (1, 2):
            got = member.ok("begin")
            self.assertEqual((got["step"], got["rank"], got["size"]), (step, 0, 1))
            self.assertEqual(member.ok("all_reduce 1 3")["value"], 3)
            member.ok("barrier")
            member.ok("commit")
        self.assertEqual(member.ok("role")["alone"], 1)
        member.end()

    def test_a_program_that_was_told_nothing_trains_alone(self):
        self.train()

    def test_a_cluster_of_one_task_needs_no_registry(self):
        for variables in ({"RANK": 0, "WORLD_SIZE": 1}, {"TF_CONFIG": "{}"}, {"TF_CONFIG": config("worker", 0, {"worker": ["h.invalid:1"]})}):
            with self.subTest(variables):
                self.train(**variables)

    def test_what_is_said_for_a_cluster_does_not_disturb_an_evaluator(self):
        self.train(TF_CONFIG=config("evaluator", 0), MUSTER_REGISTRY="https://nowhere.invalid:1", MUSTER_REGISTRY_USER="u",
                   MUSTER_REGISTRY_PASSWORD="p", MUSTER_LISTEN="nowhere.invalid:1", MUSTER_MIN_MEMBERS=3)

    def test_a_named_cluster_that_cannot_be_reached_is_an_error(self):
        for variables, text in (({"RANK": 0, "WORLD_SIZE": 2}, "FAILED_PRECONDITION no registry: start this program"),
                                ({"TF_CONFIG": config("worker", 0)}, "FAILED_PRECONDITION no registry: start this program"),
                                ({"MUSTER_REGISTRY": "127.0.0.1:1"}, "FAILED_PRECONDITION RANK is not set, nor anything else"),
                                ({"MUSTER_RESOLVER": "static:worker=a:1,b:1"}, "INVALID_ARGUMENT the resolver 'static' does not say which task")):
            with self.subTest(variables):
                member = Puppet("", 0, 1, **dict(UNTOLD, **variables))
                self.addCleanup(member.discard)
                self.assertRegex(member.ask("open"), f"^{text}")

    def test_the_example_trains_by_itself(self):
        data = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "examples", "data", "digits.csv")
        done = subprocess.run([os.path.join(BINARIES, "bin", "digits"), "--data", data, "--steps", "40", "--batch", "32"], env=CLEAN, text=True,
                              capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^accuracy 0\.\d+\n$")


if __name__ == "__main__":
    unittest.main()
