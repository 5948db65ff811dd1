#!/usr/bin/env python3
"""examples/classify: a service answers with the weights that a trainer publishes. It takes new versions between requests, refuses old ones,
and goes on when the trainer is killed. The commands of docs/publications.md are run as the page shows them."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
import needs

needs.tool("curl", "curl")

SOURCE = os.environ["MUSTER_SOURCE_DIR"]
BINARIES = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin")
PATIENCE_S = 120


def images():
    """(pixels as the service takes them, class) of those that the trainer keeps for the test."""
    with open(os.path.join(SOURCE, "examples", "data", "digits.csv"), encoding="ascii") as file:
        rows = [line.strip().rsplit(",", 1) for line in file][4::5]
    return [(pixels, int(label)) for pixels, label in rows]


class Classify(unittest.TestCase):
    def setUp(self):
        registry, self.registry = self.listener("muster", "registry", "--listen", "127.0.0.1:0")

    def start(self, program, *words, folder=None):
        """A program of the tree, or of the page: that has a folder before its name."""
        process = subprocess.Popen([os.path.join(BINARIES, os.path.basename(program)), *words], cwd=folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def listener(self, *words):
        process = self.start(*words)
        word, address = process.stdout.readline().split()
        self.assertEqual(word, "listening")
        return process, address

    def service(self, *words):
        return self.listener("classify", "--registry", self.registry, *words)

    def trainer(self, versions):
        return self.start("classify_train", "--registry", self.registry, "--data", os.path.join(SOURCE, "examples", "data", "digits.csv"),
                          "--versions", str(versions), "--pause", "10ms")

    def ask(self, address, path):
        """(status, text)"""
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def classify(self, address, pixels):
        status, text = self.ask(address, f"/classify?pixels={pixels}")
        return status, json.loads(text) if status == 200 else text

    def wait_for(self, address, **wanted):
        until = time.monotonic() + PATIENCE_S
        while any((found := json.loads(self.ask(address, "/version")[1]))[name] < wanted[name] for name in wanted):
            self.assertLess(time.monotonic(), until, f"{found}, not {wanted}")
            time.sleep(0.01)

    def test_new_versions_are_taken_between_requests(self):
        pixels, _ = images()[0]
        _, address = self.service()
        self.trainer(20)

        answers = []
        until = time.monotonic() + PATIENCE_S
        while not answers or answers[-1]["version"] < 20:
            self.assertLess(time.monotonic(), until, answers[-1:])
            status, answer = self.classify(address, pixels)
            if status == 200:
                answers.append(answer)
            else:
                self.assertEqual((status, answers), (503, []), answer)

        versions = [answer["version"] for answer in answers]
        self.assertEqual(versions, sorted(versions))
        self.assertGreater(len(set(versions)), 1)
        # One version gives one answer, bit by bit: weights of two versions never meet.
        self.assertEqual(len({(answer["version"], answer["probability"], answer["digit"]) for answer in answers}), len(set(versions)))
        self.assertEqual(len({answer["probability"] for answer in answers}), len(set(versions)))

    def test_weights_that_arrive_classify_images(self):
        _, address = self.service("--min-version", "10")
        self.trainer(10)
        self.wait_for(address, version=10)

        right = sum(self.classify(address, pixels)[1]["digit"] == label for pixels, label in images()[:100])

        self.assertGreater(right, 85)

    def test_versions_that_are_too_old_are_refused(self):
        pixels, _ = images()[0]
        _, address = self.service("--min-version", "4")
        self.assertEqual(self.classify(address, pixels), (503, "version 0 is older than 4 (--min-version)\n"))
        trainer = self.trainer(3)
        self.wait_for(address, newest=3)

        self.assertEqual(self.classify(address, pixels), (503, "version 3 is older than 4 (--min-version)\n"))
        status, text = self.ask(address, "/healthz")
        self.assertEqual(status, 503)
        self.assertIn("version 3 is older than 4 (--min-version)", text)

        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
        self.trainer(2)
        self.wait_for(address, version=5)
        self.assertEqual(self.classify(address, pixels)[1]["version"], 5)
        self.assertEqual(self.ask(address, "/healthz")[0], 200)

    def test_the_service_goes_on_when_the_trainer_is_killed(self):
        pixels, _ = images()[0]
        service, address = self.service()
        trainer = self.trainer(2)
        self.wait_for(address, version=2)
        before = self.classify(address, pixels)

        trainer.send_signal(signal.SIGKILL)
        trainer.wait()

        self.assertEqual(self.classify(address, pixels), before)
        service.terminate()
        out, err = service.communicate(timeout=PATIENCE_S)
        self.assertEqual((service.returncode, out), (0, ""), err)

    def test_pixels_that_are_no_image_are_refused(self):
        _, address = self.service()
        for path in ("/classify", "/classify?pixels=", "/classify?pixels=1,2", "/classify?pixels=" + ",".join(["17"] * 64),
                     "/classify?pixels=" + ",".join(["1"] * 65), "/classify?pixels=" + ",".join(["nan"] * 64)):
            with self.subTest(path=path[:40]):
                self.assertEqual(self.ask(address, path), (400, "pixels must be 64 numbers from 0 to 16, as 0,5,13,…\n"))

    def test_the_commands_of_the_page_work(self):
        with open(os.path.join(SOURCE, "docs", "publications.md"), encoding="utf-8") as file:
            section = file.read().split("\n## A service\n")[1].split("\n## ")[0]
        commands = re.findall(r"^    (build/bin/.*|curl .*)$", section, re.M)
        self.assertEqual([command.split()[0] for command in commands], ["build/bin/classify_train", "build/bin/classify", "curl", "curl"])
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(SOURCE, "examples"), os.path.join(folder, "examples"))
            train, serve, version, classify = (command.replace("127.0.0.1:2379", self.registry) for command in commands)
            self.start(*train.split(), folder=folder)
            service = self.start(*serve.replace("127.0.0.1:8080", "127.0.0.1:0").split(), folder=folder)
            address = service.stdout.readline().split()[1]
            self.wait_for(address, version=1)
            answers = [json.loads(subprocess.run(command.replace("127.0.0.1:8080", address), shell=True, cwd=folder, stdout=subprocess.PIPE,
                                                 stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=True).stdout)
                       for command in (version, classify)]
        self.assertEqual([sorted(answer) for answer in answers], [["newest", "version"], ["digit", "probability", "version"]])


if __name__ == "__main__":
    unittest.main()
