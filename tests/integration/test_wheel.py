#!/usr/bin/env python3
"""The wheel of tools/wheel: it needs libc alone, and works in an empty virtual environment and in a plain Debian root."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import needs

FOLDER = pathlib.Path(needs.stranger("muster_wheel"))
PATIENCE_S = 120
LIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
# Without NumPy: an empty environment has nothing else.
PROGRAM = """
import array, muster
total = array.array("d", [0])
with muster.Strategy() as strategy:
    strategy.register("total", total)
    while strategy.step < 50:
        strategy.begin()
        share = array.array("d", [1])
        strategy.all_reduce(share)
        total[0] += share[0]
        strategy.commit()
    if strategy.rank == 0:
        print("total", total[0], flush=True)
"""
ROOT_PACKAGES = ("libc6", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "zlib1g", "libexpat1")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (cls.wheel,) = FOLDER.glob("muster-*.whl")
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.program = cls.folder / "program.py"
        cls.program.write_text(PROGRAM, encoding="utf-8")
        cls.clean = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG")}
        run(sys.executable, "-m", "venv", cls.folder / "venv")
        cls.pip = (cls.folder / "venv/bin/pip", "-q", "install", "--no-index", "--no-deps", "--disable-pip-version-check")
        run(*cls.pip, cls.wheel)

    def binaries(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith((".so", "/scripts/muster"))]
            return [pathlib.Path(archive.extract(name, self.folder / "unpacked")) for name in names]

    def test_the_name_says_what_it_runs_on(self):
        self.assertRegex(self.wheel.name, r"^muster-[\d.]+-cp311-abi3-manylinux_2_\d+_x86_64\.whl$")

    def test_it_runs_with_glibc_2_34(self):
        for path in self.binaries():
            versions = {int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", run("objdump", "-T", path))}
            self.assertLessEqual(max(versions), 34, path)

    def test_it_needs_no_library_but_libc(self):
        binaries = self.binaries()
        self.assertEqual({path.name for path in binaries}, {"_muster.abi3.so", "muster"})
        for path in binaries:
            needed = set(re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "-d", path)))
            self.assertLessEqual(needed, LIBC, path)

    def test_the_module_shows_one_symbol(self):
        (module,) = (path for path in self.binaries() if path.suffix == ".so")
        symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", module).splitlines()]
        self.assertEqual(symbols, ["PyInit__muster"])

    def test_it_works_in_an_empty_environment(self):
        binaries = self.folder / "venv/bin"
        output = run(binaries / "muster", "run", "-n", "2", "--", binaries / "python", self.program, env=self.clean, cwd=self.folder)
        self.assertIn("total 100.0", output)

    def test_it_works_in_a_plain_debian_root(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
            self.skipTest("chroot needs root, and a name space of mounts (unshare -m)")
        if not shutil.which("dpkg") or not os.path.exists("/usr/bin/python3.11"):
            self.skipTest("the root is made of Debian 12's packages, and this is another system")
        root = self.folder / "root"
        for folder in ("tmp", "proc", "dev/shm"):
            (root / folder).mkdir(parents=True)
        for folder in ("lib", "lib64", "bin"):
            (root / "usr" / folder).mkdir(parents=True)
            (root / folder).symlink_to(f"usr/{folder}")
        files = [name for name in run("dpkg", "-L", *ROOT_PACKAGES).splitlines() if os.path.isfile(name)]
        run("tar", "--create", "--file", root / "files.tar", "--no-recursion", *dict.fromkeys(files), cwd="/")
        run("tar", "--extract", "--keep-directory-symlink", "--file", root / "files.tar", "--directory", root)
        run(*self.pip, "--ignore-installed", "--root", root, "--prefix", "/usr", self.wheel)
        shutil.copy(self.program, root / "program.py")
        (site,) = root.glob("usr/lib/python3*/site-packages")

        (root / "dev/null").touch()
        output = run("unshare", "-m", "sh", "-ec", f"mount -t proc proc {root}/proc; mount -t tmpfs tmpfs {root}/dev/shm; "
                     f"mount --bind /dev/null {root}/dev/null; exec chroot {root} /usr/bin/muster run -n 2 -- /usr/bin/python3.11 /program.py",
                     env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": f"/{site.relative_to(root)}", "HOME": "/tmp"})

        self.assertIn("total 100.0", output)


unittest.main()
