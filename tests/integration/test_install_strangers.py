#!/usr/bin/env python3
"""tests/tools/install-strangers: what is there stays, but our own package is made anew when the tree has changed, and one that can
not be made is not left there as if it were of this tree."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()
SCRIPT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"]) / "tests" / "tools" / "install-strangers"
# Stands for python3 -m venv: its pip notes what it is called with, and fails while a file says so; its python fails likewise.
PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$*" >>"%s/calls"; ! [ -e "%s/pip_fails" ]\\n' "$FAKES" "$FAKES" >"$3/bin/pip"
printf '#!/bin/sh\\necho "$PYTHONDONTWRITEBYTECODE$*" >>"%s/calls"; ! [ -e "%s/import_fails" ]\\n' "$FAKES" "$FAKES" >"$3/bin/python"
chmod +x "$3/bin/pip" "$3/bin/python"
"""


class Installs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = self.folder / "tree" / "tests" / "tools" / SCRIPT.name
        self.script.parent.mkdir(parents=True)
        shutil.copy(SCRIPT, self.script)
        self.source = self.folder / "tree" / "python" / "module.c"
        self.source.parent.mkdir()
        self.source.write_text("one\n", encoding="utf-8")
        python = self.folder / "python3"
        python.write_text(PYTHON, encoding="utf-8")
        python.chmod(0o755)

    def install(self, name, **variables):
        """The exit code, and whether something was installed."""
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        environment = dict(os.environ, FAKES=str(self.folder), PATH=f"{self.folder}:{os.environ['PATH']}",
                           MUSTER_STRANGERS=str(self.folder / "home"), **variables)
        done = subprocess.run([self.script, name], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, calls.exists()

    def is_there(self, name):
        return (self.folder / "home" / "bin" / name).exists()

    def test_a_program_of_others_is_installed_once(self):
        self.assertEqual(self.install("tfrecord"), (0, True))
        self.source.write_text("two\n", encoding="utf-8")
        self.assertEqual(self.install("tfrecord"), (0, False))

    def test_our_package_is_made_anew_when_the_tree_has_changed(self):
        self.assertEqual(self.install("muster_package"), (0, True))
        self.assertEqual(self.install("muster_package"), (0, False))
        self.source.write_text("two\n", encoding="utf-8")
        self.assertEqual(self.install("muster_package"), (0, True))
        self.assertEqual(self.install("muster_package"), (0, False))

    def test_tests_and_pages_change_nothing_of_it(self):
        self.install("muster_package")
        (self.folder / "tree" / "docs").mkdir()
        (self.folder / "tree" / "docs" / "page.md").write_text("text\n", encoding="utf-8")
        self.assertEqual(self.install("muster_package"), (0, False))

    def test_what_is_installed_is_imported_once_for_its_bytecode(self):
        self.install("tfrecord", PYTHONDONTWRITEBYTECODE="1")
        pip, python = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        self.assertIn("--no-compile", pip.split())
        self.assertEqual(python, "-c import tfrecord")

    def test_what_cannot_be_imported_is_not_there(self):
        (self.folder / "import_fails").touch()
        self.assertEqual(self.install("tfrecord"), (1, True))
        self.assertFalse(self.is_there("tfrecord"))

    def test_one_that_cannot_be_made_does_not_stay_from_an_older_tree(self):
        self.install("muster_package")
        self.source.write_text("two\n", encoding="utf-8")
        (self.folder / "pip_fails").touch()
        self.assertEqual(self.install("muster_package"), (1, True))
        self.assertFalse(self.is_there("muster_package"))
        (self.folder / "pip_fails").unlink()
        self.assertEqual(self.install("muster_package"), (0, True))


if __name__ == "__main__":
    unittest.main()
