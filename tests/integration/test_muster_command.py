#!/usr/bin/env python3
"""The command `muster`: help, unknown names, exit codes, and `muster resolve`."""
import glob
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from main_again import MainAgain

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")


PROCESS = MainAgain(MUSTER, 60)  # plays all command lines but those that start others


def environment(**variables):
    return {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "MUSTER_RESOLVER", "RANK", "WORLD_SIZE")} | variables


def muster(*args, **variables):
    return PROCESS.run(args, environment(**variables))


def run(*args):
    return subprocess.run([MUSTER, "run", *args], env=environment(), text=True, capture_output=True, timeout=60)


def tearDownModule():  # pylint: disable=invalid-name
    done = PROCESS.end()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


class Help(unittest.TestCase):
    def test_no_arguments_and_help_show_the_commands(self):
        for args in ([], ["help"], ["--help"], ["-h"], ["help", "--help"]):
            done = muster(*args)
            self.assertEqual(done.returncode, 0, args)
            self.assertIn("resolve", done.stdout)
            self.assertEqual(done.stderr, "")

    def test_every_command_has_a_page(self):
        names = [line.split()[0] for line in muster().stdout.splitlines() if line.startswith("  ")]
        self.assertIn("version", names)
        for name in names:
            if name == "help":
                continue
            for args in ([name, "--help"], ["help", name]):
                done = muster(*args)
                self.assertEqual(done.returncode, 0, args)
                self.assertIn("muster " + name, done.stdout)

    def test_benchmarks_are_listed_but_not_their_workers(self):
        done = muster("bench", "--help")
        self.assertEqual(done.returncode, 0)
        for name in ("allreduce", "recover", "scale"):
            self.assertRegex(done.stdout, rf"(?m)^  {name} +\S")
        self.assertNotIn("recover-worker", done.stdout)
        self.assertNotIn("null", done.stdout)

    def test_pages_on_options_and_exit_codes(self):
        options = muster("help", "options").stdout
        self.assertIn("MUSTER_RESOLVER", options)
        for command in ("params cut", "params drain", "params inspect", "params serve", "bench params", "bench publish"):
            self.assertIn(f"muster {command}\n", options)
        self.assertIn("126", muster("help", "exit-codes").stdout)

    def test_what_is_unknown_is_named_with_the_nearest_name(self):
        for args, culprit, nearest in (
            (["resolv"], "'resolv'", "'resolve'"),
            (["resolve", "--jsno"], "--jsno", "--json"),
            (["help", "nothing"], "'nothing'", "muster help"),
            (["resolve", "extra"], "'extra'", "--help"),
            (["resolve", "--timeout", "soon"], "soon", "--help"),
        ):
            done = muster(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(culprit, done.stderr)
            self.assertIn(nearest, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_version(self):
        self.assertRegex(muster("version").stdout, r"^muster \d+\.\d+\.\d+")
        self.assertEqual(muster("--version").stdout, muster("version").stdout)
        self.assertIn("version", json.loads(muster("version", "--json").stdout))


class Resolve(unittest.TestCase):
    CONFIG = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}

    @staticmethod
    def gpus():
        """Those of this machine, as `muster run -n gpu` counts them."""
        count = len(glob.glob("/dev/nvidia[0-9]*"))
        return {"GPU": count} if count else {}

    def test_json_has_the_keys_of_the_contract_on_one_line(self):
        done = muster("resolve", "--json", TF_CONFIG=json.dumps(self.CONFIG))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        answer = json.loads(done.stdout)
        sources = answer.pop("sources")
        self.assertEqual(sources["cluster_spec"], "TF_CONFIG.cluster")
        self.assertEqual(answer.pop("reason"), "auto: TF_CONFIG is set")
        self.assertIsNone(answer.pop("world_size"))
        self.assertEqual(
            answer,
            {"cluster_spec": {"worker": ["a:1", "b:2"]}, "master": "b:2", "task_type": "worker", "task_id": 1,
             "rpc_layer": None, "num_accelerators": self.gpus(), "resolver": "tf_config"})

    def test_a_static_cluster_by_uri_and_by_variable(self):
        for args, variables in ((["--resolver", "static:worker=a:1;ps=p:1"], {}),
                                ([], {"MUSTER_RESOLVER": 'static:{"worker":["a:1"],"ps":["p:1"]}'})):
            done = muster("resolve", "--json", *args, **variables)
            self.assertEqual(json.loads(done.stdout)["cluster_spec"], {"worker": ["a:1"], "ps": ["p:1"]})

    def test_options_stand_behind_the_cluster(self):
        for uri in ("static:worker=a:1,b:2?task_type=worker&task_id=0", 'static:{"worker":["a:1","b:2"]}?task_type=worker&task_id=0',
                    "union:static:worker=a:1|static:worker=b:2?task_type=worker&task_id=0",
                    "union:(union:static:worker=a:1?task_type=worker&task_id=0)|static:worker=b:2"):
            answer = json.loads(muster("resolve", "--json", "--resolver", uri).stdout)
            self.assertEqual([answer[key] for key in ("cluster_spec", "task_type", "task_id")],
                             [{"worker": ["a:1", "b:2"]}, "worker", 0], uri)
        for uri in ("static:worker=a:1?zoo=1", "union:static:worker=a:1|static:ps=p:1?zoo=1", "union:(union:static:w=a:1?zoo=1)"):
            done = muster("resolve", "--resolver", uri)
            self.assertEqual((done.returncode, done.stdout), (3, ""), uri)
            self.assertIn("'zoo'", done.stderr)

    def test_the_remedy_of_run_is_a_uri_that_works(self):
        for uri in ("static:worker=127.0.0.1:1", "union:static:worker=127.0.0.1:1|static:ps=p:1"):
            done = run("--resolver", uri, "--", "true")
            self.assertNotEqual(done.returncode, 0, uri)
            named = re.search(r"as in (\S+)", done.stderr)
            self.assertIsNotNone(named, done.stderr)
            done = run("--resolver", named[1], "--", "true")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_plain_text_says_where_each_fact_comes_from(self):
        done = muster("resolve", RANK="1", WORLD_SIZE="3", MASTER_ADDR="h", MASTER_PORT="7")
        self.assertRegex(done.stdout, r"(?m)^master +h:7 +\(MASTER_ADDR, MASTER_PORT\)$")
        self.assertRegex(done.stdout, r"(?m)^world_size +3 +\(WORLD_SIZE\)$")
        self.assertRegex(done.stdout, r"(?m)^resolver +torchrun +\(auto: RANK and WORLD_SIZE are set\)$")

    def test_explain_shows_what_was_looked_at_but_no_secret(self):
        done = muster("resolve", "--explain", "--resolver", "slurm:gpus_per_node=0", SLURM_PROCID="0",
                      SLURM_STEP_NUM_TASKS="1", SLURM_STEP_NODELIST="n1", SLURM_STEP_TASKS_PER_NODE="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SLURM_STEP_NODELIST=n1", done.stderr)
        self.assertIn("SLURM_LOCALID is not set", done.stderr)
        done = muster("resolve", "--explain", "--resolver", "file:/nonexistent/cluster.json")
        self.assertIn("file      /nonexistent/cluster.json: not found", done.stderr)
        self.assertEqual(done.returncode, 3)

    def test_a_watch_tells_each_task_that_changes(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            self.write(file.name, {"w": ["a:1", "b:1"]})
            with subprocess.Popen([MUSTER, "resolve", "--resolver", "file:" + file.name, "--watch", "--changes", "1",
                                   "--interval", "0.05", "--json"], stdout=subprocess.PIPE, text=True) as watch:
                self.assertEqual(json.loads(watch.stdout.readline())["cluster_spec"], {"w": ["a:1", "b:1"]})
                self.write(file.name, {"w": ["a:1", "c:1", "d:1"]})
                change = json.loads(watch.stdout.readline())
                self.assertEqual(watch.wait(60), 0)
        self.assertEqual(change, {
            "added": [{"job": "w", "index": 2, "after": "d:1"}], "removed": [],
            "moved": [{"job": "w", "index": 1, "before": "b:1", "after": "c:1"}],
            "cluster_spec": {"w": ["a:1", "c:1", "d:1"]}})

    def test_a_watch_tells_a_failure_once_and_nothing_when_it_is_over(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            self.write(file.name, {"w": ["a:1"]})
            with subprocess.Popen([MUSTER, "resolve", "--resolver", "file:" + file.name, "--watch", "--changes", "1",
                                   "--interval", "0.05", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
                watch.stdout.readline()
                self.write(file.name, "no cluster")
                self.assertTrue(select.select([watch.stderr], [], [], 60)[0], "the failure is not told")
                self.assertRegex(watch.stderr.readline(), "^muster resolve: .*" + re.escape(file.name))
                self.write(file.name, {"w": ["b:1"]})
                self.assertEqual(json.loads(watch.stdout.readline())["cluster_spec"], {"w": ["b:1"]})
                self.assertEqual(watch.stderr.read(), "")
                self.assertEqual(watch.wait(60), 0)

    def test_a_watch_ends_in_order_at_sigterm(self):
        with subprocess.Popen([MUSTER, "resolve", "--resolver", "static:w=a:1", "--watch", "--json"],
                              stdout=subprocess.PIPE, text=True) as watch:
            watch.stdout.readline()
            watch.send_signal(signal.SIGTERM)
            self.assertIn(watch.wait(60), (0, -signal.SIGTERM))

    @staticmethod
    def write(path, cluster):
        """In one piece, as whoever provides such a file should."""
        with open(path + ".new", "w") as file:
            json.dump(cluster, file)
        os.replace(path + ".new", path)

    def test_plain_text(self):
        self.assertIn("b:2", muster("resolve", TF_CONFIG=json.dumps(self.CONFIG)).stdout)

    def test_bad_input_names_source_and_culprit(self):
        outside = dict(self.CONFIG, task={"type": "worker", "index": 7})
        for config, texts in (
            ("{'cluster'", ["TF_CONFIG", "line 1"]),
            (json.dumps(outside), ["TF_CONFIG", "'worker'", "task 7"]),
            (json.dumps({"cluster": {"worker": "a:1"}}), ["TF_CONFIG.cluster", "'worker'"]),
        ):
            done = muster("resolve", "--json", TF_CONFIG=config)
            self.assertEqual(done.returncode, 3)
            self.assertEqual(done.stdout, "")
            for text in texts:
                self.assertIn(text, done.stderr)

    def test_exit_codes_tell_bad_input_from_what_cannot_be_reached(self):
        for uri, variables, code, text in (
            ("sagemaker:", {}, 3, "SM_HOSTS is not set"),
            ("sagemaker:", {"SM_HOSTS": "[a]", "SM_CURRENT_HOST": "a"}, 3, "SM_HOSTS: bad JSON"),
            ("slurm:", {"SLURM_PROCID": "0"}, 3, "SLURM_STEP_NUM_TASKS"),
            ("union:static:{\"w\":{\"1\":\"a\"}}|static:w=a,b", {}, 3, "two members have task 1"),
            ("file:/nonexistent/cluster.json", {}, 3, "/nonexistent/cluster.json"),
            ("dns:_x._tcp.example.org?server=127.0.0.1:1", {}, 4, "_x._tcp.example.org"),
        ):
            done = muster("resolve", "--timeout", "2", "--resolver", uri, **variables)
            self.assertEqual(done.returncode, code, (uri, done.stderr))
            self.assertIn(text, done.stderr)

    def test_nothing_to_resolve_names_the_remedy(self):
        done = muster("resolve")
        self.assertEqual(done.returncode, 3)
        self.assertIn("static:worker=host:port", done.stderr)
        # The list of variables is not cut within a name: it says how many more there are.
        self.assertRegex(done.stderr, r"set TF_CONFIG, RANK(, [A-Z_]+)* and \d+ more \(docs/resolvers.md has all\) \(NOT_FOUND\)$")
        done = muster("resolve", "--resolver", "zoo:1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tf_config", done.stderr)
        self.assertIn("tpu_vm (", done.stderr)
        done = muster("resolve", "--resolver", "tpu:zoo=1")
        self.assertIn("rpc_layer, environment) (INVALID_ARGUMENT)", done.stderr)
        done = muster("resolve", "--resolver", "union:" + "|".join(["static:w=a:1"] * 60))
        self.assertRegex(done.stdout, r"\((static \+ )+static and \d+ more\)")


if __name__ == "__main__":
    unittest.main()
