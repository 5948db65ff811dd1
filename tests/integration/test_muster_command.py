#!/usr/bin/env python3
"""The command `muster`: help, unknown names, exit codes, and `muster resolve`."""
import json
import os
import subprocess
import unittest

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")


def muster(*args, **variables):
    env = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "MUSTER_RESOLVER")}
    env.update(variables)
    return subprocess.run([MUSTER, *args], env=env, text=True, capture_output=True, timeout=60)


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

    def test_pages_on_options_and_exit_codes(self):
        self.assertIn("MUSTER_RESOLVER", muster("help", "options").stdout)
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

    def test_json_has_the_keys_of_the_contract_on_one_line(self):
        done = muster("resolve", "--json", TF_CONFIG=json.dumps(self.CONFIG))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        self.assertEqual(
            json.loads(done.stdout),
            {"cluster_spec": {"worker": ["a:1", "b:2"]}, "master": "b:2", "task_type": "worker", "task_id": 1,
             "rpc_layer": None, "num_accelerators": {}, "resolver": "tf_config"})

    def test_a_static_cluster_by_uri_and_by_variable(self):
        for args, variables in ((["--resolver", "static:worker=a:1;ps=p:1"], {}),
                                ([], {"MUSTER_RESOLVER": 'static:{"worker":["a:1"],"ps":["p:1"]}'})):
            done = muster("resolve", "--json", *args, **variables)
            self.assertEqual(json.loads(done.stdout)["cluster_spec"], {"worker": ["a:1"], "ps": ["p:1"]})

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

    def test_nothing_to_resolve_names_the_remedy(self):
        done = muster("resolve")
        self.assertEqual(done.returncode, 3)
        self.assertIn("static:worker=host:port", done.stderr)
        done = muster("resolve", "--resolver", "zoo:1")
        self.assertEqual(done.returncode, 3)
        self.assertIn("tf_config", done.stderr)


if __name__ == "__main__":
    unittest.main()
