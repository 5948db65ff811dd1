#!/usr/bin/env python3
"""docs/resolvers.md, "Try it without a cloud": its commands give what the page shows."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", "."))
sys.path.insert(0, str(SOURCE / "tests" / "lib"))
import guard

guard.enter()
import needs
from fake_clouds import BINARIES, PATIENCE_S, clean_environment

DOCUMENTED_ADDRESS = "127.0.0.1:40123"


def steps():
    """[(command, what it prints), …] of the section."""
    page = (SOURCE / "docs" / "resolvers.md").read_text(encoding="utf-8")
    section = page.split("## Try it without a cloud")[1].split("\n## ")[0]
    text = "".join(re.findall(r"```console\n(.*?)```", section, re.DOTALL))
    return [step.split("\n", 1) for step in text.split("$ ") if step.startswith(("build/", "export "))] if text else []


def pattern(shown, address):
    """What is printed, with another address, other durations, and … for anything."""
    text = re.escape(shown.replace(DOCUMENTED_ADDRESS, address))
    text = re.sub(r"\d+\\\.\d\\ ms", r"[\\d.]+ ms", text)
    return re.sub(r"…(\\\n)?", "(?s:.*)", text)


class Page(unittest.TestCase):
    def test_its_commands_do_what_it_says(self):
        (start, ready), (export, nothing), *questions = steps()
        self.assertEqual((ready.strip(), nothing), ("listening " + DOCUMENTED_ADDRESS, ""))
        self.assertEqual(len(questions), 4)
        environment = clean_environment()
        arguments = start.replace("build/bin", str(BINARIES.resolve())).split()
        with subprocess.Popen(arguments, cwd=SOURCE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as cloud:
            try:
                address = cloud.stdout.readline().split()[1]
                for question, shown in questions:
                    with self.subTest(question):
                        command = f"{export}\n{question}".replace(DOCUMENTED_ADDRESS, address)
                        done = subprocess.run(["sh", "-c", command.replace("build/bin", str(BINARIES.resolve()))],
                                              cwd=SOURCE, env=environment, text=True, timeout=PATIENCE_S,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                        self.assertRegex(done.stdout, "^" + pattern(shown, address) + "$")
            finally:
                cloud.terminate()
            self.assertIn("503 POST", cloud.stderr.read())


if __name__ == "__main__":
    needs.program("fake_cloud")
    unittest.main(verbosity=2)
