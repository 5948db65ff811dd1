#!/usr/bin/env python3
"""tools/install-dependencies on machines that are played: what apt is asked to install, and what is told where it cannot be asked."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()

SCRIPT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"], "tools", "install-dependencies")
GUARDS_FLOODS = "void nghttp2_option_set_max_continuations(nghttp2_option *option, size_t val);\n"
PATIENCE_S = 60


class Machine:
    """Its programs are the real ones that the script needs, and played ones: dpkg-query knows `installed`, apt-get notes what it is asked."""

    def __init__(self, case, installed, header=GUARDS_FLOODS, user=0, has_apt=True):
        self.folder = pathlib.Path(case.enterContext(tempfile.TemporaryDirectory()))
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        for name in ("bash", "env", "grep", "sed", "cat"):
            (self.programs / name).symlink_to(shutil.which(name))
        (self.folder / "nghttp2").mkdir()
        (self.folder / "nghttp2" / "nghttp2.h").write_text(header, encoding="ascii")
        (self.folder / "installed").write_text("".join(f"{name}\n" for name in installed), encoding="ascii")
        self.play("dpkg-query", 'name=${!#}; grep -qxF "$name" "$MACHINE/installed" && echo ii')
        self.play("pkg-config", 'echo "$MACHINE"')
        self.play("id", f"echo {user}")
        self.play("apt-cache", "exit 0")
        if has_apt:
            self.play("apt-get", 'echo "$*" >>"$MACHINE/asked"')

    def play(self, name, text):
        path = self.programs / name
        path.write_text(f"#!{self.programs}/bash\n{text}\n", encoding="ascii")
        path.chmod(0o755)

    def run(self, *words):
        return subprocess.run([self.programs / "bash", SCRIPT, *words], env={"PATH": str(self.programs), "MACHINE": str(self.folder)},
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def installs(self):
        """The packages of each `apt-get install`."""
        path = self.folder / "asked"
        asked = path.read_text(encoding="ascii").splitlines() if path.exists() else []
        return [[word for word in line.split()[1:] if not word.startswith("-")] for line in asked if line.startswith("install ")]


def build_packages():
    text = SCRIPT.read_text(encoding="utf-8")
    return re.search(r"^build_packages=\(([^)]*)\)", text, re.M)[1].split()


class InstallDependencies(unittest.TestCase):
    def test_a_machine_that_has_all_is_left_alone(self):
        machine = Machine(self, build_packages())
        done = machine.run("build")
        self.assertEqual((done.returncode, done.stdout, done.stderr, machine.installs()), (0, "", "", []))

    def test_what_is_missing_is_installed(self):
        machine = Machine(self, set(build_packages()) - {"cmake", "zlib1g-dev"})
        done = machine.run()
        self.assertEqual((done.returncode, done.stdout), (0, "installing with apt: cmake zlib1g-dev\n"), done.stderr)
        self.assertEqual(machine.installs(), [["cmake", "zlib1g-dev"]])

    def test_nghttp2_without_its_security_update_is_installed_again(self):
        machine = Machine(self, build_packages(), header="/* of 2023 */\n")
        done = machine.run("build")
        self.assertEqual((done.returncode, machine.installs()), (0, [["libnghttp2-dev"]]), done.stderr)

    def test_a_machine_that_cannot_be_asked_is_told_what_is_missing(self):
        rows = (({"user": 1000}, "not root and no sudo; as root run: apt-get install cmake"),
                ({"has_apt": False}, "this is not Debian or Ubuntu; please install: cmake"))
        for machine, text in rows:
            with self.subTest(**machine):
                done = Machine(self, set(build_packages()) - {"cmake"}, **machine).run("build")
                self.assertEqual(done.returncode, 1)
                self.assertIn(text, done.stderr)

    def test_an_unknown_word_is_refused(self):
        done = Machine(self, build_packages()).run("bild")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown word 'bild'", done.stderr)


unittest.main()
