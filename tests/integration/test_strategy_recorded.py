#!/usr/bin/env python3
"""Whole small clusters as recorded of TensorFlow: construction, properties, initial values, and reductions of real processes.

The recorded datasets are case_runner's (sharding, batching). Slices, uneven gathers, axes and logical devices are not compared."""
import json
import os
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests" / "lib"))
import guard

guard.enter()
from puppets import Job, Puppet, ask_each, each, every

RECORDED = SOURCE.parent / "shared" / "cases" / "strategy.json"
UNTOLD = {"RANK": None, "WORLD_SIZE": None, "MUSTER_REGISTRY": None, "TF_CONFIG": None}
PROPERTIES = {"num_workers": "count", "id_in_cluster": "id", "is_chief": "chief", "should_checkpoint": "checkpoint",
              "should_save_summary": "summary", "num_replicas_in_sync": "replicas"}
INPUT = {"num_input_pipelines": "pipelines", "input_pipeline_id": "pipeline", "num_replicas_in_sync": "replicas"}


def config(cluster, task):
    """TF_CONFIG; every process listens where the kernel finds a port."""
    if cluster is None:
        return None
    described = {"cluster": json.loads(re.sub(r"\{\{free\d\}\}", "0", json.dumps(cluster)))}
    if task is not None:
        described["task"] = task
    return json.dumps(described)


@unittest.skipUnless(RECORDED.exists(), "needs the recorded cases")
class Recorded(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        self.addCleanup(self.job.stop)

    def start(self, args, task):
        is_alone = args["cluster"] is None or sum(map(len, args["cluster"].values())) == 1
        variables = dict(UNTOLD, TF_CONFIG=config(args["cluster"], task))
        if not is_alone:
            variables["MUSTER_REGISTRY"] = self.job.address
        member = Puppet(self.job.address, 0, 1, **variables)
        self.job.puppets.append(member)
        return member

    def check_construction(self, answers, tasks):
        for line, task in zip(answers, tasks):
            error = task["observed"]["construct"].get("error")
            right = {"ok"} if error is None else {error["status"], *error.get("status_also", [])}
            self.assertIn(line.split()[0], right, line)

    def check_members(self, members, tasks):
        ids = [task["observed"]["properties"]["id_in_cluster"] for task in tasks]
        by_id = dict(zip(members, ids))
        each(members, lambda m: f"register first 1 {10 + by_id[m]}")
        every(members, "register second 1 5")
        every(members, "begin")
        roles = every(members, "role")
        sums = [each(members, lambda m: f"all_reduce 1 {by_id[m] + 1} {kind}") for kind in ("sum", "mean")]
        twos = [every(members, f"all_reduce 1 2 {kind}") for kind in ("sum", "mean")]
        values = [every(members, f"get {name}") for name in ("first", "second")]
        every(members, "commit")
        for i, task in enumerate(tasks):
            seen = task["observed"]
            self.assertEqual({name: roles[i][key] for name, key in PROPERTIES.items()},
                             {name: seen["properties"][name] for name in PROPERTIES})
            self.assertEqual({name: roles[i][key] for name, key in INPUT.items()}, {name: seen["input_context"][name] for name in INPUT})
            self.assertEqual([got[i]["value"] for got in values], seen["variable_after_create"])
            self.assertEqual([sums[0][i]["value"], twos[0][i]["value"]], seen["reduce_sum"])
            self.assertEqual([sums[1][i]["value"], twos[1][i]["value"]], seen["reduce_mean"])

    def test_clusters_behave_as_recorded(self):
        for case in json.loads(RECORDED.read_text(encoding="utf-8"))["cases"]:
            with self.subTest(case["name"]):
                members = [self.start(case["args"], task) for task in case["args"]["start"]]
                answers = ask_each(members, lambda _: "open")
                self.check_construction(answers, case["tasks"])
                if answers[0] == "ok":
                    self.check_members(members, case["tasks"])
                for member in members:
                    member.child.stdin.close()
                for member in members:
                    member.end()


if __name__ == "__main__":
    unittest.main()
