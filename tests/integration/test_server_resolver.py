#!/usr/bin/env python3
"""`muster server` as a task that a resolver names: its address, its devices, its status page, and what is refused."""
import json
import os
import re
import signal
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S

CLUSTER = {"worker": ["127.0.0.1:0", "127.0.0.1:0"], "ps": ["127.0.0.1:0"]}
TF_CONFIG = json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})


class Server(unittest.TestCase):
    def start(self, *words, lines=1, **variables):
        """Its lines on standard output, and at its end its log."""
        child = subprocess.Popen([MUSTER, "server", "--bind", "127.0.0.1", *words], text=True, env=dict(CLEAN, **variables),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child, [child.stdout.readline().split() for _ in range(lines)]

    def end(self, child):
        child.send_signal(signal.SIGTERM)
        log = child.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(child.returncode, 0, log)
        return log

    def test_a_task_of_tf_config_and_the_devices_that_are_named(self):
        child, ((word, _),) = self.start("--resolver", "tf_config:", "--devices", "CPU:1,GPU:2", TF_CONFIG=TF_CONFIG)
        self.assertEqual(word, "listening")
        log = self.end(child)
        self.assertIn("task=/job:worker/replica:0/task:1", log)
        for device in ("CPU:0", "GPU:0", "GPU:1"):
            self.assertIn(f"name=/job:worker/replica:0/task:1/device:{device}\n", log)
        self.assertEqual(log.count("/device:"), 3, log)

    def test_any_resolver_and_one_cpu(self):
        child, _ = self.start("--resolver", "static:worker=127.0.0.1:0;ps=127.0.0.1:0?task_type=ps&task_id=0", CUDA_VISIBLE_DEVICES="")
        log = self.end(child)
        self.assertIn("name=/job:ps/replica:0/task:0/device:CPU:0\n", log)

    def test_the_status_page(self):
        child, ((_, _), (word, address)) = self.start("--status", "127.0.0.1:0", lines=2)
        self.assertEqual(word, "status")
        with urllib.request.urlopen(address + "/healthz", timeout=PATIENCE_S) as answer:
            self.assertEqual(answer.status, 200)
        with urllib.request.urlopen(address + "/metrics", timeout=PATIENCE_S) as answer:
            self.assertIn("process_", answer.read().decode())
        self.end(child)

    def test_the_commands_of_the_page(self):
        """Word for word, but for their ports."""
        with open(os.path.join(os.environ["MUSTER_SOURCE_DIR"], "docs", "server.md"), encoding="utf-8") as page:
            section = page.read().split("## The command")[1].split("\n## ")[0]
        blocks = ["".join(line for line in part if line.startswith("    ")) for part in
                  (block.splitlines(keepends=True) for block in section.split("\n\n"))]
        commands = [re.sub(r":\d{4}\b", ":0", block) for block in blocks if "muster server" in block]
        self.assertEqual(len(commands), 2)
        for rank, text in enumerate(commands):
            before, _, last = text.strip().rpartition("\n")
            child = subprocess.Popen(["bash", "-c", f"{before}\nexec {last.strip()}"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=dict(CLEAN, PATH=os.path.dirname(MUSTER) + ":" + os.environ["PATH"]))
            self.addCleanup(child.communicate)
            self.addCleanup(child.kill)
            self.assertEqual(child.stdout.readline().split()[:1], ["listening"])
            self.assertIn(f"task=/job:worker/replica:0/task:{rank} ", self.end(child))

    def refused(self, code, text, *words, **variables):
        done = subprocess.run([MUSTER, "server", *words], text=True, capture_output=True, env=dict(CLEAN, **variables), timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertIn(text, done.stderr)

    def test_what_cannot_be_served_is_refused(self):
        self.refused(2, "must not be given with --resolver tf_config:", "--resolver", "tf_config:", "--job", "worker", TF_CONFIG=TF_CONFIG)
        self.refused(2, "must not be given with --resolver", "--resolver", "static:worker=127.0.0.1:0", MUSTER_CLUSTER='{"worker":["a:1"]}')
        self.refused(3, "the resolver does not name the task of this process; name it, as in static:worker=127.0.0.1:0?task_type=worker&task_id=0",
                     "--resolver", "static:worker=127.0.0.1:0")
        for text in ("GPU", "GPU:", ":1", "GPU:x", "gpu:1", "GPU:-1", "CPU:1,", "GPU:1;CPU:1", "GPU:1234567890"):
            self.refused(2, "--devices", "--devices", text)
        self.refused(2, "at most 64 devices", "--devices", "GPU:65")
        self.refused(2, "must name each type once, with the number of its devices, got CPU twice", "--devices", "CPU:1,GPU:1,CPU:1")


if __name__ == "__main__":
    unittest.main()
